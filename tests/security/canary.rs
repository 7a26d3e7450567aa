//! Planted secrets, searched for in every possible leak: responses, logs, the database, the files of nodes and jobs, command
//! lines, error texts.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::harness::fault_injection::{SHARE, processes_of};
use super::harness::{GROUP, IN_WORKSPACE, Site, wait_for};

const VARIABLE: &str = "canary-variable-5b1e";
const REGISTRY: &str = "canary-registry-a77c";
const PASSWORD: &str = "canary-password-03df";
const SETUP: &str = "canary-setup-task-77d0";
const FILE_SERVER: &str = "canary-file-server-9a1c";
const INSTRUMENTATION: &str = "canary-instrumentation-e52b";

/// Each secret with its name.
type Canaries = Vec<(String, Vec<u8>)>;

#[track_caller]
fn assert_silent(canaries: &Canaries, place: &str, bytes: &[u8]) {
    for (name, secret) in canaries {
        let found = bytes.windows(secret.len()).position(|window| window == secret);
        if let Some(at) = found {
            let around = String::from_utf8_lossy(&bytes[at.saturating_sub(200)..at]).into_owned();
            panic!("the {name} shows in {place}, after: {around}");
        }
    }
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

#[test]
fn planted_secrets_show_nowhere() {
    let mut site = Site::unstarted(&["--no-containers"]);
    site.start_server("up", "127.0.0.1:0", "debug");
    site.prepare(1);
    let profile = site.profile();
    let mut canaries: Canaries = [
        ("variable", VARIABLE),
        ("registry password", REGISTRY),
        ("admin password", PASSWORD),
        ("setup task's secret", SETUP),
        ("file server's password", FILE_SERVER),
        ("instrumentation key", INSTRUMENTATION),
    ]
    .map(|(name, secret)| (name.to_owned(), secret.as_bytes().to_vec()))
    .into();
    canaries.push(("administrator's secret".into(), profile["clientSecret"].as_str().expect("text").into()));
    for (idx, key) in site.account_keys().into_iter().enumerate() {
        canaries.push((format!("account key {}", idx + 1), key.into_bytes()));
    }
    let (node, _) = site.agents().remove(0);
    let dir = site.data().join("nodes").join(&node);
    canaries.push(("join token".into(), std::fs::read_to_string(dir.join("join-token")).expect("there").trim().into()));
    let credential: Value =
        serde_json::from_slice(&std::fs::read(dir.join("credential.json")).expect("there")).expect("JSON");
    canaries.push(("node's secret".into(), credential["secret"].as_str().expect("text").into()));

    // Each is shown once, in the response to its creation: a first password, a second, and a token.
    let made = site.corro("ad sp create-for-rbac -n canary").json();
    let again = site.corro("ad sp reset-credentials -n canary").json();
    for password in [&made["password"], &again["password"]] {
        canaries.push(("principal's password".into(), password.as_str().expect("text").into()));
    }
    canaries.push(("access token".into(), site.token().into_bytes()));

    // Planted through the API as a client would, in every field that takes a secret.
    let cluster = json!({"properties": {
        "vmSize": "STANDARD_D1", "scaleSettings": {"manual": {"targetNodeCount": 0}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": PASSWORD},
        "nodeSetup": {"mountVolumes": {"azureFileShares": [{
            "accountName": "mystorageaccount", "azureFileUrl": "https://mystorageaccount.file.core.windows.net/myshare",
            "credentials": {"accountKey": site.account_keys()[1]}, "relativeMountPath": "shared"
        }]},
        "setupTask": {"commandLine": "true", "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/shared",
            "secrets": [{"name": "TOKEN", "value": SETUP}]},
        "performanceCountersSettings": {"appInsightsReference": {
            "component": {"id": "insights"}, "instrumentationKey": INSTRUMENTATION
        }}}
    }});
    let file_server = json!({"properties": {
        "vmSize": "STANDARD_D1", "dataDisks": {"diskSizeInGB": 10, "diskCount": 1, "storageAccountType": "Standard_LRS"},
        "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": FILE_SERVER}}
    }});
    let response = site.arm("PUT", &format!("{}/fileServers/planted", site.workspace()), file_server);
    assert!(matches!(response.status, 200 | 202), "{response}");
    assert_silent(&canaries, "the response to a new file server", response.to_string().as_bytes());
    let response = site.arm("PUT", &format!("{}/clusters/planted", site.workspace()), cluster.clone()).is(202);
    assert_silent(&canaries, "the response to a new cluster", response.to_string().as_bytes());
    // It was accepted with all its fields, so that the key had a chance to leak.
    let shown = site.arm("GET", &format!("{}/clusters/planted", site.workspace()), Value::Null).is(200).to_string();
    assert!(shown.contains("appInsightsReference"), "{shown}");
    let wait = format!("echo ${{#TOKEN}} > {SHARE}/length; while [ ! -e {SHARE}/go ]; do sleep 0.1; done; echo bye");
    let mut job = site.job_json(
        1,
        json!({"customToolkitSettings": {"commandLine": wait}}),
        json!({
            "secrets": [{"name": "TOKEN", "value": VARIABLE}],
            "containerSettings": {"imageSourceRegistry": {"image": "i", "credentials": {"username": "u", "password": REGISTRY}}},
            "jobPreparation": {"commandLine": "echo preparing"}
        }),
    );
    let share = &mut job["properties"]["mountVolumes"]["azureFileShares"][0];
    share["accountName"] = json!("mystorageaccount");
    share["azureFileUrl"] = json!("https://mystorageaccount.file.core.windows.net/myshare");
    share["credentials"] = json!({"accountKey": site.account_keys()[0]});
    job["properties"]["cluster"] = json!({"id": format!("{}/clusters/nc6cluster", site.workspace())});
    let path = format!("{}/experiments/cifar/jobs/planted", site.workspace());
    site.arm("PUT", &path, job.clone()).is(202);
    wait_for("the job to have its secret", || {
        std::fs::read_to_string(site.share().join("length")).is_ok_and(|text| text.trim() == VARIABLE.len().to_string())
    });

    // While it runs: command lines, which `ps` shows to everyone on the machine.
    let mut running = processes_of(&node);
    assert!(!running.is_empty());
    running.extend(site.agents().into_iter().map(|(_, pid)| pid).chain([site.up_pid()]));
    for pid in running {
        assert_silent(&canaries, "a command line", &std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default());
    }
    assert_silent(
        &canaries,
        "the server's environment",
        &std::fs::read(format!("/proc/{}/environ", site.up_pid())).expect("it runs"),
    );

    // Responses to granted and to refused requests.
    answers_are_silent(&site, &canaries, &path, &job, &cluster);
    std::fs::write(site.share().join("go"), "").expect("written");
    assert_eq!(site.wait_for_end("planted")["executionState"], "succeeded");
    answers_are_silent(&site, &canaries, &path, &job, &cluster);

    // Stored files. The three files that hold a secret by design are left out.
    assert_silent(&canaries, "the server's log", site.up_log().as_bytes());
    let mut files = Vec::new();
    files_below(&site.data(), &mut files);
    let by_design = ["join-token", "credential.json", "master.key"];
    files.retain(|file| !by_design.iter().any(|name| file.ends_with(name)));
    for needed in ["corro.db", "corro.db-wal", "agent.log", "execution.log"] {
        assert!(files.iter().any(|file| file.ends_with(needed)), "{needed} is not among {files:?}");
    }
    for file in &files {
        assert_silent(&canaries, &file.display().to_string(), &std::fs::read(file).unwrap_or_default());
    }
    // And after shutdown, when the write-ahead log has been merged into the database.
    site.interrupt_server();
    files_below(&site.data(), &mut files);
    for file in files.iter().filter(|file| !by_design.iter().any(|name| file.ends_with(name))) {
        assert_silent(&canaries, &file.display().to_string(), &std::fs::read(file).unwrap_or_default());
    }
    assert_silent(&canaries, "the server's log", site.up_log().as_bytes());
}

