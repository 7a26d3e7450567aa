//! What the server keeps, with a real server: backups under load, restores elsewhere, a full disk, and the history.

mod harness;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harness::{GROUP, Site, wait_for};
use serde_json::{Value, json};

fn experiment(site: &Site) -> String {
    format!("{}/experiments/cifar", site.workspace())
}

/// A job that waits: its cluster has no nodes.
fn submit(site: &Site, name: &str) -> harness::http::Answer {
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
        assert!(made.stdout.contains("key that opens stored secrets") && made.stdout.contains("Not in it"), "{made:?}");
        let after = count();
        wait_for("jobs after the backup", || count() > after);
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("every submit was answered"));
        before
    });
    site.corro(&format!("admin backup --data {} --to {}", shown(&site.data()), shown(&file)))
        .fails(1, &["copy.db is there already", "hint: choose another name"]);
    let elsewhere = site.path().join("elsewhere");
    let restore = format!("admin restore --from {} --data", shown(&file));
    site.corro(&format!("{restore} {}", shown(&site.data()))).fails(1, &["is not empty", "--force"]);
    site.corro(&format!("{restore} {} --force", shown(&site.data()))).fails(1, &["already running"]);
    site.kill_server();
    let all = acknowledged.into_inner().expect("no one panicked");

    // Where it was: everything. Where the backup went: what was acknowledged before it at least.
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

#[test]
fn what_is_no_backup_is_not_restored() {
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
        eprintln!("not tested here: this user may not mount a small disk (unshare -rm)");
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
    // The database has a little room inside; then it is over.
    let (mut acknowledged, mut refused) = (BTreeSet::from(["first".to_owned()]), None);
    wait_for("the disk to be full", || {
        let name = format!("j{}", acknowledged.len());
        let answer = submit(&site, &name);
        match answer.status {
            202 => _ = acknowledged.insert(name),
            _ => refused = Some((name, answer)),
        }
        refused.is_some()
    });
    let (name, answer) = refused.expect("just seen");
    let answer = answer.refused(507, "InsufficientStorage");
    let message = answer.json()["error"]["message"].as_str().expect("text").to_owned();
    assert!(message.contains("disk is full") && message.contains("nothing was changed"), "{message}");
    assert!(message.contains("Free some space"), "{message}");
    // Reads go on, nothing is half-done, and a person is told the same.
    assert_eq!(jobs(&site), acknowledged);
    site.corro("group create -n another -l eastus").fails(1, &["disk is full", "Free some space"]);
    site.arm("HEAD", &format!("{}/resourceGroups/another", site.subscription()), Value::Null).is(404);

    drop(file);
    std::fs::remove_file(&filler).expect("it can be removed");
    wait_for("writes to work again", || submit(&site, &name).status == 202);
    acknowledged.insert(name);
    assert_eq!(jobs(&site), acknowledged);
    // Nobody writes now, so that the files are what a crash would leave.
    let copy = site.path().join("copy");
    std::fs::create_dir(&copy).expect("a directory");
    for name in ["corro.db", "corro.db-wal", "master.key"] {
        std::fs::copy(site.inner_data().join(name), copy.join(name)).expect("a copy");
    }
    let sound = site.corro(&format!("admin check --data {}", shown(&copy))).ok();
    assert!(sound.stdout.contains(&format!("({} jobs", acknowledged.len())), "{sound:?}");
}

#[test]
fn the_history_tells_what_happened_to_a_job_and_on_whose_behalf() {
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

    // By kind, in pages that fit together.
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
