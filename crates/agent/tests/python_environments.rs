//! Python environments of jobs, with a real pip and a package of the job's own that needs no network: made once for
//! each content, never half, never more than the cache may hold.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::*;
use corro_agent::PythonCacheConfig;
use corro_model::AttemptId;
use corro_model::batchai::{EnvironmentVariable, PythonEnvironment};
use corro_model::node::{Goal, TaskFailure, TaskOrder};
use corro_test_support::skip;

/// Build backend of the package, which waits for a file if the job names one.
const BACKEND: &str = r#"
import os, time, zipfile

def build_wheel(directory, settings=None, metadata=None):
    gate = os.environ.get("PROBE_GATE")
    if gate:
        open(gate + ".reached", "w").close()
        while not os.path.exists(gate):
            time.sleep(0.02)
    info = "probe-1.0.dist-info/"
    name = "probe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.write(os.path.join(os.path.dirname(__file__), "probe.py"), "probe.py")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "probe.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n" % (info, info, info))
    return name

build_editable = build_wheel
"#;
const PROJECT: &str = "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n[project]\nname = \"probe\"\nversion = \"1.0\"\n";

/// The directory of a Python that has pip. Not that of a wrapper, which may need variables that jobs do not get.
fn python_directory() -> Option<PathBuf> {
    let print = "import os, sys, pip, venv; print(os.path.dirname(os.path.realpath(sys.executable)))";
    let asked = Command::new("python3").args(["-c", print]).output().ok()?;
    let directory = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    let is_there = asked.status.success() && directory.join("python3").exists();
    is_there.then_some(directory)
}

/// A project on the share whose package has this version.
fn write_project(share: &Path, requirements: &str, version: &str) {
    let package = share.join("project/package");
    std::fs::create_dir_all(&package).expect("directories");
    let write = |path: PathBuf, text: &str| std::fs::write(path, text).expect("a file");
    write(share.join("project/requirements.txt"), requirements);
    write(package.join("pyproject.toml"), PROJECT);
    write(package.join("backend.py"), BACKEND);
    write(package.join("probe.py"), &format!("version = {version:?}\n"));
}

const REQUIREMENTS: &str = "--no-index\n./package\n";
const SHOW: &str = "python -c 'import probe; print(probe.version, probe.__file__)'";

/// A job with the project's environment. Its name keeps it apart from other jobs.
fn with_environment(name: &str, order: TaskOrder) -> Option<TaskOrder> {
    let Some(python) = python_directory() else {
        skip::missing_component("needs a python3 with pip and venv");
        return None;
    };
    let path = "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/project/requirements.txt".to_owned();
    let path = PythonEnvironment { requirements_file: Some(path), conda_file: None };
    let search = format!("{}:$PATH", python.display());
    let environment = vec![EnvironmentVariable { name: "PATH".into(), value: search }];
    Some(TaskOrder {
        attempt: AttemptId { job: format!("guid-{name}"), number: 1 },
        job: name.into(),
        segment: format!("sub/rg/workspaces/w/experiments/e/jobs/{name}/guid"),
        python_environment: Some(path),
        environment,
        ..order
    })
}

/// A log of a job of [`with_environment`].
fn log(share: &Path, job: &str, name: &str) -> String {
    let segment = format!("sub/rg/workspaces/w/experiments/e/jobs/{job}/guid");
    read(&share.join("cifar").join(segment).join("stdouterr").join(name))
}

/// Directories of environments in a cache.
fn environments(cache: &Path) -> Vec<String> {
    if !cache.exists() {
        return Vec::new();
    }
    names(cache).into_iter().filter(|name| !name.ends_with(".lock")).collect()
}

