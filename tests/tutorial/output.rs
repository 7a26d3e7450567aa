//! Output formats of a real response, and the confirmation prompt before a deletion.

use crate::harness::{GROUP, IN_WORKSPACE, Site};
use serde_json::Value;

const QUESTION: &str = "Are you sure you want to perform this operation? (y/n): ";

#[test]
fn answers_come_in_every_format() {
    let site = Site::start();
    site.prepare(1);
    let says = |line: &str, expected: &str| assert_eq!(site.corro(line).ok().stdout, expected, "{line}");
    let group = site.corro("group show -n batchai.horovod").ok().stdout;
    let id = serde_json::from_str::<Value>(&group).expect("JSON")["id"].as_str().expect("an id").to_owned();
    says("group show -n batchai.horovod -o json", &group);
    says("group show -n batchai.horovod --output jsonc", &group);
    says(
        "group show -n batchai.horovod --output yaml",
        &format!(
            "id: {id}\nlocation: eastus\nmanagedBy: null\nname: {GROUP}\nproperties:\n  provisioningState: Succeeded\ntags: null\n"
        ),
    );
    says("group show -n batchai.horovod --output tsv", &format!("{id}\teastus\tNone\t{GROUP}\t\tNone\n"));
    says("group list --query [].name -o tsv", "batchai.horovod\n");
    says("group list --query [0].name", "\"batchai.horovod\"\n");
    says("group list --query [?location=='westus']", "[]\n");
    says("group list --query [?location=='westus'] -o table", "");
    says("group list --query missing", "");
    says(
        "group list --query [].{Group:name,Where:location} -o table",
        "Group            Where\n---------------  -------\nbatchai.horovod  eastus\n",
    );

    let cluster = format!("batchai cluster show {IN_WORKSPACE} -n nc6cluster");
    says(&format!("{cluster} --query nodeStateCounts.idleNodeCount"), "1\n");
    says(&format!("{cluster} --query [name,nodeStateCounts.idleNodeCount] -o tsv"), "nc6cluster\n1\n");
    says(
        &format!("{cluster} --query scaleSettings -o yaml"),
        "autoScale: null\nmanual:\n  nodeDeallocationOption: requeue\n  targetNodeCount: 1\n",
    );
    says(
        &format!("batchai cluster list {IN_WORKSPACE} -o table"),
        "Name        Resource Group    Workspace    VM Size       State      Idle    Running    Preparing    Leaving    Unusable\n\
         ----------  ----------------  -----------  ------------  -------  ------  ---------  -----------  ---------  ----------\n\
         nc6cluster  batchai.horovod   batchaidev   STANDARD_NC6  steady        1          0            0          0           0\n",
    );
    says(
        &format!("batchai experiment list {IN_WORKSPACE} -o table"),
        "Name    Resource Group    Workspace    State\n------  ----------------  -----------  ---------\n\
         cifar   batchai.horovod   batchaidev   succeeded\n",
    );
    says(
        "batchai workspace list -o table",
        "Name        Resource Group    Location    State\n----------  ----------------  ----------  ---------\n\
         batchaidev  batchai.horovod   eastus      succeeded\n",
    );

    let jobs = format!("batchai job list {IN_WORKSPACE} -e cifar -o table");
    says(&jobs, "");
    site.submit_custom("first", 1, "exit 3");
    site.wait_for_end("first");
    says(
        &jobs,
        "Name    Cluster     Cluster RG       Cluster Workspace    Tool      Nodes  State      Exit code\n\
         ------  ----------  ---------------  -------------------  ------  -------  -------  -----------\n\
         first   nc6cluster  batchai.horovod  batchaidev           custom        1  failed             3\n",
    );
    let job = site.job("first");
    for name in ["creationTime", "executionStateTransitionTime"] {
        let time = job[name].as_str().expect("a time");
        assert!(time.ends_with("+00:00") && !time.contains('Z'), "{name}: {time}");
    }
    assert_eq!(job["constraints"]["maxWallClockTime"], "7 days, 0:00:00");
    assert_eq!(job["cluster"]["resourceGroup"], GROUP);
    assert!(job.get("experimentName").is_none(), "a field az does not know: {job}");

    let wrong = site.corro("group list --query [");
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert_eq!(site.corro("group list -o xml").code, 2);
}

/// Only on a terminal: scripts get neither bar nor spinner.
#[test]
fn transfers_are_shown_on_a_terminal() {
    let site = Site::start();
    site.prepare(0);
    site.write("data.bin", vec![b'x'; 9 << 20]);
    let upload = "storage file upload --path cifar -s myshare --account-name mystorageaccount --source data.bin";
    assert_eq!(site.corro(upload).ok().stderr, "");
    let Some(shown) = site.on_terminal("corro", upload, "Finished[", "") else { return };
    let bar = format!("Finished[{}]  100.0000%", "#".repeat(61));
    assert!(shown.code == 0 && shown.stdout.contains(&bar), "{:?}", shown.stdout);
    let quiet = site.on_terminal("corro", &format!("{upload} --no-progress"), "\n", "");
    assert_eq!(quiet.map(|shown| (shown.code, shown.stdout)), Some((0, String::new())));
}

#[test]
fn deleting_asks_first() {
    let site = Site::start();
    let make = || site.corro("group create -n batchai.horovod -l eastus").ok();
    let exists = || site.corro("group exists -n batchai.horovod").ok().stdout;
    make();
    let refused = site.corro("group delete --name batchai.horovod");
    let refused = refused.fails(1, &["Unable to prompt for confirmation as no tty available. Use --yes."]);
    assert_eq!((refused.stdout.as_str(), exists().as_str()), ("", "true\n"));

    let Some(no) = site.on_terminal("corro", "group delete --name batchai.horovod", QUESTION, "n\n") else { return };
    assert_eq!((no.code, exists().as_str()), (1, "true\n"), "{}", no.stdout);
    assert!(no.stdout.contains("Operation cancelled."), "{}", no.stdout);
    let yes = site.on_terminal("corro", "group delete --name batchai.horovod", QUESTION, "perhaps\ny\n");
    let yes = yes.expect("there is a terminal");
    assert_eq!((yes.code, exists().as_str()), (0, "false\n"), "{}", yes.stdout);
    assert_eq!(yes.stdout.matches(QUESTION).count(), 2, "an answer that is none is asked for again: {}", yes.stdout);

    make();
    assert_eq!(site.corro("group delete --name batchai.horovod --yes").ok().stdout, "");
    assert_eq!(exists(), "false\n");
}
