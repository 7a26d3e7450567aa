//! Uploads, downloads and deletions of whole directories.

use std::fs;

use serde_json::json;

use crate::site::{Site, text};

const IN_ACCOUNT: &str = "--account-name acc";

fn start_site() -> (Site, String) {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    site.out("group create -n g -l eastus");
    site.out("storage account create -g g -n acc");
    site.out(&format!("storage share create -n myshare {IN_ACCOUNT}"));
    for (path, content) in
        [("data/a.txt", "1"), ("data/sub/b.txt", "22"), ("data/sub/deep/c.bin", "333"), ("data/ä ö+%", "4")]
    {
        let path = site.path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
    }
    (site, address)
}

#[test]
fn a_directory_is_uploaded_and_downloaded_unchanged() {
    let (site, address) = start_site();
    let up = site.run(&format!("storage file upload-batch -s data -d myshare --destination-path x/y {IN_ACCOUNT}"));
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
    fs::create_dir(site.path("out")).expect("made");
    let down = site.json(&format!("storage file download-batch -s myshare -d out {IN_ACCOUNT} --max-connections 4"));
    assert_eq!(down.as_array().map(Vec::len), Some(4));
    for (path, content) in [("a.txt", "1"), ("sub/b.txt", "22"), ("sub/deep/c.bin", "333"), ("ä ö+%", "4")] {
        assert_eq!(fs::read_to_string(site.path(&format!("out/x/y/{path}"))).expect(path), content);
    }
    // A second download replaces files; a URL selects a part of a share, a pattern a part of the files.
    fs::create_dir(site.path("part")).expect("made");
    let part = format!("storage file download-batch -s http://{address}/acc/myshare/x/y/sub -d part --pattern *.txt");
    assert_eq!(site.json(&part), json!([format!("{url}/sub/b.txt")]));
    assert!(site.path("part/x/y/sub/b.txt").is_file() && !site.path("part/x/y/sub/deep").exists());
    let gone = format!("storage file delete-batch -s myshare --pattern x/y/sub/* {IN_ACCOUNT}");
    let dry = site.run(&format!("{gone} --dryrun"));
    assert_eq!(text(&dry.stdout), "[]\n");
    assert!(text(&dry.stderr).ends_with("      total 2\n operations\n  - x/y/sub/b.txt\n  - x/y/sub/deep/c.bin\n"));
    assert_eq!(site.json(&gone), json!([null, null]));
    assert_eq!(site.json(&format!("storage file delete-batch -s myshare {IN_ACCOUNT}")), json!([null, null]));
}

#[test]
fn dry_runs_change_nothing() {
    let (site, address) = start_site();
    let up = site.json(&format!("storage file upload-batch -s data -d myshare {IN_ACCOUNT} --pattern sub/* --dryrun"));
    let url = format!("http://{address}/acc/myshare/sub");
    assert_eq!(
        up,
        json!([{"File": format!("{url}/b.txt"), "Type": "text/plain"}, {"File": format!("{url}/deep/c.bin"), "Type": null}])
    );
    assert_eq!(site.json(&format!("storage file list -s myshare {IN_ACCOUNT}")), json!([]));
    site.out(&format!("storage file upload-batch -s data -d myshare {IN_ACCOUNT} --pattern a*"));
    fs::create_dir(site.path("out")).expect("made");
    let down = site.run(&format!("storage file download-batch -s myshare -d out {IN_ACCOUNT} --dryrun"));
    assert_eq!(text(&down.stdout), "[]\n");
    assert!(text(&down.stderr).ends_with("  - a.txt => out/a.txt\n"), "{}", text(&down.stderr));
    assert_eq!(fs::read_dir(site.path("out")).expect("listed").count(), 0);
}

#[test]
fn a_failed_batch_reports_its_progress() {
    let (site, _) = start_site();
    for (args, code, says) in [
        ("upload-batch -s none -d myshare", 2, "source must be an existing directory"),
        ("upload-batch -s data -d My_Share", 2, "neither the name nor the address of a share"),
        ("upload-batch -s data -d myshare/sub", 2, "--destination-path"),
        ("download-batch -s myshare -d none", 2, "destination must be an existing directory"),
        ("upload-batch -s data -d missing", 1, "0 of 4 files were uploaded before this"),
    ] {
        let refused = site.run(&format!("storage file {args} {IN_ACCOUNT}"));
        assert_eq!(refused.status.code(), Some(code), "{args}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(says), "{args}: {}", text(&refused.stderr));
    }
    // The second file cannot be created: a directory has its name.
    site.out(&format!("storage directory create -s myshare -n sub {IN_ACCOUNT}"));
    site.out(&format!("storage directory create -s myshare -n sub/b.txt {IN_ACCOUNT}"));
    let half = site.run(&format!("storage file upload-batch -s data -d myshare {IN_ACCOUNT}"));
    assert_eq!(half.status.code(), Some(1));
    assert!(text(&half.stderr).contains("1 of 4 files were uploaded before this"), "{}", text(&half.stderr));
}