fn detail(failure: &TaskFailure, name: &str) -> String {
    let found = failure.error.details.iter().find(|detail| detail.name == name);
    found.map_or_else(String::new, |detail| detail.value.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_is_made_once_for_each_content() {
    let world = World::new().await;
    write_project(&world.share, REQUIREMENTS, "1");
    let cache = world.agent.root.join("python-environments");
    let run = async |name: &str| {
        let writes = format!("{SHOW}; echo x >> $(python -c 'import probe; print(probe.__file__)')");
        let order = with_environment(name, world.order(&writes))?;
        assert_eq!(world.node.run_alone(&order).await.1, None, "{}", log(&world.share, name, "execution.log"));
        world.node.until_free().await;
        Some((log(&world.share, name, "stdout.txt"), log(&world.share, name, "execution.log")))
    };
    let Some((stdout, execution)) = run("first").await else { return };
    assert!(stdout.starts_with("1 ") && execution.contains("Z Made the Python environment "), "{stdout}\n{execution}");
    assert!(log(&world.share, "first", "stdout-job_prep.txt").contains("Successfully installed probe-1.0"));
    let (again, execution) = run("second").await.expect("it ran before");
    assert!(execution.contains("Z Using the Python environment "), "{execution}");
    assert_eq!(again, stdout, "the same file");
    assert_eq!(environments(&cache).len(), 1);
    if execution.contains("user and mount namespaces of its own") {
        let refused = log(&world.share, "second", "stderr.txt");
        assert!(refused.contains("Read-only file system"), "a job must not change what others use: {refused}");
    } else {
        skip::unsupported_machine("this machine allows no namespaces");
    }
    // The package has changed, and its requirements file has not.
    write_project(&world.share, REQUIREMENTS, "2");
    let (stdout, execution) = run("third").await.expect("it ran before");
    assert!(stdout.starts_with("2 ") && execution.contains("Z Made the Python environment "), "{stdout}\n{execution}");
    write_project(&world.share, "# another\n--no-index\n./package\n", "2");
    assert!(run("fourth").await.expect("it ran before").1.contains("Z Made the Python environment "));
    assert_eq!(environments(&cache).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_preparation_installs_beside_the_environment() {
    let world = World::new().await;
    write_project(&world.share, REQUIREMENTS, "1");
    // With a working directory pip runs there, and not where the file is.
    std::fs::create_dir(world.share.join("project/env")).expect("a directory");
    std::fs::write(world.share.join("project/env/packages.txt"), "-r ../requirements.txt\n").expect("a file");
    let preparation = "python -c 'import probe; print(\"has\", probe.version)' && sed -i s/1/9/ package/probe.py && \
                       pip install --no-index --force-reinstall ./package";
    let Some(order) = with_environment("prepared", world.order(SHOW)) else { return };
    let order = TaskOrder {
        preparation: Some(preparation.into()),
        working_directory: Some("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/project".into()),
        python_environment: Some(PythonEnvironment {
            requirements_file: Some("env/packages.txt".into()),
            conda_file: None,
        }),
        ..order
    };
    assert_eq!(world.node.run_alone(&order).await.1, None, "{}", log(&world.share, "prepared", "execution.log"));
    assert!(log(&world.share, "prepared", "stdout-job_prep.txt").contains("has 1\n"));
    let stdout = log(&world.share, "prepared", "stdout.txt");
    assert!(stdout.starts_with("9 ") && stdout.contains("/jobs/w/e/prepared/.venv/"), "{stdout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_one_machine_make_an_environment_once() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (share, cache) = (directory.path().join("share"), directory.path().join("cache"));
    std::fs::create_dir(&share).expect("a share");
    write_project(&share, REQUIREMENTS, "1");
    let server = FakeServer::start().await;
    let addresses = ["127.0.0.4", "127.0.0.5"];
    let (mut nodes, mut agents) = (Vec::new(), Vec::new());
    for (idx, address) in addresses.iter().enumerate() {
        let node = server.want_node(idx as u32 + 1);
        let mut config = config(&server, &directory.path().join(format!("n{idx}")), address);
        config.python_cache.directory = Some(cache.clone());
        agents.push(Agent::start_with(config));
        node.until_ready().await;
        nodes.push(node);
    }
    let hosts = vec![host(&nodes[0], addresses[0], 1), host(&nodes[1], addresses[1], 1)];
    let order = as_ranks(order(SHOW, hosts, &share, &directory.path().join("shared-temp")));
    let Some(base) = with_environment("gang", order) else { return };
    let orders = [0, 1].map(|host_idx| TaskOrder { host_idx, ..base.clone() });
    for (node, order) in nodes.iter().zip(&orders) {
        node.want_task(Goal::Prepare, order);
    }
    let gang = nodes[0].until_prepared().await.expect("the master says where to meet");
    nodes[1].until_prepared().await;
    for (node, order) in nodes.iter().zip(&orders) {
        node.want_task(Goal::Run { gang: gang.clone() }, order);
    }
    for node in &nodes {
        assert_eq!(node.until_ended().await.1, None);
    }
    let stdout = log(&share, "gang", "stdout.txt");
    let files: Vec<&str> = stdout.lines().collect();
    assert!(files.len() == 2 && files[0] == files[1], "{stdout}");
    let executions = nodes.iter().map(|node| log(&share, "gang", &format!("execution-{}.log", node.id)));
    let made: Vec<bool> = executions.map(|text| text.contains("Z Made the Python environment ")).collect();
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
    assert_eq!(environments(&cache).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_at_work_leaves_no_half_environment() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (root, share) = (directory.path().join("n1"), directory.path().join("share"));
    std::fs::create_dir(&share).expect("a share");
    write_project(&share, REQUIREMENTS, "1");
    let server = FakeServer::start().await;
    let node = server.want_node(1);
    let spawn = || {
        let mut command = tokio::process::Command::new(node_example());
        command.args([server.url.as_str(), root.to_str().expect("a plain path"), "127.0.0.4", TOKEN]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.spawn().expect("the agent starts")
    };
    let mut first = spawn();
    node.until_ready().await;
    let shared_temp = directory.path().join("shared-temp");
    let plain = || order(SHOW, vec![host(&node, "127.0.0.4", 1)], &share, &shared_temp);
    let Some(mut killed) = with_environment("killed", plain()) else { return };
    killed
        .environment
        .push(EnvironmentVariable { name: "PROBE_GATE".into(), value: "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/gate".into() });
    node.want_task(Goal::Prepare, &killed);
    until_exists(&share.join("gate.reached")).await;
    let cache = root.join("python-environments");
    let half_done = environments(&cache);
    assert_eq!(half_done.len(), 1);
    first.start_kill().expect("it can be killed");
    first.wait().await.expect("it is gone");

    let _second = spawn();
    assert_eq!(node.until_ended().await.1.expect("it was interrupted").error.code, "AgentRestarted");
    node.until_free().await;
    assert_eq!(node.n_processes(), 0, "pip is gone");
    let again = with_environment("again", plain()).expect("it was possible before");
    assert_eq!(node.run_alone(&again).await.1, None, "{}", log(&share, "again", "execution.log"));
    let execution = log(&share, "again", "execution.log");
    assert!(execution.contains("Z Made the Python environment "), "half an environment was used: {execution}");
    assert!(log(&share, "again", "stdout.txt").starts_with("1 "));
    assert_eq!(environments(&cache), half_done, "the same key, and nothing else");
    assert_eq!(names(&cache.join(&half_done[0])).len(), 2, "the record and one directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_holds_no_more_than_it_may() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let share = directory.path().join("share");
    std::fs::create_dir(&share).expect("a share");
    let server = FakeServer::start().await;
    let node = server.want_node(1);
    let mut config = config(&server, &directory.path().join("n1"), "127.0.0.4");
    config.python_cache = PythonCacheConfig { max_environments: 2, ..config.python_cache };
    let cache = config.root.join("python-environments");
    let _agent = Agent::start_with(config);
    node.until_ready().await;
    let mut made = Vec::new();
    for (name, version) in [("a", "1"), ("b", "2"), ("c", "1"), ("d", "3"), ("e", "1"), ("f", "2")] {
        write_project(&share, REQUIREMENTS, version);
        let plain = order(SHOW, vec![host(&node, "127.0.0.4", 1)], &share, &directory.path().join("shared-temp"));
        let Some(order) = with_environment(name, plain) else { return };
        assert_eq!(node.run_alone(&order).await.1, None, "{}", log(&share, name, "execution.log"));
        node.until_free().await;
        assert!(log(&share, name, "stdout.txt").starts_with(version));
        made.push(log(&share, name, "execution.log").contains("Z Made the Python environment "));
        assert!(environments(&cache).len() <= 2, "{:?}", environments(&cache));
    }
    assert_eq!(made, [true, true, false, true, false, true], "version 2 was the least recently used");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_explained_and_leaves_nothing() {
    let world = World::new().await;
    write_project(&world.share, "no-such-package==1.0\n", "1");
    let Some(mut order) = with_environment("fails", world.order(SHOW)) else { return };
    let variable = |name: &str, value: &str| EnvironmentVariable { name: name.into(), value: value.into() };
    // Nothing listens on port 1.
    order.environment.push(variable("PIP_INDEX_URL", "http://somebody:a-password@127.0.0.1:1/simple"));
    order.environment.push(variable("PIP_RETRIES", "1"));
    let failure = world.node.run_alone(&order).await.1.expect("there is no index");
    world.node.until_free().await;
    assert_eq!(failure.error.code, "PythonEnvironmentFailed");
    assert_eq!((detail(&failure, "Node").as_str(), failure.exit_code), (world.node.id.as_str(), Some(1)));
    assert_eq!(detail(&failure, "Field"), "requirementsFile");
    assert!(detail(&failure, "Path").ends_with("/logs/project/requirements.txt"));
    assert!(detail(&failure, "StdErr").contains("No matching distribution found for no-such-package==1.0"));
    assert!(detail(&failure, "Info").starts_with("The node does not reach a package index"), "{failure:?}");
    let logs =
        ["execution.log", "stdout-job_prep.txt", "stderr-job_prep.txt"].map(|name| log(&world.share, "fails", name));
    assert!(logs[2].contains("No matching distribution") && !logs.concat().contains("a-password"), "{}", logs[2]);
    assert_eq!(environments(&world.agent.root.join("python-environments")), Vec::<String>::new());

    // The next mistake: an include that is not there.
    write_project(&world.share, "-r none.txt\n", "1");
    let order = with_environment("missing", world.order(SHOW)).expect("it was possible before");
    let failure = world.node.run_alone(&order).await.1.expect("a file is missing");
    assert!(detail(&failure, "Info").contains("none.txt: No such file"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_stopped_meanwhile_leaves_nothing() {
    let world = World::new().await;
    write_project(&world.share, REQUIREMENTS, "1");
    let Some(mut order) = with_environment("stopped", world.order(SHOW)) else { return };
    let gate = EnvironmentVariable { name: "PROBE_GATE".into(), value: "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/gate".into() };
    order.environment.push(gate);
    world.node.want_task(Goal::Prepare, &order);
    until_exists(&world.share.join("gate.reached")).await;
    world.node.want_task(Goal::Stop { grace_ms: 100 }, &order);
    assert_eq!(world.node.until_ended().await.1, None);
    assert_eq!(world.node.n_processes(), 0);
    assert_eq!(environments(&world.agent.root.join("python-environments")), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_editable_package_is_installed_for_one_job() {
    let world = World::new().await;
    write_project(&world.share, "--no-index\n-e ./package\n", "1");
    let Some(order) = with_environment("editable", world.order(SHOW)) else { return };
    assert_eq!(world.node.run_alone(&order).await.1, None, "{}", log(&world.share, "editable", "execution.log"));
    let stdout = log(&world.share, "editable", "stdout.txt");
    assert!(stdout.contains("/jobs/w/e/editable/.venv/"), "{stdout}");
    let execution = log(&world.share, "editable", "execution.log");
    assert!(execution.contains("installed for this job alone: ./package: it is editable"), "{execution}");
    assert_eq!(environments(&world.agent.root.join("python-environments")), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conda_file_needs_a_program_that_reads_it() {
    let world = World::new().await;
    write_project(&world.share, "", "1");
    std::fs::write(world.share.join("project/conda.yml"), "dependencies:\n  - python\n  - pip:\n    - ./package\n")
        .expect("a file");
    let Some(mut order) = with_environment("conda", world.order(SHOW)) else { return };
    let file = "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/project/conda.yml".to_owned();
    order.python_environment = Some(PythonEnvironment { requirements_file: None, conda_file: Some(file) });
    let search = order.environment[0].value.trim_end_matches(":$PATH").to_owned();
    order.environment[0].value = format!("{search}:/usr/bin:/bin");
    let installed = ["mamba", "micromamba", "conda"].iter().any(|name| {
        [search.as_str(), "/usr/bin", "/bin"].iter().any(|directory| Path::new(directory).join(name).exists())
    });
    if !installed {
        let failure = world.node.run_alone(&order).await.1.expect("there is no conda");
        world.node.until_free().await;
        assert_eq!(detail(&failure, "Field"), "condaFile");
        assert!(detail(&failure, "Info").starts_with("There is no mamba, micromamba or conda in the job's PATH"));
    }
    // In place of conda a script that makes an environment of the machine's Python.
    let tools = world.directory.path().join("tools");
    std::fs::create_dir(&tools).expect("a directory");
    let script = "#!/bin/sh\n[ \"$1 $2 $3 $5\" = 'env create --prefix --file' ] || exit 9\npython3 -m venv --system-site-packages --without-pip \"$4\" &&\n\
                  \"$4/bin/python\" -m pip install --no-index \"$(dirname \"$6\")/package\"\n";
    let conda = tools.join("mamba");
    std::fs::write(&conda, script).expect("a program");
    std::fs::set_permissions(&conda, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
    order.environment[0].value = format!("{}:{search}:/usr/bin:/bin", tools.display());
    order.attempt.number = 2;
    assert_eq!(world.node.run_alone(&order).await.1, None, "{}", log(&world.share, "conda", "execution.log"));
    assert!(log(&world.share, "conda", "stdout.txt").starts_with("1 "));
    assert_eq!(environments(&world.agent.root.join("python-environments")).len(), 1);
}
