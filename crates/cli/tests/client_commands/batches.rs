//! Whole directories up and down.

use std::fs;

use serde_json::json;

use crate::world::{World, text};

const IN: &str = "--account-name acc";

fn world() -> (World, String) {
    let mut world = World::new();
    let address = world.start("127.0.0.1:0");
    world.out("group create -n g -l eastus");
    world.out("storage account create -g g -n acc");
    world.out(&format!("storage share create -n myshare {IN}"));
    for (path, content) in
        [("data/a.txt", "1"), ("data/sub/b.txt", "22"), ("data/sub/deep/c.bin", "333"), ("data/ä ö+%", "4")]
    {
        let path = world.path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
    }
    (world, address)
}

#[test]
fn a_directory_goes_up_and_comes_down_unchanged() {
    let (world, address) = world();
    let up = world.run(&format!("storage file upload-batch -s data -d myshare --destination-path x/y {IN}"));
    assert_eq!(
        text(&up.stderr),
        "uploading data/a.txt\nuploading data/sub/b.txt\nuploading data/sub/deep/c.bin\nuploading data/ä ö+%\n"
    );
    let url = format!("http://{address}/acc/myshare/x/y");
    let urls: Vec<String> = serde_json::from_slice(&up.stdout).expect("JSON");
    assert_eq!(
        urls,
        [
            format!("{url}/a.txt"),
            format!("{url}/sub/b.txt"),
            format!("{url}/sub/deep/c.bin"),
            format!("{url}/%C3%A4%20%C3%B6%2B%25"),
        ]
    );
    fs::create_dir(world.path("out")).expect("made");
    let down = world.json(&format!("storage file download-batch -s myshare -d out {IN} --max-connections 4"));
    assert_eq!(down.as_array().map(Vec::len), Some(4));
    for (path, content) in [("a.txt", "1"), ("sub/b.txt", "22"), ("sub/deep/c.bin", "333"), ("ä ö+%", "4")] {
        assert_eq!(fs::read_to_string(world.path(&format!("out/x/y/{path}"))).expect(path), content);
    }
    // The same again replaces; a part of a share by its address, a part of the files by a pattern.
    fs::create_dir(world.path("part")).expect("made");
    let part = format!("storage file download-batch -s http://{address}/acc/myshare/x/y/sub -d part --pattern *.txt");
    assert_eq!(world.json(&part), json!([format!("{url}/sub/b.txt")]));
    assert!(world.path("part/x/y/sub/b.txt").is_file() && !world.path("part/x/y/sub/deep").exists());
    let gone = format!("storage file delete-batch -s myshare --pattern x/y/sub/* {IN}");
    let dry = world.run(&format!("{gone} --dryrun"));
    assert_eq!(text(&dry.stdout), "[]\n");
    assert!(text(&dry.stderr).ends_with("      total 2\n operations\n  - x/y/sub/b.txt\n  - x/y/sub/deep/c.bin\n"));
    assert_eq!(world.json(&gone), json!([null, null]));
    assert_eq!(world.json(&format!("storage file delete-batch -s myshare {IN}")), json!([null, null]));
}

#[test]
fn dry_runs_change_nothing() {
    let (world, address) = world();
    let up = world.json(&format!("storage file upload-batch -s data -d myshare {IN} --pattern sub/* --dryrun"));
    let url = format!("http://{address}/acc/myshare/sub");
    assert_eq!(
        up,
        json!([{"File": format!("{url}/b.txt"), "Type": "text/plain"}, {"File": format!("{url}/deep/c.bin"), "Type": null}])
    );
    assert_eq!(world.json(&format!("storage file list -s myshare {IN}")), json!([]));
    world.out(&format!("storage file upload-batch -s data -d myshare {IN} --pattern a*"));
    fs::create_dir(world.path("out")).expect("made");
    let down = world.run(&format!("storage file download-batch -s myshare -d out {IN} --dryrun"));
    assert_eq!(text(&down.stdout), "[]\n");
    assert!(text(&down.stderr).ends_with("  - a.txt => out/a.txt\n"), "{}", text(&down.stderr));
    assert_eq!(fs::read_dir(world.path("out")).expect("listed").count(), 0);
}

#[test]
fn what_cannot_be_done_is_said_with_how_far_it_came() {
    let (world, _) = world();
    for (args, code, says) in [
        ("upload-batch -s none -d myshare", 2, "source must be an existing directory"),
        ("upload-batch -s data -d My_Share", 2, "neither the name nor the address of a share"),
        ("upload-batch -s data -d myshare/sub", 2, "--destination-path"),
        ("download-batch -s myshare -d none", 2, "destination must be an existing directory"),
        ("upload-batch -s data -d missing", 1, "0 of 4 files were uploaded before this"),
    ] {
        let refused = world.run(&format!("storage file {args} {IN}"));
        assert_eq!(refused.status.code(), Some(code), "{args}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(says), "{args}: {}", text(&refused.stderr));
    }
    // The second file cannot be made: a directory is in its place.
    world.out(&format!("storage directory create -s myshare -n sub {IN}"));
    world.out(&format!("storage directory create -s myshare -n sub/b.txt {IN}"));
    let half = world.run(&format!("storage file upload-batch -s data -d myshare {IN}"));
    assert_eq!(half.status.code(), Some(1));
    assert!(text(&half.stderr).contains("1 of 4 files were uploaded before this"), "{}", text(&half.stderr));
}
