//! Jobs in containers, on real engines that the tests start: the same paths and variables inside, one container for preparation
//! and ranks, limits, termination, and no leftovers after any kill.

mod harness;

#[path = "containers/engine.rs"]
mod engine;
#[path = "containers/exec.rs"]
mod exec;
#[path = "containers/registry.rs"]
mod registry;

use engine::{EMPTY, Engine, IMAGE, WITHOUT_PATH};
use harness::fault_injection::{SHARE, wait_until_dead, waiting_rank};
use harness::{IN_WORKSPACE, Site, signal, wait_for};
use registry::Registry;
use rustix::process::Signal;
use serde_json::{Value, json};

#[test]
fn jobs_run_in_containers_of_docker() {
    let Some(engine) = Engine::docker() else { return };
    let mut site = engine.site(&[]);
    site.prepare(2);
    small_cluster(&site);
    a_gang_shares_paths_variables_and_its_container(&engine, &site);
    packages_are_installed_in_the_container(&site);
    a_directory_of_a_file_server_does_not_lead_to_others(&site);
    check_end_states(&engine, &site);
    exec::commands_run_beside_a_job_in_its_container(&site);
    exec::nodes_of_a_job_reach_each_other(&site);
    memory_is_bounded_and_said_so(&engine, &site);
    images_are_pulled_with_credentials_or_said_why_not(&engine, &site);
    a_terminated_job_is_asked_first(&engine, &site);
    a_killed_agent_leaves_no_container(&engine, &site);
    a_killed_server_leaves_the_job_and_then_no_container(&engine, &mut site);
}

#[test]
fn jobs_run_in_containers_of_podman() {
    let Some(engine) = Engine::podman() else { return };
    let site = engine.site(&[]);
    site.prepare(2);
    small_cluster(&site);
    a_gang_shares_paths_variables_and_its_container(&engine, &site);
    packages_are_installed_in_the_container(&site);
    check_end_states(&engine, &site);
    exec::commands_run_beside_a_job_in_its_container(&site);
    exec::nodes_of_a_job_reach_each_other(&site);
    memory_is_bounded_and_said_so(&engine, &site);
    a_terminated_job_is_asked_first(&engine, &site);
    a_killed_agent_leaves_no_container(&engine, &site);
}

/// A cluster of one node with 1 core and 1 GiB.
fn small_cluster(site: &Site) {
    let size = "--vm-size Standard_B1s --user-name me --password not-a-secret --target 1";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n small {size}")).ok();
}

fn in_image(image: &str) -> Value {
    json!({"imageSourceRegistry": {"image": image}})
}

/// Submits a job in a container of our image, on the cluster of one small node or on the other one.
fn submit(site: &Site, name: &str, nodes: usize, cluster: &str, settings: Value, mut more: Value) {
    if more["containerSettings"].is_null() {
        more["containerSettings"] = in_image(IMAGE);
    }
    let file = format!("{name}.json");
    site.write(&file, site.job_json(nodes, settings, more).to_string());
    site.corro(&format!(
        "batchai job create {IN_WORKSPACE} -e cifar -c {cluster} -n {name} -f {file} --storage-account-name mystorageaccount"
    ))
    .ok();
}

fn ranks(command: &str) -> Value {
    json!({"customMpiSettings": {"commandLine": command}})
}

fn error_of(job: &Value) -> &Value {
    &job["executionInfo"]["errors"][0]
}

fn detail<'a>(error: &'a Value, name: &str) -> &'a str {
    let details = error["details"].as_array().expect("details").iter();
    details.filter(|detail| detail["name"] == name).find_map(|detail| detail["value"].as_str()).unwrap_or_default()
}

fn why(site: &Site, job: &str) -> String {
    site.corro(&format!("job why {job} {IN_WORKSPACE} -e cifar")).ok().stdout
}

