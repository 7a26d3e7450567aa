//! The shell blocks of the documentation, run as a reader would: page by page, in order, each page on a server of its own.

mod harness;

use std::path::Path;
use std::process::{Command, Stdio};

use corro_docs::examples::{Step, steps};
use harness::{CommandOutput, Site};

/// Timeout of one page's commands.
const PAGE_TIMEOUT: &str = "300";

#[test]
fn users_pages_work_as_written() {
    pages_work(|path| path.starts_with("users/"));
}

#[test]
fn operators_pages_work_as_written() {
    pages_work(|path| path.starts_with("operators/"));
}

#[test]
fn other_pages_work_as_written() {
    pages_work(|path| !path.starts_with("users/") && !path.starts_with("operators/"));
}

/// The commands of README's quickstart, with the files of the book's.
#[test]
fn the_readmes_quickstart_works_as_written() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("the repository has it");
    let page = corro_docs::lookup::find("users/quickstart").expect("the page").markdown;
    let files = steps(page).into_iter().filter(|step| matches!(step, Step::WriteFile { .. }));
    let is_quickstart = |step: &Step| matches!(step, Step::Run(commands) if commands.contains("corro submit"));
    let commands: Vec<Step> = steps(&readme).into_iter().filter(is_quickstart).collect();
    assert_eq!(commands.len(), 1, "README has one block that submits a job");
    let output = follow(&files.chain(commands).collect::<Vec<_>>());
    assert_eq!(output.code, 0, "{}", output.stdout);
    assert!(output.stdout.contains("[3] rank 3 of 4: step=5"), "{}", output.stdout);
}

#[test]
fn the_reference_of_commands_is_current() {
    let output = Command::new(env!("CARGO_BIN_EXE_corro")).args(["reference", "--markdown"]).output();
    let generated = CommandOutput::from(output.expect("corro runs")).ok().stdout;
    let page = corro_docs::lookup::find("reference/cli").expect("the page").markdown;
    let differing = generated.lines().zip(page.lines()).find(|(new, old)| new != old);
    assert!(generated == page, "docs/src/reference/cli.md is stale, run scripts/docs; first difference: {differing:?}");
}

/// Runs every page with steps; names all pages that fail.
fn pages_work(is_wanted: impl Fn(&str) -> bool) {
    let mut failures = Vec::new();
    for page in corro_docs::pages().filter(|page| is_wanted(page.path)) {
        let steps = steps(page.markdown);
        if steps.iter().any(|step| matches!(step, Step::Run(_))) {
            let ended = follow(&steps);
            if ended.code != 0 {
                failures.push(format!("== {}: exit code {}\n{}{}", page.path, ended.code, ended.stdout, ended.stderr));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs the steps as one script in an empty directory, on a new server.
fn follow(steps: &[Step]) -> CommandOutput {
    let site = Site::start();
    let work = site.path().join("work");
    std::fs::create_dir(&work).expect("a directory");
    // Each command is printed before it runs, so that a failure shows where it was.
    let mut script = String::from("set -euo pipefail\nexec 2>&1\nset -x\n");
    for step in steps {
        match step {
            Step::Run(commands) => script.push_str(commands),
            Step::WriteFile { name, text } => {
                script.push_str(&format!("cat >{name} <<'END-OF-THE-FILE'\n{text}END-OF-THE-FILE\n"));
            }
        }
    }
    site.write("page.sh", script);
    let corro = site.command("corro");
    let path = format!("{}:{}", site.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PAGE_TIMEOUT, "bash"]).arg(site.path().join("page.sh"));
    for (name, value) in corro.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.current_dir(&work).env("PATH", path).stdin(Stdio::null()).output();
    CommandOutput::from(output.expect("bash runs"))
}
