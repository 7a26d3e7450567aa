//! What a user of `corro sweep` sees.

use std::io::{BufRead, BufReader, Read};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{CommandOutput, signal, wait_for};
use crate::project::ProjectSite;
use crate::trials::{TRAIN, job_names, states};

#[test]
fn poor_trials_are_stopped_and_the_best_is_found() {
    let project = ProjectSite::new(&[("train.py", TRAIN)]);
    let values = "quality=0.1,0.2,0.3,0.4,0.9";
    let words = ["sweep", "train.py", "--param", values, "--metric", "val_acc", "--stop", "asha", "--parallel", "3"];
    let ended = project.corro(&words).ok();
    for text in [
        "Submitted 5 trials (every combination) of the sweep train-sweep-1 to cluster default",
        "Best: trial 5 (quality 0.9): val_acc 0.9 at epoch 3",
    ] {
        assert!(ended.stderr.contains(text), "{text:?} is missing: {}", ended.stderr);
    }
    let rows: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(rows.len(), 6, "{}", ended.stdout);
    assert_eq!(rows[0].split_whitespace().take(4).collect::<Vec<_>>(), ["TRIAL", "STATE", "QUALITY", "BEST"]);
    assert_eq!(rows[1].split_whitespace().take(4).collect::<Vec<_>>(), ["5", "succeeded", "0.9", "0.9"]);
    let states = states(&project, "train-sweep-1", "quality");
    let expected = |value: &str| if value == "0.9" { "succeeded" } else { "stopped early" };
    assert!(states.len() == 5 && states.iter().all(|(value, state)| state == expected(value)), "{states:?}");

    // Every client sees the jobs, and why they were stopped.
    let stopped =
        project.corro(&["job", "why", "train-sweep-1-001", "-g", "default", "-w", "default", "-e", "cifar"]).ok();
    let said = stopped.stdout + &stopped.stderr;
    assert!(
        said.contains("stopped by the sweep train-sweep-1: val_acc")
            && said.contains("'corro sweep show train-sweep-1'"),
        "{said}"
    );
    let job = project.site.corro("batchai job show -g default -w default -e cifar -n train-sweep-1-005").ok().json();
    assert_eq!((&job["sweep"]["trial"], &job["sweep"]["trialCount"]), (&json!(5), &json!(5)), "{job}");

    let best = project.corro(&["sweep", "best", "train-sweep-1"]).ok();
    assert_eq!(best.stdout, "Trial 5 of 5: val_acc 0.9 at epoch 3\n  quality  0.9\n  arguments: --quality 0.9\n");
    assert!(best.stderr.contains("'corro fetch train-sweep-1-005'"), "{}", best.stderr);
    project.corro(&["fetch", "train-sweep-1-005"]).ok();
    assert_eq!(project.read("train-sweep-1-005/model.txt"), "trained with 0.9");
    let listed = project.corro(&["sweep", "list"]).ok().stdout;
    let row: Vec<&str> = listed.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[..5], ["train-sweep-1", "cifar", "0", "0", "5"], "{listed}");

    // A metric that nobody prints stops nobody, and is said.
    project.write("quick.py", "print('epoch=1 loss=0.5')\n");
    let words = ["sweep", "quick.py", "-p", "x=1,2", "--metric", "val_accuracy", "--stop", "asha", "--name", "unseen"];
    let ended = project.corro(&words).ok();
    let said = "No trial has printed the metric val_accuracy. Metrics in the output: loss.";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("succeeded").count(), 2, "{}", ended.stdout);
    project.write("broken.py", "raise SystemExit(3)\n");
    let broken = project.corro(&["sweep", "broken.py", "-p", "x=1,2", "--name", "broken"]);
    broken.fails(1, &["no trial of the sweep broken succeeded: 2 failed"]);
}

