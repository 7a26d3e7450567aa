//! Nodes on other machines, in network and mount namespaces: they cannot see the server's disk, mount their jobs' volumes over
//! the file service, and are addressed by their own IP addresses. Skipped with a notice where this user may not create such
//! machines.

mod harness;

use std::fs;
use std::path::Path;

use harness::fault_injection::JoinedAgent;
use harness::machines::{Machines, mounted_on, processes_beside};
use harness::{IN_WORKSPACE, Site, signal, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A server, and agents on `n` machines.
fn site(n: usize) -> Option<(Machines, Site, Vec<JoinedAgent>)> {
    let machines = Machines::new(n)?;
    let mut site = Site::unstarted(&["--no-containers", "--tls"]);
    site.start_server("server", &format!("{}:0", machines.server()), "info");
    let agents = (0..n).map(|machine| machines.join(&site, machine)).collect();
    site.prepare(n);
    Some((machines, site, agents))
}

fn space_of(agent: &JoinedAgent) -> std::path::PathBuf {
    fs::read_link(format!("/proc/{}/ns/mnt", agent.child.id())).expect("the agent lives")
}

fn logs_of(site: &Site) -> String {
    let texts = ["machine-0.log", "machine-1.log"].map(|name| fs::read_to_string(site.path().join(name)));
    texts.map(Result::unwrap_or_default).join("\n")
}

#[track_caller]
fn assert_succeeded(site: &Site, job: &str) {
    let ended = site.wait_for_end(job);
    let (out, execution) = (site.log(job, "stdout.txt"), logs_of(site));
    assert_eq!(ended["executionState"], "succeeded", "{ended}\n{out}\n{execution}");
}

/// No mount token is readable in the list of processes, in the database or on an agent's disk.
fn assert_no_pass(site: &Site) {
    let holds = |bytes: &[u8]| bytes.windows(7).any(|window| window == b"by=node");
    for entry in fs::read_dir("/proc").expect("Linux has it").flatten() {
        for name in ["cmdline", "environ"] {
            let bytes = fs::read(entry.path().join(name)).unwrap_or_default();
            assert!(!holds(&bytes), "{}/{name}", entry.path().display());
        }
    }
    let logs = ["up.log", "machine-0.log", "machine-1.log", "data/corro.db", "data/corro.db-wal"];
    let own = ["machine-0", "machine-1"].map(|dir| fs::read_dir(site.path().join(dir)).into_iter().flatten().flatten());
    let own = own.into_iter().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
    for file in logs.map(|name| site.path().join(name)).into_iter().chain(own) {
        assert!(!holds(&fs::read(&file).unwrap_or_default()), "{}", file.display());
    }
}

#[test]
fn a_job_over_two_machines_has_its_share_and_outlives_the_server() {
    let Some((machines, mut site, agents)) = site(2) else { return };
    fs::create_dir(site.share().join("in")).expect("a directory of the share");
    fs::write(site.share().join("in/data"), "from the share\n").expect("an input");
    let command = "cat $AZ_BATCHAI_INPUT_DATA/data; echo $RANK of $AZ_BATCH_HOST_LIST; \
        tr '\\n' ';' < $AZ_BATCHAI_MPI_HOST_FILE; echo; echo $RANK > $AZ_BATCHAI_SHARED_JOB_TEMP/$RANK; \
        until [ -e $AZ_BATCHAI_SHARED_JOB_TEMP/0 -a -e $AZ_BATCHAI_SHARED_JOB_TEMP/1 ]; do sleep 0.1; done; echo $RANK met; \
        until [ -e $AZ_BATCHAI_INPUT_DATA/go ]; do echo tick; sleep 0.2; done; \
        echo weights > $AZ_BATCHAI_OUTPUT_MODEL/draft-$RANK && mv $AZ_BATCHAI_OUTPUT_MODEL/draft-$RANK $AZ_BATCHAI_OUTPUT_MODEL/r$RANK; \
        echo $RANK done";
    let directories = json!({
        "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/in"}],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar"}],
    });
    let settings = json!({"customMpiSettings": {"commandLine": command}});
    site.submit("far", &site.job_json(2, settings, directories)).ok();
    wait_for("both ranks to have met", || {
        let said = site.log("far", "stdout.txt");
        said.contains("0 met") && said.contains("1 met") || site.job("far")["executionState"] == "failed"
    });
    let (said, job) = (site.log("far", "stdout.txt"), site.job("far"));
    assert_eq!(job["executionState"], "running", "{job}\n{said}\n{}", logs_of(&site));
    let [first, second] = [machines.address(0), machines.address(1)];
    let either = [format!("{first},{second}"), format!("{second},{first}")];
    assert!(either.iter().any(|list| said.contains(&format!("0 of {list}\n"))), "{said}\n{}", logs_of(&site));
    assert!(said.contains(&format!("{first} slots=1;")) && said.contains(&format!("{second} slots=1;")), "{said}");
    for agent in &agents {
        assert_eq!(mounted_on(agent.child.id()).len(), 2, "the share, and what the nodes share");
    }
    assert_no_pass(&site);
    let address = site.address();
    site.kill_server();
    site.start_server("server", &address, "info");
    let seen = site.log("far", "stdout.txt").matches("tick").count();
    wait_for("the ranks to go on", || site.log("far", "stdout.txt").matches("tick").count() > seen + 4);
    fs::write(site.share().join("in/go"), "").expect("a file of the share");
    assert_succeeded(&site, "far");
    let said = site.log("far", "stdout.txt");
    assert_eq!(said.matches("from the share\n").count(), 2, "{said}");
    assert!(said.contains("0 done\n") && said.contains("1 done\n"), "{said}");
    let outputs = find(&site.share().join("cifar"), "r0");
    for rank in ["r0", "r1"] {
        assert_eq!(fs::read_to_string(outputs.join(rank)).expect("an output"), "weights\n");
    }
    assert!(!outputs.join("draft-0").exists());
    // Complete, though it is on a mount that is removed at the end.
    let files = site.files("far");
    let logs = files.iter().filter_map(|file| file["name"].as_str()).filter(|name| name.starts_with("execution-"));
    let logs: Vec<String> = logs.map(|name| site.log("far", name)).collect();
    assert_eq!(logs.len(), 2);
    for log in logs {
        assert!(log.contains("Unmounting //") && log.ends_with("Finished on this node\n"), "{log}");
    }
    for agent in &agents {
        wait_for("nothing to be mounted", || mounted_on(agent.child.id()).is_empty());
        wait_for("the agent to be alone", || mount_processes(agent).is_empty());
    }
    let shared = site.data().join("job-shared/jobshared");
    wait_for("what the nodes shared to be gone", || fs::read_dir(&shared).expect("a directory").next().is_none());
}

