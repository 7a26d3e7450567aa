//! What a user of `corro submit` and `corro fetch` sees.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{CommandOutput, signal, wait_for};
use crate::project::{ProjectSite, sorted};

/// Prints its rank, reads a file of the project, writes a result.
const TRAIN: &str = r#"
import os, pathlib, sys
rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {size}: {pathlib.Path('data/words.txt').read_text().strip()} {' '.join(sys.argv[1:])}", flush=True)
if rank == "0":
    pathlib.Path("model.txt").write_text("trained")
    os.makedirs("out", exist_ok=True)
    pathlib.Path("out/words.txt").write_text("result")
"#;

#[test]
fn a_script_runs_on_two_nodes_of_an_empty_server_and_its_results_come_back() {
    let project = ProjectSite::new(&[("train.py", TRAIN), ("data/words.txt", "hello"), ("junk.log", "x")]);
    project.write(".gitignore", "*.log\n");
    let first = project.corro(&["submit", "train.py", "--nodes", "2", "--", "--epochs", "3"]).ok();
    assert_eq!(
        sorted(&first.stdout),
        ["[0] rank 0 of 2: hello --epochs 3", "[1] rank 1 of 2: hello --epochs 3"],
        "{}",
        first.stderr
    );
    for text in [
        "Created resource group default, workspace default, experiment cifar",
        "Creating the cluster default: up to 2 nodes of size STANDARD_D2_V2",
        "Created share projects in storage account defaultprojects",
        "Sent 3 files of ",
        "Submitted job train-1 of experiment cifar to cluster default: 2 nodes",
        "The job train-1 succeeded",
    ] {
        assert!(first.stderr.contains(text), "{text:?} is missing: {}", first.stderr);
    }
    assert!(!project.experiment_directory().join("train-1/junk.log").exists(), "it is ignored");

    // Only what changed is sent again.
    project.write("data/words.txt", "hello again");
    let second = project.corro(&["submit", "train.py", "--nodes", "2", "--fetch"]).ok();
    assert!(second.stdout.contains("rank 1 of 2: hello again"), "{}", second.stdout);
    assert!(second.stderr.contains("Sent 1 file of ") && second.stderr.contains(", 2 unchanged)"), "{}", second.stderr);
    assert!(!second.stderr.contains("Created"), "everything was there: {}", second.stderr);
    assert_eq!(
        (project.read("train-2/model.txt"), project.read("train-2/out/words.txt")),
        ("trained".into(), "result".into())
    );
    assert!(!project.dir().join("train-2/train.py").exists(), "it was sent, not written by the job");

    // What was fetched is not sent with the next job, and is not fetched twice.
    let again = project.corro(&["fetch", "train-2", "-g", "default", "-w", "default", "-e", "cifar"]).ok();
    assert!(again.stderr.contains("Fetched 0 files to train-2 (0 bytes, 2 unchanged)"), "{}", again.stderr);
    let third = project.corro(&["submit", "train.py"]).ok();
    assert!(third.stderr.contains("Sent 0 files of ") && third.stderr.contains(", 3 unchanged)"), "{}", third.stderr);
}

#[test]
fn the_exit_code_is_that_of_the_script() {
    let project = ProjectSite::new(&[("fail.py", "import sys\nprint('begun', flush=True)\nsys.exit(7)\n")]);
    let ended = project.corro(&["submit", "fail.py"]);
    let ended = ended.fails(7, &["The job fail-1 failed with exit code 7"]);
    assert_eq!(ended.stdout, "begun\n");
    let ended =
        project.corro(&["submit", "--name", "words", "--", "sh", "-c", "echo $0 \"$1\" >&2; exit 3", "a b", "c"]);
    ended.fails(3, &["a b c\n"]);
    project.corro(&["submit", "--name", "words", "fail.py"]).fails(1, &["has a job words already"]);
    project.corro(&["submit", "none.py"]).fails(1, &["none.py does not exist", "hint: give a file in "]);
    project.corro(&["submit"]).fails(2, &["SCRIPT"]);
    assert_eq!(project.jobs().len(), 2);
}

