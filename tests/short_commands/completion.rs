//! Shell completion with names of a real server: in bash, zsh and fish, within the deadline, and silent when there is no server.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use corro_test_support::skip;

use crate::harness::Site;
use crate::harness::host::find_program;
use crate::harness::logs::wait_at;

/// What the completion command offers for the last word of the line.
fn offers(site: &Site, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let index = (words.len() - 1).to_string();
    let output = site.command("corro").args(["__complete", "bash", &index]).args(&words).output().expect("corro runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Runs a script in a shell that has `corro` and its completions.
fn in_shell(site: &Site, shell: &str, script: &str) -> Option<String> {
    if find_program(shell).is_none() {
        skip::missing_component(format_args!("no `{shell}` on this machine"));
        return None;
    }
    let written = site.command("corro").args(["completion", shell]).output().expect("corro runs");
    site.write("completions", &written.stdout);
    let path = format!("{}:{}", site.path().display(), std::env::var("PATH").unwrap_or_default());
    let corro = site.command("corro");
    let mut command = Command::new(shell);
    for (name, value) in corro.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    match shell {
        "bash" => command.args(["--norc", "-c", script]),
        "zsh" => command.args(["-f", "-c", script]),
        _ => command.args(["--no-config", "-c", script]),
    };
    let output = command.current_dir(site.path()).env("PATH", path).output().expect("the shell runs");
    assert!(output.stderr.is_empty(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn names_of_the_server_are_offered() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("train-1", 1, "true");
    site.wait_for_end("train-1");
    site.submit_custom("train-2", 1, &wait_at("open"));
    let check = |line: &str, expected: &[&str]| assert_eq!(offers(&site, line), expected, "{line}");
    check("corro job logs ", &["train-2", "train-1"]);
    check("corro job logs t", &["train-2", "train-1"]);
    check("corro job logs cifar/", &["cifar/train-2", "cifar/train-1"]);
    check("corro job stop ", &["train-2"]);
    check("corro fetch train-1", &["train-1"]);
    check("corro job show -e ", &["cifar"]);
    check("corro cluster show ", &["nc6cluster"]);
    check("corro cluster create n", &[]);
    check("corro batchai cluster show -w b", &["batchaidev"]);
    check("corro batchai cluster show -w other -n ", &[]);
    check("corro batchai job show -g batchai.horovod -w batchaidev -e cifar -n ", &["train-2", "train-1"]);
    check("corro group delete -n ", &["batchai.horovod"]);
    check("corro share ls my", &["myshare:"]);
    check("corro storage file list -s ", &["myshare"]);
    check("corro submit train.py --cluster ", &["nc6cluster"]);
    // Local paths and shares.
    site.write("mine.txt", "");
    check("corro share cp m", &["myshare:", "mine.txt"]);
    // What does not depend on a server.
    check("corro job lo", &["logs"]);
    check("corro job list --st", &["--state"]);
    site.corro("job stop train-2").ok();
}

#[test]
fn real_shells_offer_names() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("train-1", 1, "true");
    let bash = "source ./completions; COMP_WORDS=(corro job logs tr); COMP_CWORD=3; COMP_LINE='corro job logs tr'; COMP_POINT=17
        _corro corro tr logs; printf '%s\\n' \"${COMPREPLY[@]}\"
        COMP_WORDS=(corro batchai cluster show --workspace = ba); COMP_CWORD=6; _corro corro ba =; printf '%s\\n' \"${COMPREPLY[@]}\"";
    if let Some(offered) = in_shell(&site, "bash", bash) {
        assert_eq!(offered, "train-1\nbatchaidev\n");
    }
    if let Some(offered) = in_shell(&site, "fish", "source ./completions; complete -C 'corro job logs tr'") {
        assert!(offered.starts_with("train-1\t"), "{offered}");
    }
    // The functions of zsh's completion system are replaced by ones that print.
    let zsh = "compdef() { : }; _describe() { [[ $1 == -V ]] && shift 2; print -l -- ${(P)1} }
        source ./completions; words=(corro job logs tr); CURRENT=4; _corro";
    if let Some(offered) = in_shell(&site, "zsh", zsh) {
        assert!(offered.starts_with("train-1:"), "{offered}");
    }
}

#[test]
fn without_an_answer_completion_is_quick_and_silent() {
    let site = Site::start();
    // A server that accepts connections and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let check = |server: &str| {
        let began = Instant::now();
        let mut command = site.command("corro");
        let output =
            command.args(["__complete", "bash", "3", "corro", "job", "logs", ""]).env("CORRO_SERVER", server).output();
        let output = output.expect("corro runs");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!String::from_utf8_lossy(&output.stdout).contains("train"));
        began.elapsed()
    };
    // The deadline is 300 ms; starting the program on a loaded machine takes the rest.
    let waited = check(&address);
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    check("http://127.0.0.1:1");
    // No login, and a configuration that others may write to, are no reason to say anything either.
    std::fs::remove_dir_all(site.path().join("config")).expect("the login");
    site.write("corro.toml", "broken =");
    std::fs::set_permissions(site.path().join("corro.toml"), std::fs::Permissions::from_mode(0o666)).expect("a mode");
    assert!(offers(&site, "corro job logs ").iter().all(|offered| offered.starts_with('-')));
}