/// Everything that can be shown or listed, and refusals of requests that hold the secrets.
fn answers_are_silent(site: &Site, canaries: &Canaries, path: &str, job: &Value, cluster: &Value) {
    let (subscription, workspace) = (site.subscription(), site.workspace());
    let group = format!("{subscription}/resourceGroups/{GROUP}");
    for shown in [
        "/subscriptions".to_owned(),
        format!("{subscription}/resourceGroups"),
        group.clone(),
        format!("{group}/providers/Microsoft.Storage/storageAccounts"),
        format!("{group}/providers/Microsoft.Storage/storageAccounts/mystorageaccount"),
        format!("{subscription}/providers/Microsoft.Storage/storageAccounts"),
        workspace.clone(),
        format!("{workspace}/clusters"),
        format!("{workspace}/clusters/planted"),
        format!("{workspace}/fileServers"),
        format!("{workspace}/fileServers/planted"),
        format!("{subscription}/providers/Corro/principals"),
        format!("{subscription}/providers/Corro/principals/canary"),
        format!("{subscription}/providers/Corro/history"),
        format!("{workspace}/experiments"),
        format!("{workspace}/experiments/cifar"),
        format!("{workspace}/experiments/cifar/jobs"),
        path.to_owned(),
    ] {
        assert_silent(canaries, &shown, site.arm("GET", &shown, Value::Null).is(200).to_string().as_bytes());
    }
    for line in ["cluster list", "cluster show -n planted", "job list -e cifar", "job show -e cifar -n planted"] {
        let shown = site.corro(&format!("batchai {line} {IN_WORKSPACE}")).ok();
        assert_silent(canaries, line, format!("{}{}", shown.stdout, shown.stderr).as_bytes());
    }
    let list = format!("{path}/listOutputFiles?api-version=2018-05-01&outputdirectoryid=stdouterr");
    assert_silent(canaries, "listOutputFiles", site.arm("POST", &list, Value::Null).is(200).to_string().as_bytes());
    // Repeated, conflicting, and wrong in a field beside the secret.
    assert_silent(canaries, "a repeated PUT", site.arm("PUT", path, job.clone()).is(200).to_string().as_bytes());
    type Change = fn(&mut Value);
    let changes: [(u16, Change); 4] = [
        (409, |job| job["properties"]["nodeCount"] = json!(2)),
        (400, |job| job["properties"]["nodeCount"] = json!(-1)),
        (400, |job| job["properties"]["nodeCount"] = json!("many")),
        (400, |job| job["properties"]["secrets"][0]["name"] = json!("not a name")),
    ];
    for (status, change) in changes {
        let mut changed = job.clone();
        change(&mut changed);
        let response = site.arm("PUT", path, changed).is(status);
        assert_silent(canaries, "a refusal", response.to_string().as_bytes());
    }
    let mut other = cluster.clone();
    other["properties"]["vmSize"] = json!("STANDARD_NC6");
    let response = site.arm("PUT", &format!("{workspace}/clusters/planted"), other).is(409);
    assert_silent(canaries, "a refusal", response.to_string().as_bytes());
}