/// The directory that holds a file of this name.
fn find(below: &Path, name: &str) -> std::path::PathBuf {
    let mut left = vec![below.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            match entry.path() {
                path if path.is_dir() => left.push(path),
                path if path.file_name().is_some_and(|found| found == name) => return directory,
                _ => {}
            }
        }
    }
    panic!("no {name} below {}", below.display())
}

fn mount_processes(agent: &JoinedAgent) -> Vec<u32> {
    let is_mount = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1).is_some_and(|word| word.starts_with(b"mount-"))
    };
    processes_beside(&space_of(agent)).into_iter().filter(is_mount).collect()
}

#[test]
fn containers_and_file_servers_come_to_another_machine_too() {
    let Some((_machines, site, agents)) = site(1) else { return };
    let container = site.data().join("shares/mystorageaccount/.containers/data");
    fs::create_dir_all(&container).expect("a container");
    fs::write(container.join("blob"), "from a blob\n").expect("a blob");
    let shape = "--vm-size Standard_D1 --disk-count 1 --disk-size 10 --storage-sku Standard_LRS --user-name me --password x-y-z";
    let made = site.corro(&format!("batchai file-server create {IN_WORKSPACE} -n nfs {shape}")).ok().json();
    let submit = |name: &str, servers: Value, command: &str| {
        let mut job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": command}}), json!({}));
        let volumes = &mut job["properties"]["mountVolumes"];
        volumes["azureBlobFileSystems"] = json!([{
            "accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>", "containerName": "data", "relativeMountPath": "deep/bfs"
        }]);
        volumes["fileServers"] = servers;
        site.submit(name, &job).ok();
    };
    let server = |more: Value| {
        let mut volume = json!({"fileServer": {"id": made["id"]}, "relativeMountPath": "nfs"});
        volume.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!([volume])
    };
    let all = "set -e; cd $AZ_BATCHAI_JOB_MOUNT_ROOT; cat deep/bfs/blob; mkdir deep/bfs/d; echo new > deep/bfs/d/a; mv deep/bfs/d/a deep/bfs/d/b; \
        echo x > deep/bfs/gone; rm deep/bfs/gone; mkdir nfs/sub; echo far >> nfs/sub/f; echo more >> nfs/sub/f; ls deep/bfs";
    submit("all", server(json!({})), all);
    assert_succeeded(&site, "all");
    assert_eq!(site.log("all", "stdout.txt"), "from a blob\nblob\nd\n");
    assert_eq!(fs::read_to_string(container.join("d/b")).expect("it was renamed"), "new\n");
    submit(
        "part",
        server(json!({"sourceDirectory": "sub", "mountOptions": "ro"})),
        "cat $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/f; touch $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/g && exit 9; true",
    );
    assert_succeeded(&site, "part");
    assert_eq!(site.log("part", "stdout.txt"), "far\nmore\n");
    assert!(site.log("part", "stderr.txt").contains("Read-only"), "{}", site.log("part", "stderr.txt"));
    assert_eq!(mounted_on(agents[0].child.id()), [""; 0]);
    submit("none", server(json!({"sourceDirectory": "none"})), "true");
    let failed = site.wait_for_end("none");
    assert_eq!(failed["executionInfo"]["errors"][0]["code"], "FileServerMountError", "{failed}");
    assert!(failed.to_string().contains("there is no directory 'none' on the file server"), "{failed}");
}

#[test]
fn nothing_stays_of_a_killed_agent_or_a_killed_mount() {
    let Some((_machines, site, mut agents)) = site(1) else { return };
    let agent = agents.remove(0);
    site.submit_custom("long", 1, "echo here; sleep 600");
    wait_for("the job to speak", || site.log("long", "stdout.txt").contains("here"));
    let (pid, space) = (agent.child.id(), space_of(&agent));
    assert_eq!(mounted_on(pid).len(), 1);
    // A killed mount process is replaced, and its mount with it.
    let killed = mount_processes(&agent);
    killed.iter().for_each(|pid| signal(*pid, Signal::KILL));
    wait_for("another mount", || {
        let now = mount_processes(&agent);
        mounted_on(pid).len() == 1 && now.len() == 2 && now.iter().all(|pid| !killed.contains(pid))
    });
    signal(pid, Signal::KILL);
    wait_for("nothing to be left on the machine", || processes_beside(&space).iter().all(|left| *left == pid));
    drop(agent);
    assert!(processes_beside(&space).is_empty());
}
