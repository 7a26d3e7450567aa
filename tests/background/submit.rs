//! The server that `corro submit` starts where none runs.

use crate::harness::CommandOutput;
use crate::harness::terminal::Terminal;
use crate::site::BackgroundSite;

const QUESTION: &str = "No server is running. Start one in the background on this machine? [Y/n]";

/// A site with a project, whose commands run in the project.
fn project() -> BackgroundSite {
    let background = BackgroundSite::new();
    std::fs::create_dir(background.site.path().join("cifar")).expect("a directory");
    background.site.write("cifar/work.sh", "echo worked\n");
    background
}

fn submit(background: &BackgroundSite, line: &str) -> std::process::Command {
    let mut command = background.command(line);
    command.current_dir(background.site.path().join("cifar"));
    command
}

/// The port of a server that is started without options is fixed, so it may be in use on this machine: then these tests give the profile another one.
fn with_free_port(background: &BackgroundSite) {
    background.corro("up --detach --listen 127.0.0.1:0 --nfs off").ok();
    background.corro("stop").ok();
}

#[test]
fn without_a_server_and_a_terminal_the_error_says_how_to_start_one() {
    let background = project();
    let failed = submit(&background, "submit -- sh work.sh").output().expect("it runs");
    let failed =
        CommandOutput::from(failed).fails(1, &["error: no server is running", "corro up --detach", "corro login"]);
    assert_eq!(failed.stdout, "");
    assert!(!background.default_data().exists(), "nothing was started");
    // A dry run needs none.
    CommandOutput::from(submit(&background, "submit --dry-run -- sh work.sh").output().expect("it runs")).ok();
}

#[test]
fn a_server_is_started_without_a_question_with_yes_and_kept() {
    let background = project();
    with_free_port(&background);
    let first = submit(&background, "submit --yes -- sh work.sh").output().expect("it runs");
    let first = CommandOutput::from(first).ok();
    assert_eq!(first.stdout, "worked\n", "{}", first.stderr);
    assert!(first.stderr.contains("A server runs in the background now: http://127.0.0.1:"), "{}", first.stderr);
    let second = CommandOutput::from(submit(&background, "submit --yes -- sh work.sh").output().expect("it runs")).ok();
    assert!(!second.stderr.contains("A server runs in the background now"), "{}", second.stderr);
    assert_eq!(background.servers().len(), 1);
}

#[test]
fn two_submissions_at_once_start_one_server() {
    let background = project();
    with_free_port(&background);
    let start = || {
        let mut command = submit(&background, "submit --yes -- sh work.sh");
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("it starts")
    };
    let children = [start(), start()];
    for child in children {
        let ended = CommandOutput::from(child.wait_with_output().expect("it ends")).ok();
        assert_eq!(ended.stdout, "worked\n", "{}", ended.stderr);
    }
    assert_eq!(background.servers().len(), 1);
}

#[test]
fn on_a_terminal_it_asks_first() {
    let background = project();
    with_free_port(&background);
    let mut terminal = Terminal::start(submit(&background, "submit -- sh work.sh"), 120, 30);
    terminal.wait_for_output(QUESTION);
    terminal.type_keys(b"n\r");
    assert_eq!(terminal.code(), Some(1));
    terminal.wait_for_output("no server is running");
    assert_eq!(background.servers().len(), 0);
    let mut terminal = Terminal::start(submit(&background, "submit -- sh work.sh"), 120, 30);
    terminal.wait_for_output(QUESTION);
    terminal.type_keys(b"\r");
    assert_eq!(terminal.code(), Some(0));
    terminal.wait_for_output("worked");
    assert_eq!(background.servers().len(), 1);
}