/// A common mistake: a secret that is no text, or at the wrong position of its own object.
#[test]
fn refusals_do_not_repeat_a_secret_of_the_wrong_type() {
    let site = Site::start();
    site.prepare(0);
    let canaries: Canaries =
        vec![("number".into(), b"918273645546372".to_vec()), ("text".into(), b"canary-9d2f".to_vec())];
    let cluster = |password: Value| {
        json!({"properties": {
            "vmSize": "STANDARD_D1", "scaleSettings": {"manual": {"targetNodeCount": 0}},
            "userAccountSettings": {"adminUserName": "me", "adminUserPassword": password}
        }})
    };
    let job = |part: Value| {
        let mut job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": "true"}}), part);
        job["properties"]["cluster"] = json!({"id": format!("{}/clusters/nc6cluster", site.workspace())});
        job
    };
    let registry = |credentials: Value| json!({"containerSettings": {"imageSourceRegistry": {"image": "i", "credentials": credentials}}});
    let mount = |credentials: Value| {
        json!({"mountVolumes": {"azureFileShares": [{
            "accountName": "mystorageaccount", "azureFileUrl": "https://mystorageaccount.file.core.windows.net/myshare",
            "credentials": credentials, "relativeMountPath": "myshare"
        }]}})
    };
    let bodies = [
        ("clusters/c1", cluster(json!(918273645546372u64))),
        ("clusters/c2", cluster(json!(["canary-9d2f"]))),
        ("experiments/cifar/jobs/j1", job(json!({"secrets": [{"name": "TOKEN", "value": 918273645546372u64}]}))),
        ("experiments/cifar/jobs/j2", job(json!({"secrets": ["canary-9d2f"]}))),
        ("experiments/cifar/jobs/j3", job(json!({"secrets": {"TOKEN": "canary-9d2f"}}))),
        ("experiments/cifar/jobs/j4", job(registry(json!({"username": "u", "password": 918273645546372u64})))),
        ("experiments/cifar/jobs/j5", job(registry(json!("canary-9d2f")))),
        ("experiments/cifar/jobs/j6", job(mount(json!({"accountKey": 918273645546372u64})))),
        ("experiments/cifar/jobs/j7", job(mount(json!("canary-9d2f")))),
    ];
    for (name, body) in bodies {
        let response = site.arm("PUT", &format!("{}/{name}", site.workspace()), body).is(400);
        // The parser's own message, "invalid type: integer `…`", would include the value.
        assert_silent(&canaries, &format!("the refusal of {name}"), response.to_string().as_bytes());
    }
}

