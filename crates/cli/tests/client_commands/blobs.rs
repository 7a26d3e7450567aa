//! Containers and blobs.

use std::fs;

use serde_json::{Value, json};

use crate::world::{World, text};

const IN: &str = "--account-name acc";

fn world() -> (World, String) {
    let mut world = World::new();
    let address = world.start("127.0.0.1:0");
    world.out("group create -n g -l eastus");
    world.out("storage account create -g g -n acc");
    assert_eq!(world.json(&format!("storage container create -n data {IN} --metadata a=1")), json!({"created": true}));
    (world, address)
}

#[test]
fn a_blob_goes_up_is_listed_and_comes_down() {
    let (world, address) = world();
    fs::write(world.path("hello.py"), "print('hi')\n").expect("written");
    let up = world.json(&format!("storage blob upload -c data -n d/hello.py -f hello.py {IN} --metadata k=v"));
    assert!(up["etag"].as_str().is_some_and(|tag| tag.starts_with("\"0x8D")), "{up}");
    let shown = world.json(&format!("storage blob show -c data -n d/hello.py {IN}"));
    assert_eq!((&shown["name"], &shown["metadata"]), (&json!("d/hello.py"), &json!({"k": "v"})));
    assert_eq!(shown["properties"]["contentSettings"]["contentType"], "text/x-python");
    assert_eq!((&shown["properties"]["contentLength"], &shown["properties"]["etag"]), (&json!(12), &up["etag"]));
    let listed = world.json(&format!("storage blob list -c data {IN} --query [].name"));
    assert_eq!(listed, json!(["d/hello.py"]));
    let prefixes = world.json(&format!("storage blob list -c data {IN} --delimiter /"));
    assert_eq!(prefixes, json!([{"name": "d/"}]));
    let table = world.out(&format!("storage blob list -c data {IN} -o table"));
    assert!(table.starts_with("Name        Blob Type    Blob Tier      Length  Content Type"), "{table}");
    let url = world.json(&format!("storage blob url -c data -n d/hello.py {IN}"));
    assert_eq!(url, json!(format!("http://{address}/acc.blob/data/d/hello.py")));
    let link = world
        .json(&format!("storage blob generate-sas -c data -n d/hello.py {IN} --permissions r --expiry 2099-01-01"));
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
    assert!(world.command(&by_link).output().expect("corro starts").status.success());
    assert_eq!(fs::read_to_string(world.path("back.py")).expect("downloaded"), "print('hi')\n");
    let exists = |name: &str| world.json(&format!("storage blob exists -c data -n {name} {IN}"))["exists"].clone();
    assert_eq!((exists("d/hello.py"), exists("none")), (json!(true), json!(false)));
    assert_eq!(world.json(&format!("storage blob delete -c data -n d/hello.py {IN}")), json!({"deleted": null}));
    assert_eq!(exists("d/hello.py"), json!(false));
    let gone = world.run(&format!("storage blob delete -c data -n d/hello.py {IN}"));
    assert!(text(&gone.stderr).contains("The specified blob does not exist: d/hello.py on the container data"));
}

#[test]
fn directories_go_up_and_down_and_large_ones_in_blocks() {
    let (world, address) = world();
    fs::create_dir_all(world.path("tree/sub")).expect("made");
    fs::write(world.path("tree/a.txt"), "1").expect("written");
    fs::write(world.path("tree/sub/big.bin"), vec![7u8; (64 << 20) + 5]).expect("written");
    let up =
        world.json(&format!("storage blob upload-batch -s tree -d data --destination-path x {IN} --max-connections 4"));
    let urls: Vec<&Value> = up.as_array().expect("a list").iter().map(|made| &made["Blob"]).collect();
    let base = format!("http://{address}/acc.blob/data/x");
    assert_eq!(urls, [&json!(format!("{base}/a.txt")), &json!(format!("{base}/sub/big.bin"))]);
    fs::create_dir(world.path("out")).expect("made");
    let down = world.json(&format!("storage blob download-batch -s data -d out {IN}"));
    assert_eq!(down, json!(["x/a.txt", "x/sub/big.bin"]));
    assert!(
        fs::read(world.path("out/x/sub/big.bin")).expect("downloaded")
            == fs::read(world.path("tree/sub/big.bin")).expect("there")
    );
    world.out(&format!("storage blob delete-batch -s data --pattern x/sub/* {IN}"));
    assert_eq!(world.json(&format!("storage blob list -c data {IN} --query [].name")), json!(["x/a.txt"]));
}

#[test]
fn containers_come_and_go() {
    let (world, _) = world();
    assert_eq!(world.json(&format!("storage container create -n data {IN}")), json!({"created": false}));
    let shown = world.json(&format!("storage container show -n data {IN}"));
    assert_eq!((&shown["name"], &shown["metadata"]), (&json!("data"), &json!({"a": "1"})));
    assert_eq!(shown["properties"]["lease"]["state"], "available");
    let listed = world.json(&format!("storage container list {IN} --query [].name"));
    assert_eq!(listed, json!(["data"]));
    for (line, says) in [
        ("storage container create -n open --public-access blob", "without a key or a link"),
        ("storage container create -n Bad", "not the name of a container"),
        ("storage container create -n data --fail-on-exist", "already exists"),
        ("storage container show -n none", "The specified container does not exist: none"),
        ("storage blob upload -c data -n x -f absent", "there is no file absent"),
        ("storage blob download -c none -n x -f y", "container does not exist"),
    ] {
        let refused = world.run(&format!("{line} {IN}"));
        assert!(!refused.status.success() && text(&refused.stderr).contains(says), "{line}: {}", text(&refused.stderr));
    }
    assert!(!world.path("y").exists());
    assert_eq!(world.json(&format!("storage container delete -n data {IN}")), json!({"deleted": true}));
    assert_eq!(world.json(&format!("storage container delete -n data {IN}")), json!({"deleted": false}));
    assert_eq!(world.json(&format!("storage container exists -n data {IN}")), json!({"exists": false}));
}