#[test]
fn a_dry_run_prints_a_valid_job_file_and_sends_nothing() {
    let project = ProjectSite::new(&[("train.py", "import horovod.torch as hvd\n")]);
    let words = [
        "submit",
        "train.py",
        "--nodes",
        "4",
        "--secret",
        "TOKEN=hunter2",
        "--time",
        "2h",
        "--retry",
        "1",
        "--dry-run",
    ];
    let shown = project.corro(&words).ok();
    assert!(shown.stderr.contains("train.py imports horovod: a horovod job"), "{}", shown.stderr);
    assert!(!shown.stdout.contains("hunter2"), "{}", shown.stdout);
    let job: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(job["properties"]["nodeCount"], 4);
    assert_eq!(job["properties"]["constraints"]["maxWallClockTime"], "PT2H");
    project.write("job.json", &shown.stdout);
    project.corro(&["job", "validate", "job.json", "--strict"]).ok();
    assert!(project.jobs().is_empty() && !project.experiment_directory().exists());
}

#[test]
fn the_project_file_has_defaults() {
    let project =
        ProjectSite::new(&[("src/show.py", "import os\nprint(os.getcwd().split('/')[-1], os.environ['COLOR'])\n")]);
    project.write("corro.toml", "name = 'mine'\n[defaults]\nexperiment = 'tried'\n[submit]\nenv = { COLOR = 'red' }\n");
    let mut command = project.command(&["submit", "show.py"]);
    let shown = CommandOutput::from(command.current_dir(project.dir().join("src")).output().expect("it runs")).ok();
    assert_eq!(shown.stdout, "src red\n");
    assert!(shown.stderr.contains("Submitted job show-1 of experiment tried"), "{}", shown.stderr);
    project.write("corro.toml", "[submit]\nnodse = 2\n");
    project.corro(&["submit", "src/show.py"]).fails(1, &["corro.toml: line 2, column 1", "did you mean 'nodes'?"]);
}

#[test]
fn a_detached_job_goes_on_and_prints_its_name() {
    let project = ProjectSite::new(&[("work.sh", "echo done\n")]);
    let name = project.corro(&["submit", "--detach", "--", "sh", "work.sh"]).ok().stdout;
    assert_eq!(name, "work-1\n");
    wait_for("the job to succeed", || project.jobs()[0]["executionState"] == "succeeded");
}

#[test]
fn ctrl_c_leaves_the_job_and_a_second_one_stops_it() {
    let project = ProjectSite::new(&[("work.sh", "echo begun; until [ -e go ]; do sleep 0.05; done\n")]);
    let state = |idx: usize| project.jobs().get(idx).map(|job| job["executionState"].clone());
    let child = project.start(&["submit", "--", "sh", "work.sh"]);
    wait_for("the first job to run", || state(0) == Some("running".into()));
    signal(child.id(), Signal::INT);
    let ended = CommandOutput::from(child.wait_with_output().expect("it ends"));
    ended.fails(130, &["The job work-1 goes on", "corro job stop work-1"]);
    assert_eq!(state(0), Some("running".into()));

    let child = project.start(&["submit", "--", "sh", "work.sh"]);
    wait_for("the second job", || project.jobs().len() == 2);
    let submitted = || project.jobs().iter().any(|job| job["name"] == "work-2" && job["executionState"] == "queued");
    wait_for("the second job to be queued", submitted);
    signal(child.id(), Signal::INT);
    // The second one is sent until it is taken: the command may still be about to handle the first.
    wait_for("the second job to stop", || {
        signal(child.id(), Signal::INT);
        project.jobs().iter().any(|job| job["name"] == "work-2" && job["executionState"] == "failed")
    });
    CommandOutput::from(child.wait_with_output().expect("it ends")).fails(130, &["The job work-2 is stopped."]);
    assert_eq!(project.jobs().iter().filter(|job| job["executionState"] == "running").count(), 1, "work-1 goes on");
}