fn a_gang_shares_paths_variables_and_its_container(engine: &Engine, site: &Site) {
    let preparation = "echo prepared > /left-by-preparation; echo export FROM_BASHRC=yes >> ~/.bashrc";
    let meet = "echo $RANK > $AZ_BATCHAI_SHARED_JOB_TEMP/rank-$RANK; other=$AZ_BATCHAI_SHARED_JOB_TEMP/rank-$((1 - RANK)); \
                while [ ! -e $other ]; do sleep 0.05; done";
    let tell = "echo \"$RANK of $WORLD_SIZE $(cat /left-by-preparation) $GREETING $TOKEN $IN_IMAGE $FROM_BASHRC $(id -u) $PWD\" \
                > $AZ_BATCHAI_OUTPUT_MODEL/rank-$RANK; echo \"rank $RANK says so\"; echo \"rank $RANK errs\" >&2";
    let more = json!({
        "jobPreparation": {"commandLine": preparation},
        "environmentVariables": [{"name": "GREETING", "value": "hello"}],
        "secrets": [{"name": "TOKEN", "value": "canary-token"}],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare", "pathSuffix": "model"}],
    });
    submit(site, "gang", 2, "nc6cluster", ranks(&format!("{meet}; {tell}")), more);
    let job = site.wait_for_end("gang");
    assert_eq!(job["executionState"], "succeeded", "{job:#}");
    let segment = job["jobOutputDirectoryPathSegment"].as_str().expect("text");
    for rank in 0..2 {
        let file = site.share().join(segment).join("outputs/model").join(format!("rank-{rank}"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let start =
            format!("{rank} of 2 prepared hello canary-token yes yes 0 {}", site.data().join("nodes").display());
        assert!(text.starts_with(&start) && text.ends_with("/jobs/batchaidev/cifar/gang\n"), "{text}");
        assert!(site.job_file("gang", "stdout.txt").contains(&format!("rank {rank} says so\n")));
        assert!(site.job_file("gang", "stderr.txt").contains(&format!("rank {rank} errs\n")));
    }
    for (node, _) in site.agents().iter().filter(|(node, _)| node_of(site, "nc6cluster", node)) {
        let log = site.job_file("gang", &format!("execution-{node}.log"));
        for said in [engine.kind, "Started container ", "Removed container ", "is sha256:"] {
            assert!(log.contains(said), "{said} in {log}");
        }
        assert!(!log.contains("canary"), "{log}");
    }
    assert_eq!(engine.containers(), [""; 0]);
}

/// The image has no Python: a script takes its place and prints its arguments.
fn packages_are_installed_in_the_container(site: &Site) {
    let project = site.share().join("cifar/project");
    std::fs::create_dir_all(&project).expect("the share can be written");
    let python = "#!/bin/sh\n[ \"$1 $2\" = '-m pip' ] || exit 0\necho \"$PIP_BREAK_SYSTEM_PACKAGES in $PWD: $*\"\n";
    std::fs::write(project.join("python"), python).expect("a program");
    std::fs::set_permissions(project.join("python"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("a program");
    let path = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/project";
    let more = |variables: Value, directory: &str| {
        json!({
            "workingDirectory": directory,
            "pythonEnvironment": {"requirementsFile": format!("{path}/requirements.txt")},
            "environmentVariables": variables,
        })
    };
    let variables = json!([{"name": "PATH", "value": format!("{path}:$PATH")}]);
    submit(site, "packages", 1, "nc6cluster", ranks("echo starts in ${PWD##*/}"), more(variables, path));
    let job = site.wait_for_end("packages");
    assert_eq!(job["executionState"], "succeeded", "{job:#}");
    assert_eq!(site.job_file("packages", "stdout.txt"), "starts in project\n");
    let installed = site.job_file("packages", "stdout-job_prep.txt");
    assert!(installed.starts_with("1 in ") && installed.contains("/cifar/project: -m pip install "), "{installed}");
    assert!(installed.trim_end().ends_with("/cifar/project/requirements.txt"), "{installed}");

    for (name, directory, code, info) in [
        ("pythonless", path, "PythonEnvironmentFailed", "there is no Python in PATH"),
        (
            "lost",
            "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/none",
            "WorkingDirectoryFailed",
            "the container has no such directory",
        ),
    ] {
        submit(site, name, 1, "nc6cluster", ranks("true"), more(json!([]), directory));
        let job = site.wait_for_end(name);
        let error = error_of(&job);
        assert!(error["code"] == code && error.to_string().contains(info), "{job:#}");
    }
}

fn a_directory_of_a_file_server_does_not_lead_to_others(site: &Site) {
    let shape = "--vm-size Standard_D1 --disk-count 1 --disk-size 10 --storage-sku Standard_LRS --user-name me --password x-y-z";
    let made = site.corro(&format!("batchai file-server create {IN_WORKSPACE} -n nfs {shape}")).ok().json();
    let mounted = |inside: &str| {
        let server = json!({"fileServer": {"id": made["id"]}, "sourceDirectory": inside, "relativeMountPath": "nfs"});
        let mut volumes = site.job_json(1, json!({}), json!({}))["properties"]["mountVolumes"].clone();
        volumes["fileServers"] = json!([server]);
        json!({"mountVolumes": volumes})
    };
    let command = |line: &str| json!({"customToolkitSettings": {"commandLine": format!("cd $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs; {line}")}});
    submit(site, "first", 1, "nc6cluster", command("true"), mounted(""));
    assert_eq!(site.wait_for_end("first")["executionState"], "succeeded");
    // The image has no programs to create them with.
    let all = std::fs::read_dir(site.data().join("file-servers/fileservers")).expect("file servers");
    let own = all.flatten().next().expect("its directory").path();
    std::fs::create_dir(own.join("real")).expect("a directory");
    std::fs::write(own.join("real/file"), "seen\n").expect("a file");
    std::os::unix::fs::symlink("..", own.join("up")).expect("a link");
    submit(site, "climbs", 1, "nc6cluster", command("ls"), mounted("up"));
    let climbs = site.wait_for_end("climbs");
    assert_eq!(error_of(&climbs)["code"], "FileServerMountError", "{climbs:#}");
    submit(site, "stays", 1, "nc6cluster", command("cat file"), mounted("real"));
    let stays = site.wait_for_end("stays");
    assert_eq!(stays["executionState"], "succeeded", "{stays:#}");
    assert_eq!(site.job_file("stays", "stdout.txt"), "seen\n");
}

/// Whether the node is one of the cluster's.
fn node_of(site: &Site, cluster: &str, node: &str) -> bool {
    let nodes = site.corro(&format!("batchai cluster node list {IN_WORKSPACE} -c {cluster}")).json();
    nodes.as_array().expect("a list").iter().any(|one| one["nodeId"] == node)
}

fn check_end_states(engine: &Engine, site: &Site) {
    // Its background process holds its output open, and must not delay its end.
    let command = "sleep 1000 & echo out; echo err >&2; exit 7";
    submit(site, "seven", 1, "nc6cluster", json!({"customToolkitSettings": {"commandLine": command}}), json!({}));
    let job = site.wait_for_end("seven");
    assert_eq!(job["executionInfo"]["exitCode"], 7, "{job:#}");
    assert_eq!(detail(error_of(&job), "StdErr"), "err", "{job:#}");
    assert_eq!(site.job_file("seven", "stdout.txt"), "out\n");
    assert_eq!(site.job_file("seven", "stderr.txt"), "err\n");

    let more = json!({"jobPreparation": {"commandLine": "echo no >&2; exit 3"}});
    submit(site, "unprepared", 1, "nc6cluster", ranks("touch /never"), more);
    let job = site.wait_for_end("unprepared");
    assert_eq!(error_of(&job)["code"], "JobPreparationFailed", "{job:#}");
    assert_eq!(job["executionInfo"]["exitCode"], 3, "{job:#}");

    submit(site, "shellless", 1, "nc6cluster", ranks("true"), json!({"containerSettings": in_image(EMPTY)}));
    let job = site.wait_for_end("shellless");
    assert_eq!(error_of(&job)["code"], "FailedStartingContainer", "{job:#}");
    assert_eq!(detail(error_of(&job), "Reason"), "NoShell", "{job:#}");
    assert!(why(site, "shellless").contains("use an image with /bin/sh"));
    assert_eq!(engine.containers(), [""; 0]);
}

fn memory_is_bounded_and_said_so(engine: &Engine, site: &Site) {
    let more = json!({"containerSettings": {"shmSize": "48m", "imageSourceRegistry": {"image": IMAGE}}});
    let command = format!("df -k /dev/shm; {}", waiting_rank(""));
    submit(site, "bounded", 1, "small", ranks(&command), more);
    site.wait_for_starts(1);
    let id = engine.containers().pop().expect("a container");
    let settings = engine.checked_output(&["inspect", &id]);
    let settings: Value = serde_json::from_str(&settings).expect("JSON");
    let host = &settings[0]["HostConfig"];
    assert_eq!(host["Memory"], 1 << 30, "{host:#}");
    assert_eq!(host["NetworkMode"], "host", "{host:#}");
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        assert_eq!(host["NanoCpus"], 1_000_000_000, "{host:#}");
    }
    forget_starts(site);
    let job = site.wait_for_end("bounded");
    assert_eq!(job["executionState"], "succeeded", "{job:#}");
    let shm = site.job_file("bounded", "stdout.txt");
    assert!(shm.split_whitespace().any(|word| word == (48 * 1024).to_string()), "{shm}");

    // It buffers until a line ends, which never happens.
    submit(site, "greedy", 1, "small", ranks("tail /dev/zero"), json!({}));
    let job = site.wait_for_end("greedy");
    let error = error_of(&job);
    assert_eq!((&error["code"], &job["executionInfo"]["exitCode"]), (&json!("JobFailed"), &json!(137)), "{job:#}");
    let words = detail(error, "OutOfMemory");
    assert!(words.contains("1 GiB of memory (a node of size STANDARD_B1S)"), "{job:#}");
    assert!(why(site, "greedy").contains("a VM size with more memory"));
    assert!(site.job_file("greedy", "execution.log").contains(words));
}

/// Lets the waiting ranks end, and resets the gate for the next ones.
fn forget_starts(site: &Site) {
    site.release_ranks();
    wait_for("all to have ended", || site.node_processes().is_empty());
    for name in ["go", "starts"] {
        std::fs::remove_file(site.share().join(name)).expect("it is there");
    }
}

fn images_are_pulled_with_credentials_or_said_why_not(engine: &Engine, site: &Site) {
    let registry = Registry::start(&engine.archive(), "me", "canary-password");
    let image = format!("{}/team/private:1", registry.address);
    let with = |password: &str| {
        json!({"containerSettings": {"imageSourceRegistry": {
            "serverUrl": registry.address, "image": image, "credentials": {"username": "me", "password": password}
        }}})
    };
    submit(site, "refused", 1, "nc6cluster", ranks("true"), with("canary-wrong"));
    let job = site.wait_for_end("refused");
    assert_eq!(detail(error_of(&job), "Reason"), "PullFailed", "{job:#}");
    assert!(detail(error_of(&job), "Info").contains(&format!("from {}", registry.address)), "{job:#}");
    let texts = format!("{job}{}{}", why(site, "refused"), site.job_file("refused", "execution.log"));
    assert!(texts.contains("imageSourceRegistry.serverUrl") && !texts.contains("canary"), "{texts}");

    submit(site, "pulled", 1, "nc6cluster", ranks("echo in $PATH"), with("canary-password"));
    let job = site.wait_for_end("pulled");
    assert_eq!(job["executionState"], "succeeded", "{job:#}");
    assert_eq!(site.job_file("pulled", "stdout.txt"), "in /usr/bin:/bin\n");
    let log = site.job_file("pulled", "execution.log");
    assert!(log.contains(&format!("Pulling image {image} as me\n")), "{log}");
    assert!(log.contains(&format!("Pulled image {image}: 1 of 1 layer, ")) && !log.contains("canary"), "{log}");
    assert!(registry.shown.lock().expect("no panic").len() > 1, "the registry was asked with a login");
    assert!(!site.up_log().contains("canary"), "the server's log");
}

fn a_terminated_job_is_asked_first(engine: &Engine, site: &Site) {
    let command = format!("trap 'echo asked; exit 0' TERM; touch {SHARE}/traps; while :; do sleep 0.05; done");
    let more = json!({"secrets": [{"name": "TOKEN", "value": "canary-token"}]});
    submit(site, "polite", 1, "nc6cluster", ranks(&command), more);
    wait_for("the rank", || site.share().join("traps").exists());
    std::fs::remove_file(site.share().join("traps")).expect("it is there");
    let id = engine.containers().pop().expect("a container");
    assert!(!engine.checked_output(&["inspect", &id]).contains("canary"), "a secret among the container's settings");
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n polite --yes")).ok();
    let job = site.wait_for_end("polite");
    assert_eq!(error_of(&job)["code"], "JobTerminated", "{job:#}");
    assert_eq!(site.job_file("polite", "stdout.txt"), "asked\n");
    assert_eq!(engine.containers(), [""; 0]);
}

fn a_killed_agent_leaves_no_container(engine: &Engine, site: &Site) {
    submit(site, "orphaned", 2, "nc6cluster", ranks(&waiting_rank("sleep 1000 &")), json!({}));
    let first = site.wait_for_starts(2);
    let before = engine.containers();
    assert_eq!(before.len(), 2, "one for each node");
    let pids: Vec<u32> = before
        .iter()
        .map(|id| engine.checked_output(&["inspect", "--format", "{{.State.Pid}}", id]).parse().expect("a process id"))
        .collect();
    signal(site.agent_of(&first[0].node), Signal::KILL);
    wait_until_dead("the containers' first processes", &pids);
    site.wait_for_starts(4);
    let after = engine.containers();
    assert!(after.len() == 2 && before.iter().all(|id| !after.contains(id)), "{before:?} {after:?}");
    forget_starts(site);
    assert_eq!(site.wait_for_end("orphaned")["executionState"], "succeeded");
    engine.wait_until_empty();
    site.wait_for_nodes(2);
}

fn a_killed_server_leaves_the_job_and_then_no_container(engine: &Engine, site: &mut Site) {
    submit(site, "lonely", 1, "nc6cluster", ranks(&waiting_rank("")), json!({}));
    site.wait_for_starts(1);
    let before = engine.containers();
    site.crash_and_restart();
    assert_eq!(engine.containers(), before);
    forget_starts(site);
    assert_eq!(site.wait_for_end("lonely")["executionState"], "succeeded");
    assert_eq!(engine.containers(), [""; 0]);
}
