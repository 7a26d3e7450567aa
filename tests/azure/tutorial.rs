//! The tutorial with the real `az`, every command as written there; then the same resources shown by it and by ours, which must
//! print the same bytes. Tables are compared by cell: ours are aligned as in the tutorial, to the byte, but later versions of
//! `az` align numbers as text.

use regex::Regex;

use super::harness::IN_WORKSPACE;
use super::real::RealSite;
use super::runner::{self, TutorialRunner, cells};
use super::texts::COMMANDS;

/// Commands that show the tutorial's resources, in a syntax that both command lines accept.
const SHOWN: [&str; 12] = [
    "group show -n batchai.horovod",
    "group list",
    "batchai workspace show -g batchai.horovod -n batchaidev",
    "batchai workspace list -g batchai.horovod",
    "batchai experiment list IN",
    "batchai cluster show IN -n nc6cluster",
    "batchai cluster list IN",
    "batchai job show IN -e cifar -n cifar_distributed",
    "batchai job list IN -e cifar",
    "storage account show -g batchai.horovod -n mystorageaccount",
    "storage share list --account-name mystorageaccount",
    "storage file list -s myshare -p cifar --account-name mystorageaccount",
];
/// Others, each in one format only: starting the real one takes a second.
const ALSO_SHOWN: [&str; 14] = [
    "group exists -n batchai.horovod",
    "group show -n batchai.horovod -o tsv",
    "batchai experiment show IN -n cifar",
    "batchai cluster node list IN -c nc6cluster -o table",
    "batchai cluster show IN -n nc6cluster --query nodeStateCounts -o tsv",
    "batchai cluster list IN --query [].{Name:name,Nodes:currentNodeCount} -o table",
    "batchai job show IN -e cifar -n cifar_distributed --query executionInfo",
    "batchai job file list IN -e cifar -j cifar_distributed",
    "batchai list-usages -l eastus -o table",
    "storage account list -g batchai.horovod --query [].name -o tsv",
    "storage account keys list -g batchai.horovod -n mystorageaccount",
    "storage share show -n myshare --account-name mystorageaccount",
    "storage directory show -n cifar -s myshare --account-name mystorageaccount",
    "storage file show -s myshare -p cifar/cifar_cnn_distributed.py --account-name mystorageaccount",
];

#[test]
fn the_tutorial_with_the_real_az() {
    let Some(tools) = runner::tools() else { return };
    let tools: Vec<_> = tools.iter().map(|(name, script)| (*name, script.as_str())).collect();
    let Some(real) = RealSite::start_with("az", &tools) else { return };
    let [theirs, ours] = ["az", "ours"].map(|program| {
        let mut runner = TutorialRunner::new(&real.site, program);
        runner.set_up();
        runner.watch_job();
        runner.read_output();
        runner.fetch_model();
        if program == "az" {
            both_show_the_same(&real);
        }
        runner.scale_to_zero();
        runner.delete_all();
        runner.assert_all_run();
        // So that the other creates a key too.
        std::fs::remove_dir_all(real.site.home().join(".ssh")).expect("a key was made");
        runner.outputs
    });
    for (number, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        // Tables and transient states were checked by the runner.
        if COMMANDS[number].contains("--output table") || COMMANDS[number].contains("executionState") {
            continue;
        }
        assert_eq!(without_chance(ours), without_chance(theirs), "command {} of the tutorial", number + 1);
    }
}

fn both_show_the_same(real: &RealSite) {
    real.site.wait_for_nodes(4);
    let formats = ["", " -o table", " -o tsv"];
    let in_every_format = SHOWN.iter().flat_map(|line| formats.map(|format| format!("{line}{format}")));
    let is_same = |line: &str, theirs: &str, ours: &str| match line.contains("-o table") {
        true => cells(theirs) == cells(ours),
        // A link contains its expiry time.
        false => without_links(theirs) == without_links(ours),
    };
    compare(real, in_every_format.chain(ALSO_SHOWN.map(str::to_owned)), is_same);
}

#[test]
fn tables_are_aligned_as_in_the_tutorials_own_az() {
    let Some(real) = RealSite::start_with("az38", &[]) else { return };
    real.site.prepare(1);
    real.site.submit_custom("cifar_distributed", 1, "echo hello");
    real.site.wait_for_end("cifar_distributed");
    real.site.wait_for_nodes(1);
    let tables = SHOWN.iter().map(|line| format!("{line} -o table"));
    let more =
        ["batchai job file list IN -e cifar -j cifar_distributed -o table", "batchai list-usages -l eastus -o table"];
    compare(&real, tables.chain(more.map(str::to_owned)), |_, theirs, ours| theirs == ours);
}

fn compare(real: &RealSite, lines: impl Iterator<Item = String>, is_same: impl Fn(&str, &str, &str) -> bool) {
    let mut differing = Vec::new();
    for line in lines {
        let line = line.replace("IN", IN_WORKSPACE);
        let [theirs, ours] = [real.az(&line), real.corro(&line)].map(|ended| ended.ok().stdout);
        if !is_same(&line, &theirs, &ours) {
            differing.push(format!("{line}\naz: {theirs}\ncorro: {ours}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

fn without_links(text: &str) -> String {
    let until = Regex::new(r"(se|sig)=[A-Za-z0-9%.-]+").expect("a pattern");
    until.replace_all(text, "$1=").into_owned()
}

/// Removes values that differ between two runs of the same command: times, random ids, generated keys, and whether the nodes
/// and the job had already started.
fn without_chance(text: &str) -> String {
    let chance = [
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(\+00:00|Z)", "TIME"),
        (r"tvm-[0-9]+_([0-9])-[0-9tz]+-p", "node$1"),
        (r"jobs/cifar_distributed/[0-9a-f-]{36}", "jobs/cifar_distributed/GUID"),
        (r"ssh-rsa [A-Za-z0-9+/=]+[^\x22]*", "KEY"),
        (r"0x[0-9A-Fa-f]+", "ETAG"),
        (r#""(allocationState|executionState)": "[a-z]+""#, r#""$1": STATE"#),
        (r#""executionInfo": (null|\{[^}]*\})"#, r#""executionInfo": INFO"#),
        // Only ours shows the reason why a job waits.
        (r#",[ \n]+"waiting": \{[^}]*\}"#, ""),
        (r#",[ \n]+"waitingFor": "[^"]*""#, ""),
        (r#""([a-z]+NodeCount)": [0-9]"#, r#""$1": N"#),
    ];
    chance.iter().fold(text.to_owned(), |text, (pattern, word)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *word).into_owned()
    })
}