#[test]
fn a_sweep_is_stopped_and_completed() {
    let project = ProjectSite::new(&[("work.sh", "until [ -e go ]; do sleep 0.05; done\n")]);
    let words = ["sweep", "--param", "n=1..3:1", "--name", "slow", "--", "sh", "work.sh", "{n}"];
    let mut child = project.start(&words);
    let mut errors = BufReader::new(child.stderr.take().expect("it is a pipe"));
    let mut said = String::new();
    // Interrupted earlier, it would name the missing trials.
    while !said.contains("of the sweep slow to cluster") {
        assert!(errors.read_line(&mut said).expect("text") > 0, "it ended: {said}");
    }
    wait_for("the first trial to run", || {
        states(&project, "slow", "n").get("1").is_some_and(|state| state == "running")
    });
    signal(child.id(), Signal::INT);
    errors.read_to_string(&mut said).expect("text");
    let ended = CommandOutput { stderr: said, ..CommandOutput::from(child.wait_with_output().expect("it ends")) };
    ended.fails(130, &["The sweep slow goes on", "'corro sweep stop slow'"]);
    assert_eq!(job_names(&project), ["slow-001", "slow-002", "slow-003"]);
    let stopped = project.corro(&["sweep", "stop", "slow"]).ok();
    assert!(stopped.stderr.contains("Stopped 3 trials of the sweep slow."), "{}", stopped.stderr);
    assert!(states(&project, "slow", "n").values().all(|state| state == "stopped"));
    let again = project.corro(&["sweep", "stop", "slow"]).ok();
    assert!(again.stderr.contains("All trials of the sweep slow had ended."), "{}", again.stderr);

    // A trial that was deleted is made again, from the others.
    project.site.corro("batchai job delete -g default -w default -e cifar -n slow-002 -y").ok();
    let shown = project.corro(&["sweep", "show", "slow"]).ok();
    assert!(shown.stderr.contains("1 of 3 trials do not exist yet"), "{}", shown.stderr);
    project.corro(&["sweep", "resume", "slow", "--detach"]).ok();
    assert_eq!(job_names(&project), ["slow-001", "slow-002", "slow-003"]);
    let job = project.site.corro("batchai job show -g default -w default -e cifar -n slow-002").ok().json();
    assert!(job.to_string().contains(r#""commandLine":"sh work.sh 2""#), "{job}");
    project.corro(&["sweep", "stop", "slow"]).ok();

    // Another sweep of the same name is refused, and the same one has nothing to do.
    let other = ["sweep", "--param", "n=1..4:1", "--name", "slow", "--", "sh", "work.sh", "{n}"];
    project.corro(&other).fails(
        1,
        &["there is a sweep slow already, and it is another one: --param is 'n=1..3:1' there, and 'n=1..4:1' here"],
    );
    project
        .corro(&words)
        .fails(1, &["The sweep slow has all of its 3 trials.", "no trial of the sweep slow succeeded: 3 stopped"]);
    project.corro(&["sweep", "show", "none"]).fails(3, &["there is no sweep none"]);
}

#[test]
fn a_dry_run_prints_the_trials_and_sends_nothing() {
    let project = ProjectSite::new(&[("train.py", TRAIN)]);
    let words = [
        "sweep",
        "train.py",
        "--param",
        "lr=log:1e-4..1e-1",
        "--param",
        "batch=32,64",
        "--trials",
        "4",
        "--seed",
        "7",
        "--dry-run",
    ];
    let shown = project.corro(&words).ok();
    assert!(
        shown.stderr.contains("Sweep train-sweep-1 of experiment cifar: 4 trials (random, seed 7)"),
        "{}",
        shown.stderr
    );
    let rows: Vec<&str> = shown.stdout.lines().collect();
    assert_eq!(rows[0], "TRIAL  JOB                LR          BATCH");
    assert_eq!(rows.len(), 5);
    assert_eq!(project.corro(&words).ok().stdout, shown.stdout, "the same seed gives the same trials");
    assert!(project.jobs().is_empty() && !project.experiment_directory().exists());
    let fails = |more: &[&str], code: i32, text: &str| {
        let words = [&["sweep", "train.py", "--dry-run"], more].concat();
        project.corro(&words).fails(code, &[text]);
    };
    fails(
        &["-p", "lr=1..x"],
        2,
        "argument --param lr=1..x: character 7: 'x' is not a number: write a range as LOW..HIGH",
    );
    fails(&["-p", "lr=0.1..1"], 2, "--trials is missing: say how many trials to make");
    fails(&["-p", "lr=1,2", "--stop", "asha"], 2, "--metric");
    fails(&[], 2, "--param");
}
