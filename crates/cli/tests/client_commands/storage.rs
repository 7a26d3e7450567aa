//! Storage commands: uploads and downloads, local destinations, connection settings, and Ctrl-C.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::site::{IN_EXPERIMENT, Site, prepare, text, wait_until, write_job};

#[test]
fn files_are_uploaded_and_downloaded_unchanged() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    site.out("group create -n g -l eastus");
    site.out("storage account create -g g -n acc");
    site.out("storage share create -n myshare --account-name acc");
    site.out("storage directory create -n cifar -s myshare --account-name acc");
    let content: Vec<u8> = (0..9_000_000_u32).flat_map(|n| [(n % 251) as u8]).collect();
    fs::write(site.path("model.h5"), &content).expect("written");
    assert_eq!(site.out("storage file upload --path cifar -s myshare --source model.h5 --account-name acc"), "");
    fs::remove_file(site.path("model.h5")).expect("removed");
    let file = site.json("storage file download --path cifar/model.h5 -s myshare --account-name acc");
    assert_eq!((&file["name"], &file["properties"]["contentLength"]), (&json!("model.h5"), &json!(9_000_000)));
    assert!(fs::read(site.path("model.h5")).expect("there") == content);
    assert_eq!(
        site.out("storage file list -s myshare --account-name acc -o table"),
        "Name    Content Length    Type    Last Modified\n------  ----------------  ------  ---------------\ncifar/                    dir\n"
    );
    let missing = site.run("storage file upload --path no/x.txt -s myshare --source model.h5 --account-name acc");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("\nhint: make the directory first with 'corro storage directory create'\n"));
}

#[test]
fn errors_name_the_path_or_key() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    prepare(&site);
    site.out("storage directory create -n cifar -s myshare --account-name acc");
    fs::create_dir(site.path("tree")).expect("made");
    let absent = "The specified resource does not exist: nope on the share myshare of the account acc";
    let directory = "cifar on the share myshare is a directory, not a file";
    let rule = "'s2' is not a valid share name: use";
    for (line, code, parts) in [
        ("storage file show -s myshare -p nope", 3, [absent, ""]),
        ("storage file download -s myshare -p nope", 1, ["The specified resource does not exist", "nope"]),
        ("storage file delete -s myshare -p nope", 1, ["The specified resource does not exist", "nope"]),
        (
            "storage file show -s other -p x",
            3,
            ["share does not exist: other in the account acc", "storage share list"],
        ),
        ("storage file exists -s myshare -p x --account-key Zm9v", 1, ["the key is not one of the account acc", ""]),
        ("storage file show -s myshare -p cifar", 3, [directory, "'corro storage directory show'"]),
        ("storage file download -s myshare -p cifar", 1, [directory, "download-batch --source myshare"]),
        ("storage file delete -s myshare -p cifar/", 1, [directory, "'corro storage directory delete'"]),
        ("storage file upload -s myshare --source tree", 1, ["tree is a directory", "upload-batch --source tree"]),
        ("storage share show -n s2", 1, [rule, ""]),
        ("storage share exists -n s2", 1, [rule, ""]),
        ("storage share delete -n s2", 1, [rule, ""]),
        ("storage file list -s s2", 1, [rule, ""]),
        ("storage directory show -s s2 -n x", 1, [rule, ""]),
    ] {
        let output = site.run(&format!("{line} --account-name acc"));
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{line}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{line}: {said}");
    }
    assert_eq!(site.json("storage file exists -s myshare -p cifar --account-name acc"), json!({"exists": false}));
}

#[test]
fn a_download_replaces_plain_files_only() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    prepare(&site);
    fs::write(site.path("f.txt"), "content").expect("written");
    let about = "--metadata owner=me --content-type text/plain --content-language en";
    site.out(&format!("storage file upload -s myshare --source f.txt --account-name acc {about}"));
    let download = "storage file download -p f.txt -s myshare --account-name acc --query name --dest";
    let refused = |dest: &str| {
        let output = site.run(&format!("{download} {dest}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{dest}: {said}");
        assert!(said.contains("is not a regular file") && said.contains("--dest"), "{said}");
    };
    refused("/dev/null");
    fs::create_dir_all(site.path("folder/f.txt")).expect("made");
    refused("folder");

    fs::create_dir(site.path("other")).expect("made");
    site.out(&format!("{download} other"));
    assert_eq!(fs::read(site.path("other/f.txt")).expect("there"), b"content");
    symlink(site.path("other/f.txt"), site.path("link")).expect("linked");
    site.out(&format!("{download} link --open-mode ab"));
    assert!(fs::symlink_metadata(site.path("link")).expect("there").is_symlink());
    assert_eq!(fs::read(site.path("other/f.txt")).expect("there"), b"contentcontent");
    assert_eq!(site.run(&format!("{download} link --open-mode xb")).status.code(), Some(1));
}

