//! `corro share`: a round trip of a directory, and what is refused.

use std::fs;

use crate::harness::Site;

#[test]
fn a_directory_makes_a_round_trip() {
    let site = Site::start();
    site.corro("share list").ok();
    let created = site.corro("share create data").ok();
    assert!(created.stderr.contains("Created resource group default"), "{}", created.stderr);
    assert_eq!(created.stdout, "Created share data in storage account defaultprojects\n");
    assert!(site.corro("share create data").ok().stdout.contains("exists already"));
    let listed = site.corro("share list").ok().stdout;
    assert!(listed.starts_with("NAME  ACCOUNT          CHANGED\ndata  defaultprojects  "), "{listed}");

    let big = vec![7u8; 5 << 20];
    for dir in ["sets/deep/er", "sets/empty"] {
        fs::create_dir_all(site.path().join(dir)).expect("a directory");
    }
    fs::write(site.path().join("sets/a b.txt"), "hello").expect("a file");
    fs::write(site.path().join("sets/deep/er/big.bin"), &big).expect("a file");

    // Into the root, as a new name, and into an existing directory.
    let copied = site.corro("share cp sets data:").ok();
    assert!(copied.stderr.contains("Copied 2 files (5.0 MiB) to data:sets"), "{}", copied.stderr);
    site.corro("share cp sets data:copy").ok();
    site.corro("share cp sets data:copy").ok();
    let mut command = site.command("corro");
    let one = command.args(["share", "cp", "sets/a b.txt", "data:one/"]).output().expect("the command runs");
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
    let on_disk = site.data().join("shares/defaultprojects/data");
    for path in ["sets/a b.txt", "copy/a b.txt", "copy/sets/a b.txt", "one/a b.txt"] {
        assert_eq!(fs::read_to_string(on_disk.join(path)).expect(path), "hello");
    }
    let root = site.corro("share ls data").ok().stdout;
    assert_eq!(root.lines().map(|line| line.trim()).collect::<Vec<_>>(), ["-  copy/", "-  one/", "-  sets/"]);
    assert_eq!(site.corro("share ls data:sets/deep/er").ok().stdout.trim(), "5.0 MiB  big.bin");
    assert_eq!(site.corro("share ls data:sets/deep/er -o tsv --query [].name").ok().stdout, "big.bin\n");

    // And back: as a new directory, into an existing one, and one file.
    site.corro("share cp data:sets back").ok();
    assert_eq!(fs::read(site.path().join("back/deep/er/big.bin")).expect("a file"), big);
    site.corro("share cp defaultprojects/data:sets back").ok();
    assert_eq!(fs::read_to_string(site.path().join("back/sets/a b.txt")).expect("a file"), "hello");
    site.corro("share cp data:sets/deep/er/big.bin .").ok();
    assert_eq!(fs::read(site.path().join("big.bin")).expect("a file").len(), big.len());

    // What is refused.
    site.corro("share cp data:none x").fails(1, &["there is no data:none", "corro share ls data"]);
    site.corro("share cp none data:").fails(1, &["cannot read none"]);
    site.corro("share cp a b").fails(2, &["neither the source nor the target is on a share"]);
    site.corro("share cp data:a data:b").fails(2, &["both the source and the target"]);
    site.corro("share ls dta").fails(3, &["there is no share dta"]);
    site.corro("share ls data/sets").fails(2, &["write a path on a share with a colon: data:sets"]);
    site.corro("share ls data:none").fails(3, &["there is no data:none"]);

    // Deleting.
    site.corro("share rm data:copy").fails(1, &["data:copy is a directory", "--recursive"]);
    site.corro("share rm data:copy -r").fails(1, &["Use --yes"]);
    assert_eq!(site.corro("share rm data:copy -r -y").ok().stdout, "Deleted data:copy with 4 files\n");
    assert!(!on_disk.join("copy").exists());
    assert_eq!(site.corro("share rm data:sets/deep/er/big.bin").ok().stdout, "Deleted data:sets/deep/er/big.bin\n");
    site.corro("share rm data:sets/deep/er/big.bin").fails(3, &["there is no data:sets/deep/er/big.bin"]);
    site.corro("share rm data").fails(2, &["names the whole share"]);
}

#[test]
fn a_name_in_two_accounts_must_be_told_apart() {
    let site = Site::start();
    site.corro("group create -n g -l eastus").ok();
    for account in ["first", "second"] {
        site.corro(&format!("storage account create -g g -n {account}")).ok();
        site.corro(&format!("share create data --account-name {account}")).ok();
    }
    let both = ["there are 2 named data", "data --account-name first", "data --account-name second"];
    site.corro("share ls data").fails(2, &both);
    site.corro("share ls first/data:").ok();
    site.corro("share ls data --account-name second").ok();
    let mut command = site.command("corro");
    let output = command.args(["share", "ls", "data"]).env("AZURE_STORAGE_ACCOUNT", "first").output();
    assert!(output.expect("the command runs").status.success());
}
