//! Containers and blobs: uploads, downloads, listings and links.

use std::fs;

use serde_json::{Value, json};

use crate::site::{Site, text};

const IN_ACCOUNT: &str = "--account-name acc";

fn start_site() -> (Site, String) {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    site.out("group create -n g -l eastus");
    site.out("storage account create -g g -n acc");
    assert_eq!(
        site.json(&format!("storage container create -n data {IN_ACCOUNT} --metadata a=1")),
        json!({"created": true})
    );
    (site, address)
}

#[test]
fn a_blob_is_uploaded_listed_and_downloaded() {
    let (site, address) = start_site();
    fs::write(site.path("hello.py"), "print('hi')\n").expect("written");
    let up = site.json(&format!("storage blob upload -c data -n d/hello.py -f hello.py {IN_ACCOUNT} --metadata k=v"));
    assert!(up["etag"].as_str().is_some_and(|tag| tag.starts_with("\"0x8D")), "{up}");
    let shown = site.json(&format!("storage blob show -c data -n d/hello.py {IN_ACCOUNT}"));
    assert_eq!((&shown["name"], &shown["metadata"]), (&json!("d/hello.py"), &json!({"k": "v"})));
    assert_eq!(shown["properties"]["contentSettings"]["contentType"], "text/x-python");
    assert_eq!((&shown["properties"]["contentLength"], &shown["properties"]["etag"]), (&json!(12), &up["etag"]));
    let listed = site.json(&format!("storage blob list -c data {IN_ACCOUNT} --query [].name"));
    assert_eq!(listed, json!(["d/hello.py"]));
    let prefixes = site.json(&format!("storage blob list -c data {IN_ACCOUNT} --delimiter /"));
    assert_eq!(prefixes, json!([{"name": "d/"}]));
    let table = site.out(&format!("storage blob list -c data {IN_ACCOUNT} -o table"));
    assert!(table.starts_with("Name        Blob Type    Blob Tier      Length  Content Type"), "{table}");
    let url = site.json(&format!("storage blob url -c data -n d/hello.py {IN_ACCOUNT}"));
    assert_eq!(url, json!(format!("http://{address}/acc.blob/data/d/hello.py")));
    let link = site.json(&format!(
        "storage blob generate-sas -c data -n d/hello.py {IN_ACCOUNT} --permissions r --expiry 2099-01-01"
    ));
    let link = link.as_str().expect("a link");
    let by_link = [
        "storage",
        "blob",
        "download",
        "-c",
        "data",
        "-n",
        "d/hello.py",
        "-f",
        "back.py",
        "--account-name",
        "acc",
        "--sas-token",
        link,
    ];
    assert!(site.command(&by_link).output().expect("corro starts").status.success());
    assert_eq!(fs::read_to_string(site.path("back.py")).expect("downloaded"), "print('hi')\n");
    let exists =
        |name: &str| site.json(&format!("storage blob exists -c data -n {name} {IN_ACCOUNT}"))["exists"].clone();
    assert_eq!((exists("d/hello.py"), exists("none")), (json!(true), json!(false)));
    assert_eq!(site.json(&format!("storage blob delete -c data -n d/hello.py {IN_ACCOUNT}")), json!({"deleted": null}));
    assert_eq!(exists("d/hello.py"), json!(false));
    let gone = site.run(&format!("storage blob delete -c data -n d/hello.py {IN_ACCOUNT}"));
    assert!(text(&gone.stderr).contains("The specified blob does not exist: d/hello.py on the container data"));
}

#[test]
fn directories_are_transferred_and_large_files_in_blocks() {
    let (site, address) = start_site();
    fs::create_dir_all(site.path("tree/sub")).expect("made");
    fs::write(site.path("tree/a.txt"), "1").expect("written");
    fs::write(site.path("tree/sub/big.bin"), vec![7u8; (64 << 20) + 5]).expect("written");
    let up = site.json(&format!(
        "storage blob upload-batch -s tree -d data --destination-path x {IN_ACCOUNT} --max-connections 4"
    ));
    let urls: Vec<&Value> = up.as_array().expect("a list").iter().map(|made| &made["Blob"]).collect();
    let base = format!("http://{address}/acc.blob/data/x");
    assert_eq!(urls, [&json!(format!("{base}/a.txt")), &json!(format!("{base}/sub/big.bin"))]);
    fs::create_dir(site.path("out")).expect("made");
    let down = site.json(&format!("storage blob download-batch -s data -d out {IN_ACCOUNT}"));
    assert_eq!(down, json!(["x/a.txt", "x/sub/big.bin"]));
    assert!(
        fs::read(site.path("out/x/sub/big.bin")).expect("downloaded")
            == fs::read(site.path("tree/sub/big.bin")).expect("there")
    );
    site.out(&format!("storage blob delete-batch -s data --pattern x/sub/* {IN_ACCOUNT}"));
    assert_eq!(site.json(&format!("storage blob list -c data {IN_ACCOUNT} --query [].name")), json!(["x/a.txt"]));
}

#[test]
fn containers_are_created_and_deleted() {
    let (site, _) = start_site();
    assert_eq!(site.json(&format!("storage container create -n data {IN_ACCOUNT}")), json!({"created": false}));
    let shown = site.json(&format!("storage container show -n data {IN_ACCOUNT}"));
    assert_eq!((&shown["name"], &shown["metadata"]), (&json!("data"), &json!({"a": "1"})));
    assert_eq!(shown["properties"]["lease"]["state"], "available");
    let listed = site.json(&format!("storage container list {IN_ACCOUNT} --query [].name"));
    assert_eq!(listed, json!(["data"]));
    for (line, says) in [
        ("storage container create -n open --public-access blob", "public access to containers is not supported"),
        ("storage container create -n Bad", "not the name of a container"),
        ("storage container create -n data --fail-on-exist", "already exists"),
        ("storage container show -n none", "The specified container does not exist: none"),
        ("storage blob upload -c data -n x -f absent", "there is no file absent"),
        ("storage blob download -c none -n x -f y", "container does not exist"),
    ] {
        let refused = site.run(&format!("{line} {IN_ACCOUNT}"));
        assert!(!refused.status.success() && text(&refused.stderr).contains(says), "{line}: {}", text(&refused.stderr));
    }
    assert!(!site.path("y").exists());
    assert_eq!(site.json(&format!("storage container delete -n data {IN_ACCOUNT}")), json!({"deleted": true}));
    assert_eq!(site.json(&format!("storage container delete -n data {IN_ACCOUNT}")), json!({"deleted": false}));
    assert_eq!(site.json(&format!("storage container exists -n data {IN_ACCOUNT}")), json!({"exists": false}));
}
