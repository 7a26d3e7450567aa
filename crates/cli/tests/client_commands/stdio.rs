//! Unwritable standard streams and files: the exit code stays the command's own, and the error names the stream.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::site::{Site, text};

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into()
}

#[test]
fn unwritable_streams_change_no_exit_code() {
    let site = Site::new();
    let usual = site.command(&["doctor"]).output().expect("corro starts").status.code();
    let status = site.command(&["doctor"]).stdout(full()).stderr(full()).status().expect("corro starts");
    assert_eq!(status.code(), usual);
    let status = site.command(&["run", "-n", "1", "sh", "-c", "exit 3"]).stderr(full()).status();
    assert_eq!(status.expect("corro starts").code(), Some(3));
}

#[test]
fn unwritable_output_is_not_blamed_on_a_rank() {
    let site = Site::new();
    let script = "echo hello; echo again; exec sleep 0.2";
    let output = site.command(&["run", "-n", "2", "sh", "-c", script]).stdout(full()).stderr(Stdio::piped()).output();
    let output = output.expect("corro starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot write the ranks' output to standard output\n  because: "), "{said}");
    assert!(said.contains("No space left") && !said.contains("rank 0 of"), "{said}");
}

#[test]
fn an_unwritable_output_file_is_named_and_the_terminal_shows_all() {
    let site = Site::new();
    fs::create_dir_all(site.path("logs/rank.0")).expect("made");
    symlink("/dev/full", site.path("logs/rank.0/stdout")).expect("linked");
    let output = site.command(&["run", "-n", "1", "--output-filename", "logs", "sh", "-c", "echo a; echo b"]).output();
    let output = output.expect("corro starts");
    assert_eq!(text(&output.stdout), "[0]<stdout>:a\n[0]<stdout>:b\n");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot keep the ranks' output in logs/rank.0/stdout\n"), "{said}");
}

#[test]
fn an_unknown_option_of_run_is_not_run() {
    let site = Site::new();
    for option in ["--bogus", "-x"] {
        let output = site.run(&format!("run -np 1 {option} true"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("'{option}'")) && said.contains(&format!("-- {option}")), "{said}");
    }
}
