//! Names of jobs and clusters: unique, ambiguous, fixed by options or defaults, and unknown.

use crate::harness::logs::wait_at;
use crate::harness::{CommandOutput, IN_WORKSPACE, Site};

/// Runs a command in a directory of the site, which is created.
fn run_in(site: &Site, dir: &str, line: &str) -> CommandOutput {
    let dir = site.path().join(dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut command = site.command("corro");
    CommandOutput::from(command.args(line.split(' ')).current_dir(dir).output().expect("the command runs"))
}

fn run_with(site: &Site, variable: (&str, &str), line: &str) -> CommandOutput {
    let mut command = site.command("corro");
    CommandOutput::from(command.args(line.split(' ')).env(variable.0, variable.1).output().expect("the command runs"))
}

#[test]
fn jobs_are_found_by_their_names() {
    let site = Site::start();
    site.prepare(1);
    run_with(&site, ("AZURE_DEFAULTS_GROUP", "other"), "job list").ok();
    let none = site.corro("job show").fails(3, &["there is no job yet", "corro submit SCRIPT"]);
    assert_eq!(none.stdout, "");
    site.submit_custom("held", 1, &wait_at("open"));
    site.wait_for_state("held", &["running"]);
    site.submit_custom("twin", 1, "true");
    site.corro(&format!("batchai experiment create {IN_WORKSPACE} -n mnist")).ok();
    site.corro(&format!(
        "batchai job create {IN_WORKSPACE} -e mnist -c nc6cluster -n twin -f twin.json --storage-account-name mystorageaccount"
    ))
    .ok();

    // Unique.
    let shown = site.corro("job show held").ok().stdout;
    assert!(
        shown.starts_with("Job held of experiment cifar, workspace batchaidev, resource group batchai.horovod\n"),
        "{shown}"
    );
    assert!(shown.contains("State:     running for ") && shown.contains("1 node of cluster nc6cluster"), "{shown}");
    assert!(site.corro("job why HELD").ok().stdout.contains("runs on 1 node"));
    assert_eq!(
        site.corro("job show held -o json").json(),
        site.job("held"),
        "programs get what 'batchai job show' prints"
    );

    // Ambiguous: options, the name, a default or the project's directory decide.
    let both = ["there are 2 named twin", "  twin -g batchai.horovod -w batchaidev -e cifar\n", "-e mnist\n"];
    site.corro("job show twin").fails(2, &both);
    let experiment = |output: CommandOutput| {
        let id = output.json()["id"].as_str().expect("an id").to_owned();
        id.split('/').nth(10).map(str::to_owned)
    };
    let of = |name: &str| Some(name.to_owned());
    assert_eq!(experiment(site.corro("job show twin -e mnist -o json")), of("mnist"));
    assert_eq!(experiment(site.corro("job show mnist/twin -o json")), of("mnist"));
    assert_eq!(experiment(site.corro("job show batchaidev/cifar/twin -o json")), of("cifar"));
    assert_eq!(experiment(run_in(&site, "mnist", "job show twin -o json")), of("mnist"));
    let default = ("AZURE_DEFAULTS_EXPERIMENT", "cifar");
    assert_eq!(experiment(run_with(&site, default, "job show twin -o json")), of("cifar"));
    site.corro("job show mnist/twin -e cifar").fails(2, &["the experiment is 'mnist' in the name of the job"]);

    // None, and none where the default says.
    site.corro("job logs hled").fails(3, &["there is no job hled", "did you mean held?"]);
    let elsewhere = ["there is no job held in experiment mnist (from AZURE_DEFAULTS_EXPERIMENT)", "-e cifar"];
    run_with(&site, ("AZURE_DEFAULTS_EXPERIMENT", "mnist"), "job why held").fails(3, &elsewhere);

    // No name: the newest job, of the project if it has one. Only where nothing is changed.
    let newest = run_in(&site, "cifar", "job show").ok();
    assert!(newest.stderr.contains("The newest job is twin of experiment cifar."), "{}", newest.stderr);
    assert!(site.corro("job why").ok().stderr.contains("The newest job is twin of experiment mnist."));
    site.corro("job stop").fails(2, &["NAME"]);

    // The list.
    let listed = site.corro("job list").ok().stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("NAME  STATE    EXPERIMENT  NODES  STARTED"), "{listed}");
    assert!(lines[1].starts_with("twin  queued   mnist           1"), "{listed}");
    assert!(lines[2].starts_with("twin  queued   cifar           1"), "{listed}");
    assert!(lines[3].starts_with("held  running  cifar           1"), "{listed}");
    assert_eq!(site.corro("job list --state running -o tsv --query [].name").ok().stdout, "held\n");
    assert_eq!(site.corro("job list -e mnist -o json").json().as_array().map(Vec::len), Some(1));
    assert_eq!(run_with(&site, default, "job list --limit 1 -o tsv --query [].experiment").ok().stdout, "cifar\n");
    assert_eq!(run_with(&site, default, "job list --all -o json").json().as_array().map(Vec::len), Some(3));
    site.corro("job list --state done").fails(2, &["'done' is not a job's state"]);

    // Stopping, deleting and waiting.
    assert_eq!(site.corro("job stop held").ok().stdout, "Stopped job held of experiment cifar\n");
    assert_eq!(site.corro("job stop held").ok().stdout, "Job held has ended already: it failed\n");
    site.corro("job delete cifar/twin").fails(1, &["Use --yes"]);
    let deleted = site.corro("job delete cifar/twin -y").ok().stdout;
    assert_eq!(deleted, "Job twin of experiment cifar is deleted; its output stays on the share\n");
    site.corro("job wait twin").ok();
    site.corro("job wait held").fails(255, &["failed"]);
}

