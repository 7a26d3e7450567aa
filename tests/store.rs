//! Durable state of a real server: backups under load, restores elsewhere, a full disk, and the history.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corro_test_support::skip;

use harness::{CommandOutput, GROUP, IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

fn experiment(site: &Site) -> String {
    format!("{}/experiments/cifar", site.workspace())
}

/// Submits a job that waits: its cluster has no nodes.
fn submit(site: &Site, name: &str) -> harness::http::Response {
    let job = json!({"properties": {
        "cluster": {"id": format!("{}/clusters/nc6cluster", site.workspace())},
        "nodeCount": 1,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
        "customToolkitSettings": {"commandLine": "true"},
        "secrets": [{"name": "PASS", "value": "hidden"}]
    }});
    site.arm("PUT", &format!("{}/jobs/{name}", experiment(site)), job)
}

fn jobs(site: &Site) -> BTreeSet<String> {
    let list = site.arm("GET", &format!("{}/jobs", experiment(site)), Value::Null).is(200).json();
    assert!(list["nextLink"].is_null(), "one page is enough here");
    let jobs = list["value"].as_array().expect("a list").iter();
    jobs.map(|job| job["name"].as_str().expect("text").to_owned()).collect()
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn a_backup_under_load_holds_every_job_acknowledged_before_it() {
    let mut site = Site::start();
    site.prepare(0);
    let keys = site.account_keys();
    let (stop, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let acknowledged = Mutex::new(BTreeSet::new());
    let count = || acknowledged.lock().expect("no one panicked").len();
    let file = site.path().join("copy.db");
    let before = std::thread::scope(|scope| {
        let load = || {
            while !stop.load(Ordering::Relaxed) {
                let name = format!("j{}", next.fetch_add(1, Ordering::Relaxed));
                submit(&site, &name).is(202);
                acknowledged.lock().expect("no one panicked").insert(name);
            }
        };
        let clients = [scope.spawn(load), scope.spawn(load), scope.spawn(load)];
        wait_for("some jobs", || count() >= 20);
        let before = acknowledged.lock().expect("no one panicked").clone();
        let made = site.corro(&format!("admin backup --data {} --to {}", shown(&site.data()), shown(&file))).ok();
        assert!(made.stdout.contains("key of stored secrets") && made.stdout.contains("Not in it"), "{made:?}");
        let after = count();
        wait_for("jobs after the backup", || count() > after);
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("every submit was answered"));
        before
    });
    site.corro(&format!("admin backup --data {} --to {}", shown(&site.data()), shown(&file)))
        .fails(1, &["copy.db already exists", "hint: choose another name"]);
    let elsewhere = site.path().join("elsewhere");
    let restore = format!("admin restore --from {} --data", shown(&file));
    site.corro(&format!("{restore} {}", shown(&site.data()))).fails(1, &["is not empty", "--force"]);
    site.corro(&format!("{restore} {} --force", shown(&site.data()))).fails(1, &["already running"]);
    site.kill_server();
    let all = acknowledged.into_inner().expect("no one panicked");

    // The original has everything; the restored backup at least everything acknowledged before it.
    site.up();
    assert_eq!(jobs(&site), all);
    site.kill_server();
    let restored = site.corro(&format!("{restore} {}", shown(&elsewhere))).ok();
    assert!(restored.stdout.contains("Not restored: the files of shares"), "{restored:?}");
    std::fs::rename(site.data(), site.path().join("old-data")).expect("out of the way");
    std::fs::rename(&elsewhere, site.data()).expect("in its place");
    site.up();
    let there = jobs(&site);
    assert!(before.is_subset(&there), "lost: {:?}", before.difference(&there).collect::<Vec<_>>());
    assert!(there.is_subset(&all));
    assert_eq!(site.account_keys(), keys, "sealed values open with the key of the backup");
    submit(&site, "after").is(202);
    let sound = site.corro(&format!("admin check --data {}", shown(&site.data()))).ok();
    assert!(sound.stdout.contains("is sound"), "{sound:?}");
}

/// A start of a server that must be refused.
fn refused_start(site: &Site) -> CommandOutput {
    let mut command = site.command("corro");
    command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(site.data());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let deadline = std::time::Instant::now() + harness::DEADLINE;
    while child.try_wait().expect("it can be asked").is_none() {
        if std::time::Instant::now() > deadline {
            child.kill().expect("it can be killed");
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    CommandOutput::from(child.wait_with_output().expect("it has ended"))
}

/// Every file in the data directory with its bytes; directories are left out.
fn data_bytes(site: &Site) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(site.data()).expect("a list").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|e| (e.file_name().into_string().expect("text"), std::fs::read(e.path()).expect("bytes"))).collect()
}

/// Asserts that start, check and backup are refused with these messages, and change nothing.
#[track_caller]
fn check_refused(site: &Site, says: &[&str]) {
    let before = data_bytes(site);
    refused_start(site).fails(1, says);
    let data = site.data();
    assert_eq!(site.corro(&format!("admin check --data {}", shown(&data))).code, 1);
    assert_eq!(site.corro(&format!("admin backup --data {} --to refused.db", shown(&data))).code, 1);
    let after = data_bytes(site);
    assert!(before == after, "{:?} became {:?}", before.keys(), after.keys());
    assert!(!site.path().join("refused.db").exists());
}

#[test]
fn a_refused_start_leaves_the_database_and_its_log_as_they_are() {
    let mut site = Site::start();
    site.prepare(0);
    let all = BTreeSet::from(["one".to_owned(), "two".to_owned()]);
    all.iter().for_each(|name| _ = submit(&site, name).is(202));
    let (data, aside) = (site.data(), site.path().join("aside"));
    let (database, wal) = (data.join("corro.db"), data.join("corro.db-wal"));
    // After a crash the latest state is in the write-ahead log; after an orderly shutdown there is none.
    for orderly in [false, true] {
        match orderly {
            true => assert_eq!(site.interrupt_server(), Some(0)),
            false => site.kill_server(),
        }
        assert_eq!(wal.exists(), !orderly);
        std::fs::rename(&database, &aside).expect("moved");
        check_refused(&site, &["corro.db", "missing or empty", "put it back", "corro admin restore"]);
        std::fs::write(&database, "").expect("emptied");
        check_refused(&site, &["corro.db", "missing or empty", "put it back"]);
        std::fs::rename(&aside, &database).expect("put back");
        let sound = site.corro(&format!("admin check --data {}", shown(&data))).ok();
        assert!(sound.stdout.contains("(2 jobs"), "{sound:?}");
        site.up();
        assert_eq!(jobs(&site), all);
    }
}

#[test]
fn a_log_that_does_not_belong_is_refused_and_the_right_one_is_used() {
    let (mut site, mut other) = (Site::start(), Site::start());
    for site in [&site, &other] {
        site.prepare(0);
    }
    submit(&site, "mine").is(202);
    site.kill_server();
    other.kill_server();
    let wal = site.data().join("corro.db-wal");
    let right = std::fs::read(&wal).expect("a log");
    std::fs::copy(other.data().join("corro.db-wal"), &wal).expect("copied");
    check_refused(&site, &["corro.db-wal", "does not belong", "put back the two files", "corro admin restore"]);
    let mut damaged = right.clone();
    damaged[500] ^= 1;
    for (bytes, says) in [(&b"garbage"[..], "not an SQLite write-ahead log"), (&damaged, "damaged in the middle")] {
        std::fs::write(&wal, bytes).expect("written");
        check_refused(&site, &["corro.db-wal", says, "move", "away"]);
    }
    // The key of another installation is also detected before anything is changed.
    std::fs::write(&wal, &right).expect("put back");
    let key = std::fs::read(site.data().join("master.key")).expect("a key");
    std::fs::copy(other.data().join("master.key"), site.data().join("master.key")).expect("copied");
    check_refused(&site, &["master.key", "does not match the database"]);
    std::fs::write(site.data().join("master.key"), key).expect("put back");
    site.up();
    assert_eq!(jobs(&site), BTreeSet::from(["mine".to_owned()]));
}

#[test]
fn the_database_of_a_stopped_server_is_whole_without_its_log() {
    let mut site = Site::start();
    site.prepare(0);
    submit(&site, "last").is(202);
    assert_eq!(site.interrupt_server(), Some(0));
    let alone = site.path().join("alone");
    std::fs::create_dir(&alone).expect("a directory");
    for name in ["corro.db", "master.key"] {
        std::fs::copy(site.data().join(name), alone.join(name)).expect("a copy");
    }
    let sound = site.corro(&format!("admin check --data {}", shown(&alone))).ok();
    assert!(sound.stdout.contains("(1 jobs"), "{sound:?}");
    let before = data_bytes(&site);
    site.corro(&format!("admin backup --data {} --to copy.db", shown(&site.data()))).ok();
    assert!(before == data_bytes(&site), "a backup changes nothing");
}

#[test]
fn a_second_server_is_refused_though_the_lock_file_was_removed() {
    let mut site = Site::start();
    site.prepare(0);
    submit(&site, "one").is(202);
    std::fs::remove_file(site.data().join("lock")).expect("removed");
    let refused = refused_start(&site).fails(1, &["already running", "--data DIR"]);
    assert!(refused.stderr.contains(&site.url), "{refused:?}");
    // The running one continues, and is backed up meanwhile.
    submit(&site, "two").is(202);
    site.corro(&format!("admin backup --data {} --to copy.db", shown(&site.data()))).ok();
    let sound = site.corro("admin check --backup copy.db").ok();
    assert!(sound.stdout.contains("(2 jobs"), "{sound:?}");
    let live = site.corro(&format!("admin check --data {}", shown(&site.data()))).ok();
    assert!(live.stdout.contains("(2 jobs"), "{live:?}");
    // The directory under another name is the same directory.
    std::os::unix::fs::symlink(site.data(), site.path().join("same")).expect("a link");
    let same = site.corro("up --listen 127.0.0.1:0 --data same");
    same.fails(1, &["already running"]);
    // No lock outlives its process.
    site.kill_server();
    site.up();
    assert_eq!(jobs(&site), BTreeSet::from(["one".to_owned(), "two".to_owned()]));
}

#[test]
fn only_a_backup_is_restored() {
    let site = Site::start();
    site.write("text", "no database");
    let target = site.path().join("new");
    for file in ["text", "nothing", "data/corro.db"] {
        let ended = site.corro(&format!("admin restore --from {file} --data {}", shown(&target)));
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains(file), "{ended:?}");
        let entries = std::fs::read_dir(&target)
            .map_or(0, |entries| entries.filter(|e| e.as_ref().is_ok_and(|e| e.file_name() != "lock")).count());
        assert_eq!(entries, 0, "{file}");
    }
    site.corro("admin check --backup text").fails(1, &["text", "hint:"]);
    site.corro("admin backup --to copy --data nowhere").fails(1, &["there is no database in nowhere", "--data DIR"]);
}

#[test]
fn a_full_disk_is_answered_and_damages_nothing() {
    let Some(site) = Site::start_on_small_disk(16) else {
        skip::unsupported_machine("this user may not mount a small disk (unshare -rm)");
        return;
    };
    site.prepare(0);
    submit(&site, "first").is(202);
    let filler = site.inner_data().join("filler");
    let mut file = std::fs::File::create(&filler).expect("a file on the small disk");
    let mut chunk = vec![7u8; 1 << 20];
    while !chunk.is_empty() {
        match file.write(&chunk) {
            Ok(n) if n == chunk.len() => {}
            _ => chunk.truncate(chunk.len() / 2),
        }
    }
    // The database has some free space inside; then the disk is full.
    let (mut acknowledged, mut refused) = (BTreeSet::from(["first".to_owned()]), None);
    wait_for("the disk to be full", || {
        let name = format!("j{}", acknowledged.len());
        let response = submit(&site, &name);
        match response.status {
            202 => _ = acknowledged.insert(name),
            _ => refused = Some((name, response)),
        }
        refused.is_some()
    });
    let (name, response) = refused.expect("just seen");
    let response = response.refused(507, "InsufficientStorage");
    let message = response.json()["error"]["message"].as_str().expect("text").to_owned();
    assert!(message.contains("disk is full") && message.contains("nothing was changed"), "{message}");
    assert!(message.contains("Free some space"), "{message}");
    // Reads continue, nothing is half-done, and the commands report the same.
    assert_eq!(jobs(&site), acknowledged);
    site.corro("group create -n another -l eastus").fails(1, &["disk is full", "Free some space"]);
    site.arm("HEAD", &format!("{}/resourceGroups/another", site.subscription()), Value::Null).is(404);

    drop(file);
    std::fs::remove_file(&filler).expect("it can be removed");
    wait_for("writes to work again", || submit(&site, &name).status == 202);
    acknowledged.insert(name);
    assert_eq!(jobs(&site), acknowledged);
    // No writes now, so that the files are those that a crash would leave.
    let copy = site.path().join("copy");
    std::fs::create_dir(&copy).expect("a directory");
    for name in ["corro.db", "corro.db-wal", "master.key"] {
        std::fs::copy(site.inner_data().join(name), copy.join(name)).expect("a copy");
    }
    let sound = site.corro(&format!("admin check --data {}", shown(&copy))).ok();
    assert!(sound.stdout.contains(&format!("({} jobs", acknowledged.len())), "{sound:?}");
}

/// Takes all space of the small disk, and any space freed later, like a job that writes without end.
fn keep_full(path: &Path, stop: &AtomicBool) {
    let mut file = std::fs::File::create(path).expect("a file on the small disk");
    let chunk = vec![7u8; 64 << 10];
    let mut size = chunk.len();
    while !stop.load(Ordering::Relaxed) {
        match file.write(&chunk[..size]) {
            Ok(written) if written > 0 => size = (size * 2).min(chunk.len()),
            _ if size > 1 => size /= 2,
            _ => std::thread::park_timeout(std::time::Duration::from_micros(200)),
        }
    }
}

#[test]
fn jobs_end_and_resources_go_while_the_disk_is_full() {
    let Some(site) = Site::start_on_small_disk(24) else {
        skip::unsupported_machine("this user may not mount a small disk (unshare -rm)");
        return;
    };
    site.prepare(1);
    let endless = "while :; do cat /dev/zero >> $AZ_BATCHAI_JOB_TEMP_DIR/fill; sleep 0.01; done 2> /dev/null";
    site.submit_custom("endless", 1, endless);
    site.wait_for_state("endless", &["running"]);
    submit(&site, "waiting").is(202);
    site.corro("ad sp create-for-rbac -n reader --role Reader").ok();
    let log_lines = |text: &str| site.up_log().lines().filter(|line| line.contains(text)).count();
    let (stop, filler) = (AtomicBool::new(false), site.inner_data().join("filler"));
    std::thread::scope(|scope| {
        let thief = scope.spawn(|| keep_full(&filler, &stop));
        let mut made = 0;
        wait_for("submits to be refused", || {
            let group = format!("{}/resourceGroups/g{made}", site.subscription());
            made += 1;
            let full = json!({"location": "eastus", "tags": {"t": "x".repeat(200)}});
            let refused = site.arm("PUT", &group, full).status == 507;
            refused && submit(&site, "refused").status == 507
        });
        submit(&site, "refused").refused(507, "InsufficientStorage");

        // Requests that end, delete and shrink are accepted, and take effect.
        let job = |name: &str| format!("{}/jobs/{name}", experiment(&site));
        site.arm("POST", &format!("{}/terminate", job("endless")), json!({})).is(202);
        let ended = site.wait_for_end("endless");
        assert_eq!(ended["executionState"], "failed", "{ended:#}");
        site.arm("DELETE", &job("waiting"), Value::Null).is(202);
        wait_for("the job to be gone", || site.arm("GET", &job("waiting"), Value::Null).status == 404);
        let cluster = format!("{}/clusters/nc6cluster", site.workspace());
        let size = |count: i32| json!({"properties": {"scaleSettings": {"manual": {"targetNodeCount": count}}}});
        site.arm("PATCH", &cluster, size(2)).refused(507, "InsufficientStorage");
        site.arm("PATCH", &cluster, size(0)).is(200);
        site.wait_for_nodes(0);
        site.corro("ad sp delete --id reader").ok();
        submit(&site, "refused").refused(507, "InsufficientStorage");
        stop.store(true, Ordering::Relaxed);
        thief.join().expect("it ends");
    });
    // The condition is logged once, however often it occurred.
    assert_eq!(log_lines("a commit failed"), 1, "{}", site.up_log());
    assert!(log_lines("pass failed") <= 1, "{}", site.up_log());
    assert!(site.up_log().lines().count() < 2_000, "{}", site.up_log());

    std::fs::remove_file(&filler).expect("it can be removed");
    wait_for("submits to be accepted", || submit(&site, "refused").status == 202);
    site.corro(&format!("batchai cluster resize {IN_WORKSPACE} -n nc6cluster --target 1")).ok();
    assert_eq!(site.wait_for_end("refused")["executionState"], "succeeded");
    assert_eq!(log_lines("commits succeed again refused"), 1, "{}", site.up_log());
}

#[test]
fn the_history_has_every_step_of_a_job_with_its_actor() {
    let site = Site::start();
    site.prepare(1);
    let me = site.profile()["clientId"].as_str().expect("text").to_owned();
    site.submit_custom("j", 1, "exit 3");
    site.wait_for_end("j");
    let resource = format!("{GROUP}/batchaidev/cifar/j");
    let entries = site.corro(&format!("admin history --resource {resource}")).json();
    let entries: Vec<_> = entries.as_array().expect("a list").iter().rev().collect();
    let what: Vec<_> = entries.iter().map(|entry| (entry["what"].as_str(), entry["actor"].as_str())).collect();
    let expected = [("job.submitted", me.as_str()), ("job.placed", "corro"), ("job.failed", "corro")];
    assert_eq!(what, expected.map(|(what, actor)| (Some(what), Some(actor))));
    assert_eq!(entries[1]["detail"]["nodes"].as_array().map(Vec::len), Some(1), "{:#}", entries[1]);
    assert_eq!(entries[2]["detail"]["exitCode"], 3, "{:#}", entries[2]);

    // By kind, in consecutive pages.
    let path = format!("{}/providers/Corro/history?api-version=2018-05-01", site.subscription());
    let all = site.arm("GET", &format!("{path}&kind=job"), Value::Null).is(200).json();
    let mut paged = Vec::new();
    let mut next = Some(format!("{path}&kind=job&maxresults=2"));
    while let Some(link) = next {
        let page = site.arm("GET", &link, Value::Null).is(200).json();
        paged.extend(page["value"].as_array().expect("a list").clone());
        next = page["nextLink"].as_str().map(|link| link.strip_prefix(&site.url).expect("this server").to_owned());
    }
    assert_eq!(all["value"].as_array(), Some(&paged));
    site.corro("admin history --since yesterday").fails(1, &["since is 'yesterday'", "2018-06-07T21:16:21Z"]);
    let table = site.corro("admin history --kind node -o table").ok();
    assert!(table.stdout.contains("node.allocated") && table.stdout.contains("node.joined"), "{table:?}");
}