/// The keys of TLS, and the token that lets machines join, on a server with both.
#[test]
fn keys_of_the_server_itself_show_nowhere() {
    use std::os::unix::fs::PermissionsExt;
    let mut site = Site::unstarted(&["--no-containers", "--tls"]);
    site.start_server("server", "127.0.0.1:0", "debug");
    let read = |name: &str| std::fs::read_to_string(site.data().join(name)).expect("the server wrote it");
    let key = read("tls/ca.key");
    let line = key.lines().nth(1).expect("a key has lines").to_owned();
    let canaries: Canaries = vec![
        ("authority's key".into(), line.into_bytes()),
        ("join token".into(), read("join-token").trim().into()),
        ("administrator's secret".into(), site.profile()["clientSecret"].as_str().expect("text").into()),
    ];
    for name in ["tls/ca.key", "join-token"] {
        let mode = std::fs::metadata(site.data().join(name)).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    site.corro("group create -n g -l eastus").ok();
    let agent = site
        .command("corro")
        .args(["agent", "--server", &site.url, "--data", "n", "--ca"])
        .arg(site.data().join("tls/ca.key"))
        .arg("--join-token-file")
        .arg(site.data().join("join-token"))
        .output();
    let agent = agent.expect("it runs");
    // A common mistake: a key in place of a certificate.
    assert!(!agent.status.success());
    assert_silent(&canaries, "the agent's refusal", &agent.stderr);
    let mut files = Vec::new();
    files_below(&site.data(), &mut files);
    files.retain(|file| !["ca.key", "join-token", "master.key"].iter().any(|name| file.ends_with(name)));
    assert!(files.iter().any(|file| file.ends_with("corro.db-wal")), "{files:?}");
    for file in &files {
        assert_silent(&canaries, &file.display().to_string(), &std::fs::read(file).unwrap_or_default());
    }
    assert_silent(&canaries, "the server's log", site.up_log().as_bytes());
    let cmdline = std::fs::read(format!("/proc/{}/cmdline", site.up_pid())).expect("it runs");
    assert_silent(&canaries, "the command line", &cmdline);
}
