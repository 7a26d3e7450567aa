//! Shares, directories and files: verbs of a single request, and their output.

use std::fs;

use serde_json::{Value, json};

use crate::site::{Site, text};

const IN_ACCOUNT: &str = "--account-name acc";

fn start_site() -> (Site, String) {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    site.out("group create -n g -l eastus");
    site.out("storage account create -g g -n acc");
    (site, address)
}

#[test]
fn shares_from_creation_to_deletion() {
    let (site, address) = start_site();
    let make = format!("storage share create -n myshare --quota 7 --metadata owner=me {IN_ACCOUNT}");
    assert_eq!(site.json(&make), json!({"created": true}));
    assert_eq!(site.json(&make), json!({"created": false}));
    site.fails(&format!("{make} --fail-on-exist"), 1, "error: The share \"myshare\" already exists.\n");
    let shown = site.json(&format!("storage share show -n myshare {IN_ACCOUNT}"));
    assert_eq!(shown["metadata"], json!({"owner": "me"}));
    assert_eq!((&shown["properties"]["quota"], &shown["snapshot"]), (&json!(7), &Value::Null));
    assert_eq!(site.out(&format!("storage share update -n myshare --quota 9 {IN_ACCOUNT}")), "");
    assert_eq!(site.out(&format!("storage share metadata update -n myshare --metadata a=1 b=2 {IN_ACCOUNT}")), "");
    assert_eq!(site.json(&format!("storage share metadata show -n myshare {IN_ACCOUNT}")), json!({"a": "1", "b": "2"}));
    assert_eq!(site.out(&format!("storage share stats -n myshare {IN_ACCOUNT}")), "0\n");
    assert_eq!(
        site.out(&format!("storage share url -n myshare {IN_ACCOUNT}")),
        format!("\"http://{address}/acc/myshare\"\n")
    );
    assert_eq!(site.json(&format!("storage share exists -n myshare {IN_ACCOUNT}")), json!({"exists": true}));
    assert_eq!(site.json(&format!("storage share exists -n other {IN_ACCOUNT}")), json!({"exists": false}));
    assert_eq!(site.run(&format!("storage share show -n other {IN_ACCOUNT}")).status.code(), Some(3));

    site.out(&format!("storage share create -n other {IN_ACCOUNT}"));
    let list = |args: &str| site.json(&format!("storage share list {IN_ACCOUNT} {args}"));
    assert_eq!(list("--query [].name"), json!(["myshare", "other"]));
    assert_eq!(list("--num-results 1 --query [].name"), json!(["myshare"]));
    assert_eq!(list("--prefix o --query [].name"), json!(["other"]));
    assert_eq!(list("--include-metadata --query [].metadata"), json!([{"a": "1", "b": "2"}, {}]));
    assert_eq!(list("--query [].metadata"), json!([]), "nulls are left out by the query");

    fs::write(site.path("f.txt"), "old").expect("written");
    site.out(&format!("storage file upload -s myshare --source f.txt {IN_ACCOUNT}"));
    let snapshot = site.json(&format!("storage share snapshot -n myshare {IN_ACCOUNT}"));
    let id = snapshot["snapshot"].as_str().expect("a time");
    fs::write(site.path("f.txt"), "newer").expect("written");
    site.out(&format!("storage file upload -s myshare --source f.txt {IN_ACCOUNT}"));
    site.out(&format!("storage file download -s myshare -p f.txt --dest then.txt --snapshot {id} {IN_ACCOUNT}"));
    assert_eq!(fs::read_to_string(site.path("then.txt")).expect("there"), "old");
    assert_eq!(list("--include-snapshots --query [].snapshot"), json!([id]));
    site.fails(
        &format!("storage share delete -n myshare {IN_ACCOUNT}"),
        1,
        "error: The share \"myshare\" has snapshots.\n\nhint: delete them too with --delete-snapshots include\n",
    );
    assert_eq!(
        site.json(&format!("storage share delete -n myshare --snapshot {id} {IN_ACCOUNT}")),
        json!({"deleted": true})
    );
    assert_eq!(site.json(&format!("storage share delete -n myshare {IN_ACCOUNT}")), json!({"deleted": true}));
    assert_eq!(site.json(&format!("storage share delete -n myshare {IN_ACCOUNT}")), json!({"deleted": false}));
    assert_eq!(
        site.run(&format!("storage share delete -n myshare --fail-not-exist {IN_ACCOUNT}")).status.code(),
        Some(1)
    );
}

