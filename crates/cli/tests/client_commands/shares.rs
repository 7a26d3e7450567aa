//! Shares, directories and files: the verbs that are one request, and what they print.

use std::fs;

use serde_json::{Value, json};

use crate::world::{World, text};

const IN: &str = "--account-name acc";

fn world() -> (World, String) {
    let mut world = World::new();
    let address = world.start("127.0.0.1:0");
    world.out("group create -n g -l eastus");
    world.out("storage account create -g g -n acc");
    (world, address)
}

#[test]
fn shares_from_beginning_to_end() {
    let (world, address) = world();
    let make = format!("storage share create -n myshare --quota 7 --metadata owner=me {IN}");
    assert_eq!(world.json(&make), json!({"created": true}));
    assert_eq!(world.json(&make), json!({"created": false}));
    world.fails(&format!("{make} --fail-on-exist"), 1, "error: The share \"myshare\" already exists.\n");
    let shown = world.json(&format!("storage share show -n myshare {IN}"));
    assert_eq!(shown["metadata"], json!({"owner": "me"}));
    assert_eq!((&shown["properties"]["quota"], &shown["snapshot"]), (&json!(7), &Value::Null));
    assert_eq!(world.out(&format!("storage share update -n myshare --quota 9 {IN}")), "");
    assert_eq!(world.out(&format!("storage share metadata update -n myshare --metadata a=1 b=2 {IN}")), "");
    assert_eq!(world.json(&format!("storage share metadata show -n myshare {IN}")), json!({"a": "1", "b": "2"}));
    assert_eq!(world.out(&format!("storage share stats -n myshare {IN}")), "0\n");
    assert_eq!(world.out(&format!("storage share url -n myshare {IN}")), format!("\"http://{address}/acc/myshare\"\n"));
    assert_eq!(world.json(&format!("storage share exists -n myshare {IN}")), json!({"exists": true}));
    assert_eq!(world.json(&format!("storage share exists -n other {IN}")), json!({"exists": false}));
    assert_eq!(world.run(&format!("storage share show -n other {IN}")).status.code(), Some(3));

    world.out(&format!("storage share create -n other {IN}"));
    let list = |args: &str| world.json(&format!("storage share list {IN} {args}"));
    assert_eq!(list("--query [].name"), json!(["myshare", "other"]));
    assert_eq!(list("--num-results 1 --query [].name"), json!(["myshare"]));
    assert_eq!(list("--prefix o --query [].name"), json!(["other"]));
    assert_eq!(list("--include-metadata --query [].metadata"), json!([{"a": "1", "b": "2"}, {}]));
    assert_eq!(list("--query [].metadata"), json!([]), "nulls are left out by the query");

    fs::write(world.path("f.txt"), "old").expect("written");
    world.out(&format!("storage file upload -s myshare --source f.txt {IN}"));
    let snapshot = world.json(&format!("storage share snapshot -n myshare {IN}"));
    let id = snapshot["snapshot"].as_str().expect("a time");
    fs::write(world.path("f.txt"), "newer").expect("written");
    world.out(&format!("storage file upload -s myshare --source f.txt {IN}"));
    world.out(&format!("storage file download -s myshare -p f.txt --dest then.txt --snapshot {id} {IN}"));
    assert_eq!(fs::read_to_string(world.path("then.txt")).expect("there"), "old");
    assert_eq!(list("--include-snapshots --query [].snapshot"), json!([id]));
    world.fails(
        &format!("storage share delete -n myshare {IN}"),
        1,
        "error: The share \"myshare\" has snapshots.\n\nhint: delete them too with --delete-snapshots include\n",
    );
    assert_eq!(world.json(&format!("storage share delete -n myshare --snapshot {id} {IN}")), json!({"deleted": true}));
    assert_eq!(world.json(&format!("storage share delete -n myshare {IN}")), json!({"deleted": true}));
    assert_eq!(world.json(&format!("storage share delete -n myshare {IN}")), json!({"deleted": false}));
    assert_eq!(world.run(&format!("storage share delete -n myshare --fail-not-exist {IN}")).status.code(), Some(1));
}

