//! Other volume kinds on nodes: file servers, also over NFS, and file systems with a mount command; nothing stays mounted after
//! any kill.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use corro_test_support::skip;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{CommandOutput, IN_WORKSPACE, Site, signal, wait_for};

/// The error detail of that name.
fn detail(error: &Value, name: &str) -> String {
    let found = error["details"].as_array().into_iter().flatten().find(|detail| detail["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {error}"))["value"].as_str().expect("text").to_owned()
}

/// A job that mounts these volumes beside its share.
fn submit(site: &Site, name: &str, volumes: Value, command: &str) {
    let mut job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": command}}), json!({}));
    let all = job["properties"]["mountVolumes"].as_object_mut().expect("an object");
    all.extend(volumes.as_object().expect("an object").clone());
    site.submit(name, &job).ok();
}

/// Mounts below the directory of the nodes.
fn mounted(site: &Site) -> Vec<String> {
    let nodes = site.data().canonicalize().expect("the data directory").join("nodes");
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a table of mounts");
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| point.starts_with(nodes.to_str().expect("a plain path"))).map(str::to_owned).collect()
}

fn may_mount(site: &Site) -> bool {
    let place = site.path().join("probe");
    std::fs::create_dir_all(&place).expect("a directory");
    let mount = |program: &str, args: &[&str]| {
        Command::new(program).args(args).arg(&place).output().is_ok_and(|output| output.status.success())
    };
    let may = mount("mount", &["-t", "tmpfs", "tmpfs"]) && mount("umount", &[]);
    if !may {
        skip::unsupported_machine("this user may not mount, so mount commands and read-only mounts are not tried");
    }
    may
}

#[test]
fn a_file_server_is_a_directory_of_jobs_and_an_export_to_others() {
    let site = Site::start();
    site.prepare(1);
    let shape = "--vm-size Standard_D1 --disk-count 1 --disk-size 10 --storage-sku Standard_LRS --user-name me --password x-y-z";
    let made = site.corro(&format!("batchai file-server create {IN_WORKSPACE} -n nfs {shape}")).ok().json();
    let id = made["id"].as_str().expect("an id").to_owned();
    let shown = site.corro(&format!("batchai file-server show {IN_WORKSPACE} -n nfs")).ok();
    let line = shown.stderr.lines().find(|line| line.contains("mount -t nfs")).expect("how to mount it").to_owned();
    let word = |from: &str, to: char| {
        let rest = line.split_once(from).unwrap_or_else(|| panic!("no {from} in {line}")).1;
        rest.split(to).next().unwrap_or_default().to_owned()
    };
    let (port, path) = (word("port=", ','), word("127.0.0.1:", ' '));
    let on_server = |more: Value| {
        let mut volume = json!({"fileServer": {"id": id}, "relativeMountPath": "nfs"});
        volume.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "fileServers": [volume] })
    };
    submit(
        &site,
        "first",
        on_server(json!({})),
        "mkdir $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/d; echo hi > $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/d/f",
    );
    assert_eq!(site.wait_for_end("first")["executionState"], "succeeded");

    if Command::new("nfs-cat").arg("--help").output().is_err() {
        skip::missing_component("nfs-cat, nfs-cp and nfs-ls (libnfs-utils) are not installed, so NFS is not tested");
        std::fs::write(directory(&site).join("d/g"), "from afar\n").expect("written");
    } else {
        let url = |path: &str| format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}");
        let ask =
            |args: &[&str]| CommandOutput::from(Command::new(args[0]).args(&args[1..]).output().expect("it starts"));
        assert_eq!(ask(&["nfs-cat", &url(&format!("{path}/d/f"))]).ok().stdout, "hi\n");
        site.write("g", "from afar\n");
        let local = site.path().join("g");
        ask(&["nfs-cp", local.to_str().expect("plain"), &url(&format!("{path}/d/g"))]).ok();
        let listed = ask(&["nfs-ls", &url(&format!("{path}/d"))]).ok().stdout;
        assert!(listed.lines().any(|line| line.ends_with(" f")) && listed.lines().any(|line| line.ends_with(" g")));
        let guessed = path.rsplit_once('/').expect("a path").0.to_owned() + "/00000000000000000000000000000000";
        assert_ne!(ask(&["nfs-ls", &url(&guessed)]).code, 0, "who does not know the path mounts nothing");
    }
    let there = on_server(json!({"sourceDirectory": "d"}));
    submit(&site, "second", there, "cat $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/g");
    assert_eq!(site.wait_for_end("second")["executionState"], "succeeded");
    assert_eq!(site.stream("second", "stdout.txt").ok().stdout, "from afar\n");
    let log = site.stream("second", "execution.log").ok().stdout;
    assert!(log.contains("Mounted directory d of file server nfs at "), "{log}");

    submit(&site, "none", on_server(json!({"sourceDirectory": "none"})), "true");
    let failed = site.wait_for_end("none");
    let error = &failed["executionInfo"]["errors"][0];
    assert_eq!(error["code"], "FileServerMountError", "{failed}");
    assert!(detail(error, "Info").contains("there is no directory 'none' on the file server"), "{error}");
    assert!(detail(error, "Node").starts_with("tvm-"), "{error}");

    let directory = directory(&site);
    site.corro(&format!("batchai file-server delete {IN_WORKSPACE} -n nfs -y")).ok();
    wait_for("its files to be gone", || !directory.exists());
}

