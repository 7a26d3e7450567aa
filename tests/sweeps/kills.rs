//! Kills of the client while it creates trials, and of the server while trials run: no trial is lost or doubled, and the rule goes on.

use crate::harness::wait_for;
use crate::project::ProjectSite;
use crate::trials::{TRAIN, job_names, states};

const N_TRIALS: usize = 60;
const N_FILES: usize = 20;

fn trial_names(n: usize) -> Vec<String> {
    (1..=n).map(|number| format!("many-{number:03}")).collect()
}

#[test]
fn a_killed_client_is_resumed_and_every_trial_exists_once() {
    let project = ProjectSite::new(&[("count.sh", "test $(ls parts | wc -l) = $1\n")]);
    for i in 0..N_FILES {
        project.write(&format!("parts/{i}.txt"), &format!("part {i}"));
    }
    let (files, space) = (N_FILES.to_string(), format!("n=1..{N_TRIALS}:1"));
    let words = ["sweep", "--param", &space, "--name", "many", "--detach", "--", "sh", "count.sh", &files];
    let mut child = project.start(&words);
    wait_for("some trials", || project.jobs().len() > 3);
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let n_created = project.jobs().len();
    assert!(n_created < N_TRIALS, "it was killed too late");
    assert_eq!(job_names(&project), trial_names(n_created), "trials are created in order");

    // The project is not needed any more, and two clients do not double anything.
    project.write("count.sh", "exit 1\n");
    let clients = [
        project.start(&["sweep", "resume", "many", "--detach"]),
        project.start(&["sweep", "resume", "many", "--detach"]),
    ];
    for client in clients {
        let ended = client.wait_with_output().expect("it ends");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    assert_eq!(job_names(&project), trial_names(N_TRIALS));
    let values = states(&project, "many", "n");
    assert!((1..=N_TRIALS).all(|n| values.contains_key(&n.to_string())), "{values:?}");
    wait_for("all trials to succeed", || states(&project, "many", "n").values().all(|state| state == "succeeded"));
}

#[test]
fn the_rule_goes_on_after_the_server_was_killed() {
    let mut project = ProjectSite::new(&[("train.py", TRAIN)]);
    let address = project.site.url.strip_prefix("http://").expect("an address").to_owned();
    let words = ["sweep", "train.py", "-p", "quality=0.1,0.2,0.9", "-m", "val_acc", "--stop", "asha"];
    let more = ["--parallel", "3", "--name", "gated", "--detach", "--", "--gate"];
    project.corro(&[&words[..], &more].concat()).ok();
    let all_run = |project: &ProjectSite| {
        states(project, "gated", "quality").values().filter(|state| *state == "running").count() == 3
    };
    wait_for("all trials to run", || all_run(&project));
    project.site.kill_server();
    std::fs::write(project.experiment_directory().join("gated/go"), "").expect("the gate opens");
    let has_trained = |trial: usize| project.experiment_directory().join(format!("gated/00{trial}/model.txt")).exists();
    wait_for("the trials to print their metric", || (1..=3).all(has_trained));
    project.site.up_at(&address);
    let expected = [("0.1", "stopped early"), ("0.2", "stopped early"), ("0.9", "succeeded")];
    let expected = expected.map(|(value, state)| (value.to_owned(), state.to_owned()));
    wait_for("the rule to stop two", || states(&project, "gated", "quality").into_iter().eq(expected.clone()));
    assert_eq!(job_names(&project), ["gated-001", "gated-002", "gated-003"]);
    let ran_twice =
        project.jobs().into_iter().filter(|job| job["lostAttempts"].as_array().is_some_and(|lost| !lost.is_empty()));
    assert_eq!(ran_twice.count(), 0, "no trial ran twice");
}