#[test]
fn a_whole_connection_string_needs_no_profile() {
    let mut site = Site::new();
    let address = site.start("127.0.0.1:0");
    prepare(&site);
    let key = site.out("storage account keys list -g g -n acc --query [0].value -o tsv");
    let string = format!("AccountName=acc;AccountKey={};FileEndpoint=http://{address}/acc", key.trim());
    let run = |extra: (&str, &str), args: &[&str]| {
        let mut command = site.command(args);
        let output = command.env("CORRO_CONFIG_DIR", site.path("none")).env(extra.0, extra.1).output();
        output.expect("corro starts")
    };
    let list = ["storage", "share", "list", "--query", "[].name", "-o", "tsv"];
    let output = run(("AZURE_STORAGE_CONNECTION_STRING", &string), &list);
    assert_eq!(text(&output.stdout), "myshare\n", "{}", text(&output.stderr));
    let named = [&list[..], &["--account-name", "acc", "--account-key", key.trim()]].concat();
    let output = run(("CORRO_SERVER", &format!("http://{address}/")), &named);
    assert_eq!(text(&output.stdout), "myshare\n", "{}", text(&output.stderr));
    let output = run(("UNRELATED", "x"), &named);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("error: No Corro server is configured"));
}

#[test]
fn the_configuration_file_of_az_is_read() {
    let mut site = Site::new();
    site.start("127.0.0.1:0");
    prepare(&site);
    let key = site.out("storage account keys list -g g -n acc --query [0].value -o tsv");
    fs::create_dir(site.path(".azure")).expect("made");
    let config = format!(
        "[defaults]\ngroup = g\n[core]\noutput = tsv\n[storage]\naccount = acc\n[batchai]\nstorage_account = acc\nstorage_key = {key}"
    );
    fs::write(site.path(".azure/config"), config).expect("written");
    assert_eq!(site.out("storage share list --query [].name"), "myshare\n");
    assert_eq!(site.out("storage account show -n acc --query name -o json"), "\"acc\"\n");
    write_job(&site.path("job.json"), "true");
    assert_eq!(site.out(&format!("batchai job create {IN_EXPERIMENT} -n j -c c -f job.json --query name")), "j\n");
    // The environment comes first, and another directory may be named.
    let output = site.command(&["storage", "account", "list"]).env("AZURE_DEFAULTS_GROUP", "other").output();
    assert_eq!(output.expect("corro starts").status.code(), Some(1));
    let elsewhere =
        site.command(&["batchai", "workspace", "show", "-n", "w"]).env("AZURE_CONFIG_DIR", "/none").output();
    assert_eq!(elsewhere.expect("corro starts").status.code(), Some(2));
}

/// Starts a transfer from a server that sends `head` to the first request and then nothing more.
fn start_stalled_transfer(site: &Site, args: &str, head: &str) -> (Child, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let string = format!("AccountName=acc;AccountKey=a2V5;FileEndpoint=http://{address}/acc");
    let mut command = site.command(&args.split(' ').collect::<Vec<_>>());
    command.env("AZURE_STORAGE_CONNECTION_STRING", string).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("corro starts");
    let (mut stream, _) = listener.accept().expect("it connects");
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a request");
        request.push(byte[0]);
    }
    stream.write_all(head.as_bytes()).expect("it listens");
    (child, stream)
}

#[test]
fn ctrl_c_ends_transfers_and_leaves_nothing() {
    let site = Site::new();
    let interrupted = |mut child: Child, says: &str| {
        kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
        wait_until("the end of the transfer", || child.try_wait().expect("a child").is_some());
        let output = child.wait_with_output().expect("it ended");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert_eq!(said.lines().next().unwrap_or_default(), says);
    };
    let length = 8 << 20;
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\netag: \"1\"\r\ncontent-length: {length}\r\ncontent-range: bytes 0-{}/{length}\r\n\r\n",
        length - 1
    );
    let (child, mut stream) = start_stalled_transfer(&site, "storage file download -p f -s sss", &head);
    stream.write_all(&vec![7; length / 2]).expect("it listens");
    let written =
        || fs::read_dir(site.dir.path()).expect("listed").flatten().map(|e| e.metadata().expect("there").len());
    wait_until("the first bytes", || written().sum::<u64>() > 0);
    interrupted(child, "");
    assert_eq!(written().count(), 0, "the unfinished file is gone");

    fs::write(site.path("f.txt"), "content").expect("written");
    let (child, _stream) = start_stalled_transfer(&site, "storage file upload -s sss --source f.txt", "");
    interrupted(child, "error: the upload was stopped: f.txt on the share is incomplete");
}