/// Port and path for mounting, as `file-server show` reports them.
fn export(site: &Site) -> (String, String) {
    let shown = site.corro(&format!("batchai file-server show {IN_WORKSPACE} -n nfs")).ok();
    let line = shown.stderr.lines().find(|line| line.contains("mount -t nfs")).expect("how to mount it").to_owned();
    let word = |from: &str, to: char| {
        let rest = line.split_once(from).unwrap_or_else(|| panic!("no {from} in {line}")).1;
        rest.split(to).next().unwrap_or_default().to_owned()
    };
    (word("port=", ','), word("127.0.0.1:", ' '))
}

/// Peak memory of the server in KiB.
fn peak_memory(site: &Site) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.up_pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn the_nfs_port_is_bounded_before_anybody_mounts() {
    let site = Site::start();
    site.prepare(1);
    let reserved = std::fs::read_to_string(site.data().join("nfs-port")).expect("the port is reserved");
    let reserved: u16 = reserved.trim().parse().expect("a port");
    let refused = TcpStream::connect(("127.0.0.1", reserved)).expect_err("nothing to export, so nothing listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let shape = "--vm-size Standard_D1 --disk-count 1 --disk-size 10 --storage-sku Standard_LRS --user-name me --password x-y-z";
    site.corro(&format!("batchai file-server create {IN_WORKSPACE} -n nfs {shape}")).ok();
    let (port, path) = export(&site);
    assert_eq!(port, reserved.to_string());

    let before = peak_memory(&site);
    let connect = || TcpStream::connect(("127.0.0.1", reserved)).expect("it listens");
    let marks: [&[u8]; 4] = [&[0x7f, 0xff, 0xff, 0xff], &[0xff; 4], &[0x80, 0x20, 0, 1], &[0, 0x20, 0, 1]];
    // A credential, a list of groups and a path that announce 4 GiB; 2 MiB of zeros; empty fragments without end.
    let word = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let credential = word(&[0x8000_0020, 1, 0, 2, 100_003, 3, 0, 1, u32::MAX]);
    let groups = word(&[0x8000_0040, 1, 0, 2, 100_003, 3, 0, 1, 24, 0, 0, 0, 0, u32::MAX, 0, 0, 0]);
    let zeros = [&[0x80, 0x20, 0, 0][..], &vec![0; 2 << 20]].concat();
    let empty = vec![0; 4_000];
    for _ in 0..50 {
        for said in marks.into_iter().chain([&credential[..], &groups, &zeros, &empty]) {
            let mut stream = connect();
            // The server may hang up before it has read everything.
            let _ = stream.write_all(said);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut response = Vec::new();
            let _ = stream.read_to_end(&mut response);
            assert!(response.len() < 100, "{} bytes for nothing", response.len());
        }
    }
    // More than it accepts from one address: idle connections are closed first.
    let mut idle: Vec<TcpStream> = (0..1_200).map(|_| connect()).collect();
    let grown = peak_memory(&site) - before;
    assert!(grown < 48 << 10, "the server took {grown} KiB");

    if Command::new("nfs-cat").arg("--help").output().is_err() {
        skip::missing_component("nfs-cat and nfs-cp (libnfs-utils) are not installed, so NFS is not tested");
    } else {
        let content: Vec<u8> = (0..24u32 << 20).map(|at| (at ^ (at >> 11)) as u8).collect();
        site.write("large", &content);
        let url = |path: &str| format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}");
        let ask = |args: &[&str]| Command::new(args[0]).args(&args[1..]).output().expect("it starts");
        let local = site.path().join("large");
        let copied = ask(&["nfs-cp", local.to_str().expect("plain"), &url(&format!("{path}/large"))]);
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        assert!(std::fs::read(directory(&site).join("large")).expect("copied") == content, "it was changed on the way");
        let read = ask(&["nfs-cat", &url(&format!("{path}/large"))]);
        assert!(read.status.success() && read.stdout == content, "it is read differently");
        let listed = CommandOutput::from(ask(&["nfs-ls", &url(&path)])).ok().stdout;
        assert!(listed.lines().any(|line| line.ends_with(" large")), "{listed}");
        let grown = peak_memory(&site) - before;
        assert!(grown < 160 << 10, "the server took {grown} KiB");
    }
    let oldest = &mut idle[0];
    assert!(matches!(oldest.read(&mut [0; 1]), Ok(0) | Err(_)), "the oldest gave way");

    site.corro(&format!("batchai file-server delete {IN_WORKSPACE} -n nfs -y")).ok();
    wait_for("the port to be closed", || TcpStream::connect(("127.0.0.1", reserved)).is_err());
}

