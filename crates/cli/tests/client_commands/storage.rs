//! Storage commands: files up and down, where they may go, who they speak to, and what Ctrl-C leaves.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::world::{PLACE, World, prepare, text, wait_until, write_job};

#[test]
fn files_go_up_and_come_down_unchanged() {
    let mut world = World::new();
    world.start("127.0.0.1:0");
    world.out("group create -n g -l eastus");
    world.out("storage account create -g g -n acc");
    world.out("storage share create -n myshare --account-name acc");
    world.out("storage directory create -n cifar -s myshare --account-name acc");
    let content: Vec<u8> = (0..9_000_000_u32).flat_map(|n| [(n % 251) as u8]).collect();
    fs::write(world.path("model.h5"), &content).expect("written");
    assert_eq!(world.out("storage file upload --path cifar -s myshare --source model.h5 --account-name acc"), "");
    fs::remove_file(world.path("model.h5")).expect("removed");
    let file = world.json("storage file download --path cifar/model.h5 -s myshare --account-name acc");
    assert_eq!((&file["name"], &file["properties"]["contentLength"]), (&json!("model.h5"), &json!(9_000_000)));
    assert!(fs::read(world.path("model.h5")).expect("there") == content);
    assert_eq!(
        world.out("storage file list -s myshare --account-name acc -o table"),
        "Name    Content Length    Type    Last Modified\n------  ----------------  ------  ---------------\ncifar/                    dir\n"
    );
    let missing = world.run("storage file upload --path no/x.txt -s myshare --source model.h5 --account-name acc");
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("\nhint: make the directory first with 'corro storage directory create'\n"));
}

#[test]
fn what_is_wrong_with_a_path_or_a_key_is_said_with_its_name() {
    let mut world = World::new();
    world.start("127.0.0.1:0");
    prepare(&world);
    world.out("storage directory create -n cifar -s myshare --account-name acc");
    fs::create_dir(world.path("tree")).expect("made");
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
        let output = world.run(&format!("{line} --account-name acc"));
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{line}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{line}: {said}");
    }
    assert_eq!(world.json("storage file exists -s myshare -p cifar --account-name acc"), json!({"exists": false}));
}

#[test]
fn a_download_replaces_plain_files_only() {
    let mut world = World::new();
    world.start("127.0.0.1:0");
    prepare(&world);
    fs::write(world.path("f.txt"), "content").expect("written");
    let about = "--metadata owner=me --content-type text/plain --content-language en";
    world.out(&format!("storage file upload -s myshare --source f.txt --account-name acc {about}"));
    let download = "storage file download -p f.txt -s myshare --account-name acc --query name --dest";
    let refused = |dest: &str| {
        let output = world.run(&format!("{download} {dest}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{dest}: {said}");
        assert!(said.contains("is not a plain file") && said.contains("--dest"), "{said}");
    };
    refused("/dev/null");
    fs::create_dir_all(world.path("folder/f.txt")).expect("made");
    refused("folder");

    fs::create_dir(world.path("other")).expect("made");
    world.out(&format!("{download} other"));
    assert_eq!(fs::read(world.path("other/f.txt")).expect("there"), b"content");
    symlink(world.path("other/f.txt"), world.path("link")).expect("linked");
    world.out(&format!("{download} link --open-mode ab"));
    assert!(fs::symlink_metadata(world.path("link")).expect("there").is_symlink());
    assert_eq!(fs::read(world.path("other/f.txt")).expect("there"), b"contentcontent");
    assert_eq!(world.run(&format!("{download} link --open-mode xb")).status.code(), Some(1));
}

#[test]
fn a_whole_connection_string_needs_no_profile() {
    let mut world = World::new();
    let address = world.start("127.0.0.1:0");
    prepare(&world);
    let key = world.out("storage account keys list -g g -n acc --query [0].value -o tsv");
    let string = format!("AccountName=acc;AccountKey={};FileEndpoint=http://{address}/acc", key.trim());
    let run = |extra: (&str, &str), args: &[&str]| {
        let mut command = world.command(args);
        let output = command.env("CORRO_CONFIG_DIR", world.path("none")).env(extra.0, extra.1).output();
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
    let mut world = World::new();
    world.start("127.0.0.1:0");
    prepare(&world);
    let key = world.out("storage account keys list -g g -n acc --query [0].value -o tsv");
    fs::create_dir(world.path(".azure")).expect("made");
    let config = format!(
        "[defaults]\ngroup = g\n[core]\noutput = tsv\n[storage]\naccount = acc\n[batchai]\nstorage_account = acc\nstorage_key = {key}"
    );
    fs::write(world.path(".azure/config"), config).expect("written");
    assert_eq!(world.out("storage share list --query [].name"), "myshare\n");
    assert_eq!(world.out("storage account show -n acc --query name -o json"), "\"acc\"\n");
    write_job(&world.path("job.json"), "true");
    assert_eq!(world.out(&format!("batchai job create {PLACE} -n j -c c -f job.json --query name")), "j\n");
    // The environment comes first, and another directory may be named.
    let output = world.command(&["storage", "account", "list"]).env("AZURE_DEFAULTS_GROUP", "other").output();
    assert_eq!(output.expect("corro starts").status.code(), Some(1));
    let elsewhere =
        world.command(&["batchai", "workspace", "show", "-n", "w"]).env("AZURE_CONFIG_DIR", "/none").output();
    assert_eq!(elsewhere.expect("corro starts").status.code(), Some(2));
}

/// Starts a transfer with a server that answers `head` to the first request and then falls silent.
fn stuck(world: &World, args: &str, head: &str) -> (Child, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let string = format!("AccountName=acc;AccountKey=a2V5;FileEndpoint=http://{address}/acc");
    let mut command = world.command(&args.split(' ').collect::<Vec<_>>());
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
    let world = World::new();
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
    let (child, mut stream) = stuck(&world, "storage file download -p f -s sss", &head);
    stream.write_all(&vec![7; length / 2]).expect("it listens");
    let written =
        || fs::read_dir(world.dir.path()).expect("listed").flatten().map(|e| e.metadata().expect("there").len());
    wait_until("the first bytes", || written().sum::<u64>() > 0);
    interrupted(child, "");
    assert_eq!(written().count(), 0, "the unfinished file is gone");

    fs::write(world.path("f.txt"), "content").expect("written");
    let (child, _stream) = stuck(&world, "storage file upload -s sss --source f.txt", "");
    interrupted(child, "error: the upload was stopped: f.txt on the share is incomplete");
}