#[test]
fn directories_and_files_from_creation_to_deletion() {
    let (site, address) = start_site();
    site.out(&format!("storage share create -n myshare {IN_ACCOUNT}"));
    let dir = format!("-s myshare {IN_ACCOUNT} -n d");
    assert_eq!(site.json(&format!("storage directory create {dir} --metadata a=1")), json!({"created": true}));
    let shown = site.json(&format!("storage directory show {dir}"));
    assert_eq!((&shown["name"], &shown["metadata"]), (&json!("d"), &json!({"a": "1"})));
    assert!(shown["properties"]["etag"].is_string() && shown.get("type").is_none());
    assert_eq!(site.json(&format!("storage directory exists {dir}x")), json!({"exists": false}));
    site.out(&format!("storage directory metadata update {dir} --metadata b=2"));
    assert_eq!(site.json(&format!("storage directory metadata show {dir}")), json!({"b": "2"}));

    fs::write(site.path("f.py"), "print(1)").expect("written");
    let file = format!("-s myshare {IN_ACCOUNT} -p d/f.py");
    let about = "--metadata owner=me --content-language en --content-cache-control no-store --validate-content";
    site.out(&format!("storage file upload {file} --source f.py {about}"));
    let shown = site.json(&format!("storage file show {file}"));
    assert_eq!(shown["name"], "f.py");
    assert_eq!(shown["metadata"], json!({"owner": "me"}));
    assert_eq!(shown["properties"]["contentLength"], 8);
    let content = &shown["properties"]["contentSettings"];
    assert_eq!(
        (&content["contentType"], &content["contentLanguage"], &content["cacheControl"]),
        (&json!("text/x-python"), &json!("en"), &json!("no-store"))
    );
    assert_eq!(shown["content"], "");

    assert_eq!(site.out(&format!("storage file update {file} --content-type text/plain")), "");
    let content = site.json(&format!("storage file show {file} --query properties.contentSettings"));
    assert_eq!((&content["contentType"], &content["contentLanguage"]), (&json!("text/plain"), &json!("en")));
    site.out(&format!("storage file update {file} --clear-content-settings --content-encoding gzip"));
    let content = site.json(&format!("storage file show {file} --query properties.contentSettings"));
    assert_eq!((&content["contentLanguage"], &content["contentEncoding"]), (&Value::Null, &json!("gzip")));
    site.out(&format!("storage file metadata update {file} --metadata x=y"));
    assert_eq!(site.json(&format!("storage file metadata show {file}")), json!({"x": "y"}));
    assert_eq!(site.out(&format!("storage file resize {file} --size 5")), "");
    site.out(&format!("storage file download {file} --dest part --start-range 1 --end-range 3 --validate-content"));
    assert_eq!(fs::read_to_string(site.path("part")).expect("there"), "rin");
    assert_eq!(site.out(&format!("storage file url {file}")), format!("\"http://{address}/acc/myshare/d/f.py\"\n"));

    let copied = site.json(&format!(
        "storage file copy start {IN_ACCOUNT} --source-share myshare --source-path d/f.py -s myshare -p copy.py"
    ));
    assert_eq!(copied["status"], "success");
    assert_eq!(
        site.json(&format!("storage file show -s myshare {IN_ACCOUNT} -p copy.py --query properties.copy.status")),
        "success"
    );
    let listed = site.json(&format!("storage file list -s myshare {IN_ACCOUNT}"));
    assert_eq!(listed[0]["name"], "copy.py");
    assert!(listed[0].get("content").is_none() && listed[1]["type"] == "dir");
    assert_eq!(
        site.json(&format!("storage file list -s myshare {IN_ACCOUNT} --num-results 1 --query [].name")),
        json!(["copy.py"])
    );
    assert_eq!(
        site.json(&format!("storage file list -s myshare {IN_ACCOUNT} --exclude-dir --query [].name")),
        json!(["copy.py"])
    );
    assert_eq!(site.json(&format!("storage file exists {file}")), json!({"exists": true}));
    assert_eq!(site.json(&format!("storage file delete {file}")), json!({"deleted": null}));
    assert_eq!(site.json(&format!("storage file exists {file}")), json!({"exists": false}));
    assert_eq!(site.run(&format!("storage file show {file}")).status.code(), Some(3));
    assert_eq!(site.json(&format!("storage directory delete {dir}")), json!({"deleted": true}));
}

#[test]
fn a_sas_permits_its_resource_and_operations_only() {
    let (site, _) = start_site();
    site.out("storage account create -g g -n other");
    for account in ["acc", "other"] {
        site.out(&format!("storage share create -n myshare --account-name {account}"));
    }
    fs::write(site.path("f"), "content").expect("written");
    site.out(&format!("storage file upload -s myshare --source f {IN_ACCOUNT} -p f.txt"));
    let make = format!("storage file generate-sas -s myshare -p f.txt {IN_ACCOUNT} -o tsv");
    let sas = site.out(&format!("{make} --permissions r --expiry 2100-01-01T00:00Z"));
    let with = |sas: &str, args: &str| {
        let mut command = site.command(&args.split(' ').collect::<Vec<_>>());
        command.args(["--account-name", "acc", "--sas-token", sas.trim()]).output().expect("corro starts")
    };
    let read = with(&sas, "storage file download -s myshare -p f.txt --dest got");
    assert!(read.status.success(), "{}", text(&read.stderr));
    assert_eq!(fs::read_to_string(site.path("got")).expect("there"), "content");
    assert_eq!(with(&sas, "storage file delete -s myshare -p f.txt").status.code(), Some(1));
    let share = site.out(&format!(
        "storage share generate-sas -n myshare {IN_ACCOUNT} -o tsv --permissions lr --expiry 2100-01-01"
    ));
    assert!(share.contains("sp=rl&"), "{share}");
    assert_eq!(text(&with(&share, "storage file list -s myshare --query [].name -o tsv").stdout), "f.txt\n");
    let again = with(&sas, "storage file generate-sas -s myshare -p f.txt --permissions r --expiry 2100-01-01");
    assert!(text(&again.stderr).contains("only with the account's key"), "{}", text(&again.stderr));
    for (args, says) in [
        ("--permissions x --expiry 2100-01-01", "'x' is not one of rcwd"),
        ("--permissions r --expiry soon", "argument --expiry"),
        ("--permissions r", "--expiry"),
    ] {
        let refused = site.run(&format!("{make} {args}"));
        assert_eq!(refused.status.code(), Some(2), "{args}");
        assert!(text(&refused.stderr).contains(says), "{}", text(&refused.stderr));
    }
    // Between accounts a copy signs its source by itself.
    let copy = "storage file copy start --account-name other -s myshare -p g.txt --source-account-name acc --source-share myshare --source-path f.txt";
    assert_eq!(site.json(&format!("{copy} --query status")), "success");
    assert_eq!(site.out("storage file list -s myshare --account-name other --query [].name -o tsv"), "g.txt\n");
}