#[test]
fn clusters_are_created_shown_resized_and_deleted() {
    let site = Site::start();
    site.corro("cluster list").ok();
    site.corro("cluster show").fails(3, &["there is no cluster", "corro cluster create NAME"]);
    let created = site.corro("cluster create small --nodes 2").ok();
    assert!(created.stderr.contains("Created resource group default, workspace default"), "{}", created.stderr);
    assert!(
        created.stdout.starts_with("Created cluster small in workspace default: 2 nodes, STANDARD_D2_V2 (2 cores"),
        "{}",
        created.stdout
    );
    crate::harness::wait_for("two nodes", || {
        site.corro("cluster show").ok().stdout.starts_with("Cluster small: 2 nodes ready\n")
    });
    let listed = site.corro("cluster list").ok().stdout;
    assert!(listed.contains("small  2 nodes ready  STANDARD_D2_V2  2 nodes\n"), "{listed}");
    assert_eq!(site.corro("cluster list -o tsv --query [].name").ok().stdout, "small\n");
    site.corro("cluster create small --nodes 1").fails(1, &["already exists", "corro cluster resize small"]);
    let resized = site.corro("cluster resize small --max 3").ok().stdout;
    assert!(resized.starts_with("Cluster small is resized to 0 to 3 nodes as jobs need them\n"), "{resized}");
    site.corro("cluster create gpus --gpus 1").ok();
    site.corro("cluster show").fails(2, &["the name of a cluster is required: there are 2"]);
    site.corro("cluster resize smal --nodes 1").fails(3, &["there is no cluster smal", "did you mean small?"]);
    site.corro("cluster delete gpus").fails(1, &["Use --yes"]);
    assert_eq!(site.corro("cluster delete gpus -y").ok().stdout, "Cluster gpus is deleted\n");
    assert_eq!(site.corro("cluster show -o json").json()["name"], "small");
}

#[test]
fn a_page_of_the_dashboard_is_opened_by_the_jobs_name() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("done", 1, "true");
    let link = site.corro("job open done --print").ok().stdout;
    let page = format!("{}/ui/jobs/batchai.horovod:batchaidev/cifar/done#token=", site.url);
    assert!(link.starts_with(&page), "{link}");
    site.corro("job open --print nothing").fails(3, &["there is no job nothing"]);
}

#[test]
fn commands_of_other_tools_name_ours() {
    let run = |line: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_corro")).args(line.split(' ')).output();
        CommandOutput::from(output.expect("corro runs"))
    };
    run("logs train-1").fails(2, &["unrecognized subcommand 'logs'", "tip: use 'corro job logs train-1'"]);
    run("ps").fails(2, &["tip: use 'corro job list'"]);
    run("job cancel x").fails(2, &["tip: use 'corro job stop x'"]);
    run("job x-1").fails(2, &["tip: use 'corro job show x-1'"]);
}