#[test]
fn directories_and_files_from_beginning_to_end() {
    let (world, address) = world();
    world.out(&format!("storage share create -n myshare {IN}"));
    let dir = format!("-s myshare {IN} -n d");
    assert_eq!(world.json(&format!("storage directory create {dir} --metadata a=1")), json!({"created": true}));
    let shown = world.json(&format!("storage directory show {dir}"));
    assert_eq!((&shown["name"], &shown["metadata"]), (&json!("d"), &json!({"a": "1"})));
    assert!(shown["properties"]["etag"].is_string() && shown.get("type").is_none());
    assert_eq!(world.json(&format!("storage directory exists {dir}x")), json!({"exists": false}));
    world.out(&format!("storage directory metadata update {dir} --metadata b=2"));
    assert_eq!(world.json(&format!("storage directory metadata show {dir}")), json!({"b": "2"}));

    fs::write(world.path("f.py"), "print(1)").expect("written");
    let file = format!("-s myshare {IN} -p d/f.py");
    let about = "--metadata owner=me --content-language en --content-cache-control no-store --validate-content";
    world.out(&format!("storage file upload {file} --source f.py {about}"));
    let shown = world.json(&format!("storage file show {file}"));
    assert_eq!(shown["name"], "f.py");
    assert_eq!(shown["metadata"], json!({"owner": "me"}));
    assert_eq!(shown["properties"]["contentLength"], 8);
    let content = &shown["properties"]["contentSettings"];
    assert_eq!(
        (&content["contentType"], &content["contentLanguage"], &content["cacheControl"]),
        (&json!("text/x-python"), &json!("en"), &json!("no-store"))
    );
    assert_eq!(shown["content"], "");

    assert_eq!(world.out(&format!("storage file update {file} --content-type text/plain")), "");
    let content = world.json(&format!("storage file show {file} --query properties.contentSettings"));
    assert_eq!((&content["contentType"], &content["contentLanguage"]), (&json!("text/plain"), &json!("en")));
    world.out(&format!("storage file update {file} --clear-content-settings --content-encoding gzip"));
    let content = world.json(&format!("storage file show {file} --query properties.contentSettings"));
    assert_eq!((&content["contentLanguage"], &content["contentEncoding"]), (&Value::Null, &json!("gzip")));
    world.out(&format!("storage file metadata update {file} --metadata x=y"));
    assert_eq!(world.json(&format!("storage file metadata show {file}")), json!({"x": "y"}));
    assert_eq!(world.out(&format!("storage file resize {file} --size 5")), "");
    world.out(&format!("storage file download {file} --dest part --start-range 1 --end-range 3 --validate-content"));
    assert_eq!(fs::read_to_string(world.path("part")).expect("there"), "rin");
    assert_eq!(world.out(&format!("storage file url {file}")), format!("\"http://{address}/acc/myshare/d/f.py\"\n"));

    let copied = world.json(&format!(
        "storage file copy start {IN} --source-share myshare --source-path d/f.py -s myshare -p copy.py"
    ));
    assert_eq!(copied["status"], "success");
    assert_eq!(
        world.json(&format!("storage file show -s myshare {IN} -p copy.py --query properties.copy.status")),
        "success"
    );
    let listed = world.json(&format!("storage file list -s myshare {IN}"));
    assert_eq!(listed[0]["name"], "copy.py");
    assert!(listed[0].get("content").is_none() && listed[1]["type"] == "dir");
    assert_eq!(
        world.json(&format!("storage file list -s myshare {IN} --num-results 1 --query [].name")),
        json!(["copy.py"])
    );
    assert_eq!(
        world.json(&format!("storage file list -s myshare {IN} --exclude-dir --query [].name")),
        json!(["copy.py"])
    );
    assert_eq!(world.json(&format!("storage file exists {file}")), json!({"exists": true}));
    assert_eq!(world.json(&format!("storage file delete {file}")), json!({"deleted": null}));
    assert_eq!(world.json(&format!("storage file exists {file}")), json!({"exists": false}));
    assert_eq!(world.run(&format!("storage file show {file}")).status.code(), Some(3));
    assert_eq!(world.json(&format!("storage directory delete {dir}")), json!({"deleted": true}));
}

#[test]
fn a_signature_opens_what_it_names_and_nothing_else() {
    let (world, _) = world();
    world.out("storage account create -g g -n other");
    for account in ["acc", "other"] {
        world.out(&format!("storage share create -n myshare --account-name {account}"));
    }
    fs::write(world.path("f"), "content").expect("written");
    world.out(&format!("storage file upload -s myshare --source f {IN} -p f.txt"));
    let make = format!("storage file generate-sas -s myshare -p f.txt {IN} -o tsv");
    let sas = world.out(&format!("{make} --permissions r --expiry 2100-01-01T00:00Z"));
    let with = |sas: &str, args: &str| {
        let mut command = world.command(&args.split(' ').collect::<Vec<_>>());
        command.args(["--account-name", "acc", "--sas-token", sas.trim()]).output().expect("corro starts")
    };
    let read = with(&sas, "storage file download -s myshare -p f.txt --dest got");
    assert!(read.status.success(), "{}", text(&read.stderr));
    assert_eq!(fs::read_to_string(world.path("got")).expect("there"), "content");
    assert_eq!(with(&sas, "storage file delete -s myshare -p f.txt").status.code(), Some(1));
    let share =
        world.out(&format!("storage share generate-sas -n myshare {IN} -o tsv --permissions lr --expiry 2100-01-01"));
    assert!(share.contains("sp=rl&"), "{share}");
    assert_eq!(text(&with(&share, "storage file list -s myshare --query [].name -o tsv").stdout), "f.txt\n");
    let again = with(&sas, "storage file generate-sas -s myshare -p f.txt --permissions r --expiry 2100-01-01");
    assert!(text(&again.stderr).contains("only with the account's key"), "{}", text(&again.stderr));
    for (args, says) in [
        ("--permissions x --expiry 2100-01-01", "'x' is not one of rcwd"),
        ("--permissions r --expiry soon", "argument --expiry"),
        ("--permissions r", "--expiry"),
    ] {
        let refused = world.run(&format!("{make} {args}"));
        assert_eq!(refused.status.code(), Some(2), "{args}");
        assert!(text(&refused.stderr).contains(says), "{}", text(&refused.stderr));
    }
    // Between accounts a copy signs its source by itself.
    let copy = "storage file copy start --account-name other -s myshare -p g.txt --source-account-name acc --source-share myshare --source-path f.txt";
    assert_eq!(world.json(&format!("{copy} --query status")), "success");
    assert_eq!(world.out("storage file list -s myshare --account-name other --query [].name -o tsv"), "g.txt\n");
}
