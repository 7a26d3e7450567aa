//! Isolation between jobs on one machine: attempts to read each other's and the server's secrets, directories and processes.
//! Runs as the current user and, if that is root, again as an unprivileged user. Also covers redaction of a job's own secrets
//! in its output, and the performance counters that clusters request.

mod harness;
#[path = "isolation/planted.rs"]
mod planted;

use std::fs;
use std::path::Path;
use std::process::Command;

use corro_test_support::skip;

use harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

/// A job of one node that runs `command` with a secret in `HIDDEN`.
fn job(site: &Site, command: &str, secret: &str) -> Value {
    let more = json!({"secrets": [{"name": "HIDDEN", "value": secret}]});
    site.job_json(1, json!({"customToolkitSettings": {"commandLine": command}}), more)
}

/// Attempts of a curious job; `{data}` and `{config}` are the server's directories.
const CURIOUS: &str = r#"
for p in /proc/[0-9]*; do tr '\0' '\n' <$p/environ; ls $p/cwd/ $p/fd; done
cat {data}/master.key {data}/administrator {data}/corro.db {config}/profile.json {data}/profile.json
cat {data}/nodes/*/credential.json {data}/nodes/*/join-token {data}/nodes/*/agent.log
find {data} {config} {tmp} -type f -exec cat {} +
umount {data}; umount -l {data}; cat {data}/master.key
echo "mine: $HOME $TMPDIR $HIDDEN"; mktemp -d; echo kept >$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/from-curious
"#;

#[test]
fn a_job_cannot_read_what_is_anothers_or_the_servers() {
    let site = Site::start();
    site.prepare(2);
    let release = site.path().join("release");
    // Both mount the share with the logs, which contain the command line, so the canary is not in that.
    let quiet = format!(
        "for d in $HOME $TMPDIR $AZ_BATCHAI_JOB_TEMP $AZ_BATCHAI_SHARED_JOB_TEMP; do echo file-canary-$((70+1)) >$d/file; done; \
         echo ready; until test -e {}; do sleep 0.1; done",
        release.display()
    );
    site.submit("quiet", &job(&site, &quiet, "variable-canary-72")).ok();
    wait_for("the quiet job to have left its files", || site.log("quiet", "stdout.txt") == "ready\n");

    let own_tmp = std::env::temp_dir().join(format!("corro-{}", rustix::process::geteuid().as_raw()));
    let show = |path: &Path| path.display().to_string();
    let command = CURIOUS
        .replace("{data}", &show(&site.data()))
        .replace("{config}", &show(&site.path().join("config")))
        .replace("{tmp}", &show(&own_tmp));
    site.submit("curious", &job(&site, &command, "own-canary-73")).ok();
    let ended = site.wait_for_end("curious");
    assert_eq!(ended["executionState"], "succeeded", "{ended}");
    let (stdout, stderr) = (site.log("curious", "stdout.txt"), site.log("curious", "stderr.txt"));
    let execution = site.log("curious", "execution.log");
    assert!(execution.contains("Isolation: own process group and directories, temporary files in "), "{execution}");
    if execution.contains("NO namespaces") {
        skip::unsupported_machine(format_args!("this machine allows no namespaces: {execution}"));
        return;
    }
    assert!(execution.contains("user and mount namespaces of its own"), "{execution}");
    for canary in
        ["file-canary-71", "variable-canary-72", "CORRO_CONFIG_DIR=", "client_secret", "clientSecret", "SQLite"]
    {
        assert!(!stdout.contains(canary), "{canary} was read: {stdout}");
    }
    let key = fs::read(site.data().join("master.key")).expect("it is there");
    assert!(!stdout.contains(&*String::from_utf8_lossy(&key)), "the master key was read");
    assert!(stderr.contains("Permission denied") && stderr.contains("No such file"), "{stderr}");
    // A job has its own directories, temporary files and share; and its secret, which is redacted when printed.
    assert!(stdout.contains(&format!("{}/", own_tmp.display())) && stdout.contains(" ***\n"), "{stdout}");
    assert!(!stdout.contains("own-canary-73"), "{stdout}");
    let kept = site.share().join("cifar/from-curious");
    assert_eq!(fs::read_to_string(&kept).expect("shares are written as before"), "kept\n");
    fs::remove_file(kept).expect("and what is written is the server's");

    fs::write(&release, "").expect("a file");
    assert_eq!(site.wait_for_end("quiet")["executionState"], "succeeded");
    // A job's temporary files are deleted with it.
    wait_for("the temporary files to go", || count_files(&own_tmp, "file") == 0);
}

fn count_files(under: &Path, name: &str) -> usize {
    let nodes = fs::read_dir(under).into_iter().flatten().flatten();
    nodes.filter(|node| node.path().join(name).exists()).count()
}

/// Temporary directories of this site's nodes outside of their own directories.
fn places_outside(site: &Site) -> Vec<String> {
    let own_tmp = std::env::temp_dir().join(format!("corro-{}", rustix::process::geteuid().as_raw()));
    let data = site.data().canonicalize().expect("a path");
    let of_this_site = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|node| node.starts_with(&data));
    let links = fs::read_dir(own_tmp).into_iter().flatten().flatten().filter(of_this_site);
    links.filter_map(|link| Some(link.file_name().to_str()?.trim_end_matches(".node").to_owned())).collect()
}

fn control_groups(name: &str) -> usize {
    let found = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", &format!("corro-{name}")]).output();
    String::from_utf8_lossy(&found.expect("find is everywhere").stdout).lines().count()
}

#[test]
fn a_killed_agent_leaves_nothing_outside_of_its_directory() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("j", 1, "echo here >$TMPDIR/file; echo ready; exec sleep 600");
    wait_for("the job to run", || site.log("j", "stdout.txt") == "ready\n");
    let places = places_outside(&site);
    assert_eq!(places.len(), 1, "{places:?}");
    let (_, agent) = site.agents()[0].clone();
    harness::signal(agent, rustix::process::Signal::KILL);
    wait_for("everything of the dead node to go", || {
        !places_outside(&site).contains(&places[0]) && control_groups(&places[0]) == 0
    });
}

#[test]
fn the_operator_says_how_far_jobs_are_kept_apart() {
    for (mode, says) in
        [("off", "the operator started this node with --isolation off"), ("strict", "namespaces of its own")]
    {
        let site = Site::start_with(&["--no-containers", "--isolation", mode]);
        site.prepare(1);
        // Also with more than one principal: the operator's choice holds.
        site.corro("ad sp create-for-rbac -n bob --role Reader").ok();
        site.submit_custom("j", 1, "cat /proc/self/uid_map; ls $AZ_BATCHAI_JOB_TEMP");
        let ended = site.wait_for_end("j");
        if mode == "strict" && ended["executionInfo"]["errors"][0]["code"] == "IsolationFailed" {
            skip::unsupported_machine(format_args!(
                "this machine allows no namespaces, and strict refuses the job: {ended}"
            ));
            continue;
        }
        assert_eq!(ended["executionState"], "succeeded", "{ended}");
        let execution = site.log("j", "execution.log");
        assert!(execution.contains(says), "{mode}: {execution}");
    }
}

#[test]
fn secrets_are_not_in_logs_or_errors() {
    let site = Site::start();
    site.prepare(1);
    let secret = "multi line\nsecret-canary-81\nend";
    let command = "printf 'a secret-can'; sleep 0.1; printf 'ary-81 b\\n'; env | grep -a canary; echo \"[$HIDDEN]\" >&2; \
        echo it was secret-canary-81 >&2; : secret-canary-81 on the command line; exit 3";
    site.submit("loud", &job(&site, command, secret)).ok();
    let ended = site.wait_for_end("loud");
    assert_eq!(ended["executionState"], "failed", "{ended}");
    let logs: Vec<String> = ["stdout.txt", "stderr.txt", "execution.log"].map(|name| site.log("loud", name)).into();
    assert_eq!(logs[0], "a *** b\n***\n", "two reads, and a line of the environment");
    assert_eq!(logs[1], "[***]\nit was ***\n");
    assert!(logs[2].contains(": *** on the command line"), "{}", logs[2]);
    let why = site.corro(&format!("batchai job show {IN_WORKSPACE} -e cifar -n loud")).ok().stdout;
    assert!(why.contains("it was ***"), "{why}");
    // The command line belongs to the user and is shown unchanged; nothing else is.
    let shown = ended["executionInfo"].to_string() + &logs.concat();
    assert!(!shown.contains("canary-81"), "{shown}");
}

#[test]
fn counters_are_written_for_clusters_that_ask() {
    let site = Site::start();
    site.prepare(0);
    let cluster = json!({"properties": {
        "vmSize": "Standard_D1", "scaleSettings": {"manual": {"targetNodeCount": 1}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "not-a-secret"},
        "nodeSetup": {"performanceCountersSettings": {"appInsightsReference": {
            "component": {"id": "/subscriptions/s/insights"}, "instrumentationKey": "canary-91-key"
        }}}
    }});
    site.write("counted.json", cluster.to_string());
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n counted -f counted.json")).ok();
    let job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": "sleep 0.3"}}), json!({}));
    site.write("c.json", job.to_string());
    let create = format!("batchai job create {IN_WORKSPACE} -e cifar -c counted -n c -f c.json");
    site.corro(&format!("{create} --storage-account-name mystorageaccount")).ok();
    assert_eq!(site.wait_for_end("c")["executionState"], "succeeded");
    assert!(site.file_names("c").contains(&"counters".to_owned()), "{:?}", site.file_names("c"));
    let listed = format!("batchai job file list {IN_WORKSPACE} -e cifar -j c -d stdouterr -p counters");
    let listed = site.corro(&listed).json();
    let name = listed[0]["name"].as_str().expect("a table").to_owned();
    assert!(name.ends_with(".csv"), "{listed}");
    let segment = site.job("c")["jobOutputDirectoryPathSegment"].as_str().expect("text").to_owned();
    let table = site.share().join("cifar").join(segment).join("stdouterr/counters").join(name);
    let table = fs::read_to_string(table).expect("it is on the share");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.len() >= 2 && rows.iter().all(|row| row.len() == rows[0].len()), "{table}");
    let column =
        |name: &str| rows[0].iter().position(|column| *column == name).unwrap_or_else(|| panic!("{name}: {table}"));
    assert!(rows[1][column("memory_total_bytes")].parse::<u64>().is_ok_and(|bytes| bytes > 1 << 20), "{table}");
    assert!(rows[1][column("time")].ends_with('Z') && rows[1][column("cpu_percent")].parse::<f64>().is_ok(), "{table}");
    // Clusters that do not request counters get none.
    assert!(!table.contains("canary"), "{table}");
}

/// Attempts beyond reading leftovers of others: each line prints a word when it succeeds. `{marked}` is a pattern that finds
/// the command line of the other job and not this one's.
const TRIALS: &str = r#"
for p in /proc/[0-9]*; do
  grep -aq '{marked}' $p/cmdline 2>/dev/null || continue
  echo SEES-COMMAND-LINE
  head -c 1 $p/maps >/dev/null && echo READS-MEMORY-MAP
  head -c 1 $p/environ >/dev/null && echo READS-VARIABLES
  ls $p/root/ >/dev/null && echo ENTERS-ROOT
  kill -0 ${p#/proc/} && echo MAY-SIGNAL
done
cat {data}/shares/mystorageaccount/other/file && echo READS-OTHER-SHARE
echo x >{data}/shares/mystorageaccount/other/planted && echo WRITES-OTHER-SHARE
cat {data}/file-servers/planted && echo READS-FILE-SERVERS
mount -t tmpfs tmpfs $TMPDIR && echo MOUNTS
cat {outside} && echo READS-OUTSIDE
cat /etc/shadow >/dev/null && echo READS-ROOTS-FILES
v=$(cat /proc/sys/kernel/hostname); (echo "$v" >/proc/sys/kernel/hostname) && echo WRITES-SETTINGS
cat {memory} && echo READS-SHARED-MEMORY
(: >$AZ_BATCHAI_MOUNT_ROOT/left) && echo LEAVES-IN-MOUNT-ROOT
chmod 000 $AZ_BATCHAI_MOUNT_ROOT && echo CLOSES-MOUNT-ROOT
echo -n >/dev/tcp/{address} && echo REACHES-LOOPBACK
exit 0
"#;

/// The lines of `docs/src/operators/isolation.md` that are not in the first test, isolated or not.
#[test]
fn what_is_kept_apart_and_what_is_not_is_as_the_page_says() {
    let site = Site::start_with(&["--no-containers", "--isolation", "strict"]);
    site.prepare(2);
    site.corro("storage share create -n other --account-name mystorageaccount").ok();
    fs::write(site.data().join("shares/mystorageaccount/other/file"), "canary").expect("a file");
    fs::write(site.data().join("file-servers/planted"), "canary").expect("a file");
    let (release, outside) = (site.path().join("release"), site.path().join("outside"));
    let memory = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    fs::write(&outside, "of the same account\n").expect("a file");
    let quiet = format!(": beside-them; echo ready; until test -e {}; do sleep 0.1; done", release.display());
    site.submit_custom("quiet", 1, &quiet);
    wait_for("the quiet job to run", || !site.job("quiet")["executionState"].eq("queued"));
    if site.job("quiet")["executionInfo"]["errors"][0]["code"] == "IsolationFailed" {
        skip::unsupported_machine("this machine allows no namespaces, and strict refuses the job");
        return;
    }
    wait_for("the quiet job to be ready", || site.log("quiet", "stdout.txt") == "ready\n");
    let command = TRIALS
        .replace("{marked}", "beside-the[m]")
        .replace("{data}", &site.data().display().to_string())
        .replace("{outside}", &outside.display().to_string())
        .replace("{memory}", &memory.path().display().to_string())
        .replace("{address}", &site.address().replace(':', "/"));
    site.submit_custom("curious", 1, &command);
    let ended = site.wait_for_end("curious");
    assert_eq!(ended["executionState"], "succeeded", "{ended}");
    let (stdout, stderr) = (site.log("curious", "stdout.txt"), site.log("curious", "stderr.txt"));
    let kept_apart = [
        "READS-MEMORY-MAP",
        "READS-VARIABLES",
        "ENTERS-ROOT",
        "READS-OTHER-SHARE",
        "WRITES-OTHER-SHARE",
        "READS-FILE-SERVERS",
        "MOUNTS",
        "WRITES-SETTINGS",
        "LEAVES-IN-MOUNT-ROOT",
        "CLOSES-MOUNT-ROOT",
    ];
    for trial in kept_apart {
        assert!(!stdout.contains(trial), "{trial}: {stdout}\n{stderr}");
    }
    for trial in ["SEES-COMMAND-LINE", "MAY-SIGNAL", "READS-OUTSIDE", "READS-SHARED-MEMORY", "REACHES-LOOPBACK"] {
        assert!(stdout.contains(trial), "the page says that this is possible: {trial}: {stdout}\n{stderr}");
    }
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(stdout.contains("READS-ROOTS-FILES"), is_root, "{stdout}\n{stderr}");
    fs::write(&release, "").expect("a file");
    assert_eq!(site.wait_for_end("quiet")["executionState"], "succeeded");
}

/// Without `--isolation` the number of principals decides, when a job starts.
#[test]
fn from_the_second_principal_on_jobs_are_isolated_strictly() {
    let site = Site::start();
    site.prepare(1);
    let outcome_of = |name: &str| {
        site.submit_custom(name, 1, "true");
        let ended = site.wait_for_end(name);
        let refused = ended["executionInfo"]["errors"][0]["code"] == "IsolationFailed";
        (refused, site.log(name, "execution.log"))
    };
    let (refused, log) = outcome_of("alone");
    let possible = !log.contains("NO namespaces");
    assert!(!refused, "{log}");
    assert!(!possible || log.contains("--isolation auto, as the server has one principal"), "{log}");
    let strictly = "jobs that start from now on run with --isolation strict";
    let second = site.corro("ad sp create-for-rbac -n bob --role Reader").ok();
    assert!(second.stderr.contains(strictly), "{}", second.stderr);
    let third = site.corro("ad sp create-for-rbac -n eve --role Reader").ok();
    assert!(!third.stderr.contains(strictly), "said once: {}", third.stderr);
    assert!(site.up_log().contains("there is more than one principal now"), "{}", site.up_log());
    let (refused, log) = outcome_of("beside-others");
    assert_eq!(refused, !possible, "{log}");
    assert!(log.contains("--isolation strict, as the server has more than one principal"), "{log}");
}

/// On a machine without user namespaces.
#[test]
fn jobs_that_cannot_be_isolated_run_for_one_principal_or_by_the_operators_choice_only() {
    for (choice, refused) in [(None, true), (Some("auto"), false), (Some("strict"), true)] {
        let words = choice.map(|mode| ["--isolation", mode]);
        let words: Vec<&str> = ["--no-containers"].into_iter().chain(words.into_iter().flatten()).collect();
        let Some(site) = Site::start_without_namespaces(&words) else {
            skip::unsupported_machine("no namespaces can be forbidden here");
            return;
        };
        site.prepare(1);
        if choice.is_none() {
            site.submit_custom("alone", 1, "true");
            let ended = site.wait_for_end("alone");
            assert_eq!(ended["executionState"], "succeeded", "{ended}");
            assert!(site.log("alone", "execution.log").contains("NO namespaces of its own"));
        }
        site.corro("ad sp create-for-rbac -n bob --role Reader").ok();
        site.submit_custom("beside", 1, "true");
        let ended = site.wait_for_end("beside");
        let error = &ended["executionInfo"]["errors"][0];
        assert_eq!(error["code"] == "IsolationFailed", refused, "{choice:?}: {ended}");
        let because =
            if choice.is_none() { "more than one principal" } else { "the operator chose --isolation strict" };
        let text = error.to_string();
        assert!(!refused || text.contains(because) && text.contains("with --isolation auto"), "{text}");
        if choice == Some("auto") {
            wait_for("the server's log", || site.up_log().contains("jobs are isolated as --isolation says"));
        }
    }
}

/// Claims of `docs/src/operators/isolation.md`, tested again as an unprivileged user.
#[test]
fn an_ordinary_user_has_the_same_walls() {
    harness::ordinary_user::rerun_tests(&[
        "a_job_cannot_read_what_is_anothers_or_the_servers",
        "what_is_kept_apart_and_what_is_not_is_as_the_page_says",
        "from_the_second_principal_on_jobs_are_isolated_strictly",
        "the_operator_says_how_far_jobs_are_kept_apart",
        "jobs_that_cannot_be_isolated_run_for_one_principal_or_by_the_operators_choice_only",
        "a_killed_agent_leaves_nothing_outside_of_its_directory",
        "secrets_are_not_in_logs_or_errors",
        "planted::output_is_not_written_through_links_that_a_job_plants",
        "planted::output_outside_of_volumes_is_refused_when_it_is_submitted",
        "planted::a_directory_of_a_file_server_does_not_lead_to_others",
        "planted::a_jobs_mount_command_does_not_run_beside_its_isolation",
        "planted::under_strict_isolation_setup_tasks_and_logins_see_what_jobs_see",
    ]);
}
