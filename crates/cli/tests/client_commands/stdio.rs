//! Streams that take nothing: the exit code stays the command's own, and what could not be written is named.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::world::{World, text};

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into()
}

#[test]
fn talk_that_nobody_takes_changes_no_exit_code() {
    let world = World::new();
    let usual = world.command(&["doctor"]).output().expect("corro starts").status.code();
    let status = world.command(&["doctor"]).stdout(full()).stderr(full()).status().expect("corro starts");
    assert_eq!(status.code(), usual);
    let status = world.command(&["run", "-n", "1", "sh", "-c", "exit 3"]).stderr(full()).status();
    assert_eq!(status.expect("corro starts").code(), Some(3));
}

#[test]
fn a_full_disk_is_not_the_ranks_fault() {
    let world = World::new();
    let script = "echo hello; echo again; exec sleep 0.2";
    let output = world.command(&["run", "-n", "2", "sh", "-c", script]).stdout(full()).stderr(Stdio::piped()).output();
    let output = output.expect("corro starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot write the ranks' output to standard output\n  because: "), "{said}");
    assert!(said.contains("No space left") && !said.contains("rank 0 of"), "{said}");
}

#[test]
fn a_copy_that_fails_is_named_and_the_terminal_shows_all() {
    let world = World::new();
    fs::create_dir_all(world.path("logs/rank.0")).expect("made");
    symlink("/dev/full", world.path("logs/rank.0/stdout")).expect("linked");
    let output = world.command(&["run", "-n", "1", "--output-filename", "logs", "sh", "-c", "echo a; echo b"]).output();
    let output = output.expect("corro starts");
    assert_eq!(text(&output.stdout), "[0]<stdout>:a\n[0]<stdout>:b\n");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot keep the ranks' output in logs/rank.0/stdout\n"), "{said}");
}

#[test]
fn an_unknown_option_of_run_is_not_run() {
    let world = World::new();
    for option in ["--bogus", "-x"] {
        let output = world.run(&format!("run -np 1 {option} true"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("'{option}'")) && said.contains(&format!("-- {option}")), "{said}");
    }
}
