//! Shell completion without a server, in real shells: bash through its completion functions, and zsh and fish where installed. Names of a server are in
//! `short_commands/completion.rs`.

mod harness;

use std::process::Command;

use corro_test_support::skip;

use harness::host::find_program;

/// Output of `shell` when it runs `script` with the completions of `program` in the file `$1`.
fn run(shell: &str, program: &str, script: &str) -> Option<String> {
    if find_program(shell).is_none() {
        skip::missing_component(format_args!("no `{shell}` on this machine"));
        return None;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let link = dir.path().join(program);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_corro"), &link).expect("a link");
    let written = Command::new(&link).args(["completion", shell]).output().expect("corro runs");
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let file = dir.path().join("completions");
    std::fs::write(&file, written.stdout).expect("a file");
    let mut command = Command::new(shell);
    match shell {
        "bash" => command.args(["--norc", "-c", script, shell]),
        _ => command.args(["-c", script]),
    };
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
    let home = dir.path().join("home");
    let output = command.arg(&file).env("PATH", path).env("HOME", &home).env("CORRO_CONFIG_DIR", &home).output();
    let output = output.expect("the shell runs");
    assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Completions that bash offers for the last word of the line.
fn bash_offers(program: &str, line: &str) -> Option<Vec<String>> {
    let script = format!(
        "source \"$1\"; complete -p {program} > /dev/null || exit 1
         COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE=\"${{COMP_WORDS[*]}}\"
         COMP_POINT=${{#COMP_LINE}}; COMPREPLY=()
         _{program} {program} \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    run("bash", program, &script).map(|offered| offered.lines().map(str::to_owned).collect())
}

#[test]
fn bash_completes_commands_options_and_values() {
    let check = |program: &str, line: &str, expected: &[&str]| {
        if let Some(offered) = bash_offers(program, line) {
            assert_eq!(offered, expected, "{line}");
        }
    };
    check("corro", "corro ba", &["batchai"]);
    check("corro", "corro batchai cluster au", &["auto-scale"]);
    check("corro", "corro batchai job node ex", &["exec"]);
    check("corro", "corro batchai cluster auto-scale --m", &["--min", "--max"]);
    check("corro", "corro batchai cluster show --output t", &["table", "tsv"]);
    check("corro", "corro storage file upl", &["upload", "upload-batch"]);
    check("corro", "corro tr", &["train"]);
    check("corro", "corro batchai cluster show --output = t", &["table", "tsv"]);
    check("corro", "corro __com", &[""]);
    check("corro", "corro run --glo", &[""]);
    check("az", "az batchai workspace sh", &["show"]);
    check("az", "az batchai workspace show --work", &["--workspace"]);
}

#[test]
fn every_shell_takes_its_script() {
    for program in ["corro", "az"] {
        if let Some(said) = run("bash", program, &format!("source \"$1\" && complete -p {program}")) {
            assert!(said.contains(&format!("-F _{program} {program}")), "{said}");
        }
        run("zsh", program, "zsh -n \"$0\"");
        if let Some(said) = run("fish", program, &format!("source $argv[1]; complete -C '{program} batch'")) {
            assert!(said.starts_with("batchai"), "{said}");
        }
    }
}

#[test]
fn another_shell_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_corro")).args(["completion", "csh"]).output().expect("corro runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("use 'bash', 'zsh' or 'fish'"));
}