fn directory(site: &Site) -> std::path::PathBuf {
    let all = site.data().join("file-servers/fileservers");
    let first = std::fs::read_dir(all).expect("a directory").next();
    first.expect("a file server's directory").expect("readable").path()
}

#[test]
fn mounts_of_a_mount_command_end_with_job_and_agent() {
    // Jobs' own mount commands run only where jobs have the rights of the agent's user.
    let site = Site::start_with(&["--no-containers", "--isolation", "off"]);
    site.prepare(1);
    let unmanaged =
        |command: &str| json!({"unmanagedFileSystems": [{"mountCommand": command, "relativeMountPath": "deep/mine"}]});
    submit(&site, "refused", unmanaged("echo no such host >&2; exit 32; #"), "true");
    let failed = site.wait_for_end("refused");
    let error = &failed["executionInfo"]["errors"][0];
    assert_eq!(error["code"], "UnmanagedMountError", "{failed}");
    let info = detail(error, "Info");
    assert!(
        info.contains("/deep/mine: the mount command ended with exit status: 32: its output is in the execution log"),
        "{info}"
    );
    assert!(site.stream("refused", "execution.log").ok().stdout.contains(">>>   no such host"), "{info}");
    assert!(detail(error, "Node").starts_with("tvm-"), "{error}");
    if !may_mount(&site) {
        return;
    }

    let read_only = json!([{"accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>", "containerName": "data",
        "relativeMountPath": "bfs", "mountOptions": "-o ro"}]);
    site.corro("storage container create -n data --account-name mystorageaccount").ok();
    let mut volumes = unmanaged("mount -t tmpfs -o size=1m tmpfs");
    volumes["azureBlobFileSystems"] = read_only;
    let command =
        "cd $AZ_BATCHAI_JOB_MOUNT_ROOT; echo x > deep/mine/f && stat -f -c %T deep/mine; echo y > bfs/f || echo kept";
    submit(&site, "mounts", volumes, command);
    assert_eq!(site.wait_for_end("mounts")["executionState"], "succeeded");
    assert_eq!(site.stream("mounts", "stdout.txt").ok().stdout, "tmpfs\nkept\n");
    wait_for("the job's volumes to be unmounted", || mounted(&site).is_empty());

    // Set once: the second attempt of the job finds it and ends.
    let flag = site.share().join("cifar/began");
    let command =
        "cd $AZ_BATCHAI_JOB_MOUNT_ROOT; test -e myshare/cifar/began || { touch myshare/cifar/began; sleep 600; }";
    submit(&site, "killed", unmanaged("mount -t tmpfs tmpfs"), command);
    wait_for("the job to run", || flag.exists());
    assert_eq!(mounted(&site).len(), 1);
    let agents = site.agents();
    let [(node, pid)] = &agents[..] else { panic!("one agent: {agents:?}") };
    signal(*pid, Signal::KILL);
    wait_for("the dead node's mounts to be gone", || !mounted(&site).iter().any(|point| point.contains(node.as_str())));
    assert_eq!(site.wait_for_end("killed")["executionState"], "succeeded");
    wait_for("all to be unmounted", || mounted(&site).is_empty());
}

#[test]
fn a_volume_that_a_cluster_cannot_mount_makes_its_nodes_unusable_and_says_why() {
    let site = Site::start();
    site.prepare(0);
    site.write(
        "vol.json",
        json!({"properties": {
            "vmSize": "Standard_D1", "scaleSettings": {"manual": {"targetNodeCount": 1}},
            "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "not-a-secret"},
            "nodeSetup": {"mountVolumes": {"unmanagedFileSystems": [
                {"mountCommand": "echo no route >&2; false", "relativeMountPath": "gluster"}
            ]}}
        }})
        .to_string(),
    );
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n vol -f vol.json")).ok();
    let mut cluster = Value::Null;
    wait_for("the node to be unusable", || {
        cluster = site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n vol")).json();
        cluster["nodeStateCounts"]["unusableNodeCount"] == 1
    });
    let error = &cluster["errors"][0];
    assert_eq!(error["code"], "UnmanagedMountError", "{cluster}");
    assert!(detail(error, "Info").contains("no route"), "{error}");
    assert!(detail(error, "Node").starts_with("tvm-"), "{error}");
}
