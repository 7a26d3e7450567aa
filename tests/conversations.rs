//! Recorded command-line sessions with a real server: every command line with its standard output, standard error and exit
//! code. The texts are in `conversations/*.txt`; `CORRO_REWRITE=1` records them again, to be reviewed before they are
//! committed. The format is documented in `conversation/mod.rs`.

mod conversation;
mod harness;

use std::collections::BTreeSet;
use std::path::PathBuf;

macro_rules! conversations {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                conversation::check(&texts().join(concat!(stringify!($name), ".txt")));
            }
        )*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

conversations! {
    groups
    workspaces
    experiments
    cluster_create
    clusters
    mounts
    auto_storage
    setup_task
    nodes
    jobs
    job_failures
    job_files
    file_servers
    usages
    global_arguments
    help
    short_commands
    background
}

fn texts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conversations")
}

#[test]
fn every_text_is_checked() {
    let files = std::fs::read_dir(texts()).expect("the folder").flatten();
    let files: BTreeSet<String> =
        files.filter_map(|file| file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned())).collect();
    let names: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(files, names);
}

/// All commands of `az batchai`.
const COMMANDS: [&str; 32] = [
    "workspace create",
    "workspace show",
    "workspace list",
    "workspace delete",
    "experiment create",
    "experiment show",
    "experiment list",
    "experiment delete",
    "cluster create",
    "cluster show",
    "cluster list",
    "cluster delete",
    "cluster resize",
    "cluster auto-scale",
    "cluster node list",
    "cluster node exec",
    "cluster file list",
    "job create",
    "job show",
    "job list",
    "job delete",
    "job terminate",
    "job wait",
    "job file list",
    "job file stream",
    "job node list",
    "job node exec",
    "file-server create",
    "file-server show",
    "file-server list",
    "file-server delete",
    "list-usages",
];

/// Each command occurs at least once with success and once with an error.
#[test]
fn every_command_is_spoken() {
    if std::env::var_os("CORRO_REWRITE").is_some() {
        return;
    }
    let texts: Vec<String> = NAMES
        .iter()
        .map(|name| std::fs::read_to_string(texts().join(format!("{name}.txt"))).expect("a text"))
        .collect();
    for command in COMMANDS {
        let ends: BTreeSet<bool> =
            texts.iter().flat_map(|text| conversation::command_results(text, &format!("batchai {command} "))).collect();
        assert_eq!(ends, BTreeSet::from([false, true]), "{command}: with success and without");
    }
}
