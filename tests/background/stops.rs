//! Stops: in order, twice, at once, of a server that does not answer, and never of another process.

use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::logs::wait_at;
use crate::harness::{CommandOutput, is_alive, signal, wait_for};
use crate::site::{BackgroundSite, UP};

/// A cluster with a node, and a job that runs on it until the gate `go` is opened.
fn start_job(background: &BackgroundSite) {
    let site = &background.site;
    site.prepare(1);
    site.submit_custom("waiting", 1, &format!("echo begun; {}", wait_at("go")));
    site.wait_for_state("waiting", &["running"]);
}

#[test]
fn a_stop_ends_nodes_in_order_and_the_job_goes_back_to_the_queue() {
    let background = BackgroundSite::new();
    background.corro(UP).ok();
    start_job(&background);
    let pid = background.pid();
    let agents = background.site.agents();
    assert_eq!(agents.len(), 1);
    let stopped = background.corro("stop").ok();
    let expected = "Stopped. One running job went back to the queue: it starts again with the next 'corro up'.\n";
    assert_eq!(stopped.stdout, expected);
    assert!(stopped.stderr.contains(&format!("(process {pid})")), "{}", stopped.stderr);
    assert!(!is_alive(pid), "the command waits for the end");
    assert!(agents.iter().all(|(_, pid)| !is_alive(*pid)), "the nodes end first");
    assert!(background.site.node_processes().is_empty());
    assert!(background.log().contains("Stopping the nodes"), "{}", background.log());

    let again = background.corro("stop").ok();
    assert!(again.stdout.starts_with("No server is running on "), "{}", again.stdout);
    background.corro("status").fails(3, &["no server answers at"]);
    background.corro(UP).ok();
    background.site.open_gate("go");
    assert_eq!(background.site.wait_for_end("waiting")["executionState"], "succeeded");
    assert_eq!(background.corro("stop").ok().stdout, "Stopped.\n");
}

#[test]
fn a_stop_ends_a_server_in_a_terminal_and_one_without_local_nodes() {
    let background = BackgroundSite::new();
    let up = background.start("up --listen 127.0.0.1:0 --nfs off --data data");
    wait_for("the server", || background.corro("status").code == 0);
    assert_eq!(background.status()["background"], false);
    assert_eq!(background.corro("stop").ok().stdout, "Stopped.\n");
    let up = CommandOutput::from(up.wait_with_output().expect("it ends")).ok();
    assert!(up.stderr.contains("Stopping the nodes"), "{}", up.stderr);

    let server = background.start("server --listen 127.0.0.1:0 --nfs off --data data");
    wait_for("the server", || background.corro("status").code == 0);
    let stopped = background.corro("stop --data data").ok();
    assert_eq!(stopped.stdout, "Stopped. Nodes and their jobs go on; the next 'corro server' resumes them.\n");
    CommandOutput::from(server.wait_with_output().expect("it ends")).ok();
}

#[test]
fn no_other_process_is_stopped() {
    let background = BackgroundSite::new();
    background.corro(UP).ok();
    let pid = background.pid();
    signal(pid, Signal::KILL);
    wait_for("its end", || !is_alive(pid));
    // The files of the killed server name a process that is none.
    let mut sleeper = std::process::Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("it starts");
    let record = background.site.data().join("server.json");
    let text = std::fs::read_to_string(&record).expect("a record");
    std::fs::write(&record, text.replace(&pid.to_string(), &sleeper.id().to_string())).expect("written");
    std::fs::write(background.site.data().join("lock"), format!("process {}, http://127.0.0.1:1\n", sleeper.id()))
        .expect("written");
    for line in ["stop", "stop --now", "stop --data data"] {
        assert!(background.corro(line).ok().stdout.contains("No server is running on "));
    }
    assert!(is_alive(sleeper.id()));
    sleeper.kill().expect("it is ours");
    sleeper.wait().expect("it ends");
    background.corro("stop --data no-such-directory").ok();
    assert!(!background.site.path().join("no-such-directory").exists());
}

#[test]
fn a_frozen_server_is_reported_and_can_be_stopped() {
    let background = BackgroundSite::new();
    background.corro(UP).ok();
    let pid = background.pid();
    signal(pid, Signal::STOP);
    background.corro("status").fails(3, &["does not answer", "corro stop"]);
    assert_eq!(background.corro("stop").ok().stdout, "Stopped.\n");
    assert!(!is_alive(pid));
}

#[test]
fn a_stop_now_and_a_second_ctrl_c_do_not_wait_for_the_nodes() {
    let background = BackgroundSite::new();
    background.corro(UP).ok();
    start_job(&background);
    let pid = background.pid();
    let stopped = background.corro("stop --now").ok();
    assert!(stopped.stdout.starts_with("Stopped"), "{}", stopped.stdout);
    assert!(!is_alive(pid));

    // The next start resumes the nodes or replaces them, and the job runs again.
    background.corro(UP).ok();
    background.site.wait_for_state("waiting", &["running"]);
    let pid = background.pid();
    let mut command = background.command("stop");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("the stop to begin", || background.log().matches("Stopping the nodes").count() > 1 || !is_alive(pid));
    signal(child.id(), Signal::INT);
    let ended = CommandOutput::from(child.wait_with_output().expect("it ends"));
    assert!([0, 130].contains(&ended.code), "{ended:?}");
    assert!(!is_alive(pid), "the server has ended when the command does");
    background.corro(UP).ok();
    background.site.open_gate("go");
    assert_eq!(background.site.wait_for_end("waiting")["executionState"], "succeeded");
}

#[test]
fn a_server_of_another_machine_is_asked_but_not_stopped() {
    let background = BackgroundSite::new();
    background.corro(UP).ok();
    let profile = background.site.path().join("config/profile.json");
    let mut remote = background.site.profile();
    remote.as_object_mut().expect("an object").remove("dataDirectory").expect("it is of this machine");
    std::fs::write(&profile, remote.to_string()).expect("written");
    let status = background.status();
    assert_eq!((&status["running"], status.get("pid")), (&true.into(), None));
    assert!(status["version"].is_string() && status["startTime"].is_string(), "{status}");
    let stopped = background.corro("stop").ok();
    assert!(stopped.stderr.contains("A server is stopped on its own machine."), "{}", stopped.stderr);
    background.corro("status").ok();
}
