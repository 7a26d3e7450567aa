//! The cluster's setup task on a node: when it runs, what it sees, what its failure means, and that nothing of it is
//! left.

mod common;

use std::process::Stdio;

use common::*;
use corro_agent::AgentEnd;
use corro_model::Secret;
use corro_model::batchai::EnvironmentVariable;
use corro_model::node::{DesiredNode, DesiredTask, Goal, ObservedNode, SetupOrder, TaskSecret, Volume};

const CLUSTER: &str = "sub/rg/workspaces/w/clusters/c/guid";

fn setup(command: &str) -> SetupOrder {
    SetupOrder {
        command: command.into(),
        std_out_err_path_prefix: "$AZ_BATCHAI_MOUNT_ROOT/logs/setup".into(),
        segment: CLUSTER.into(),
        environment: vec![EnvironmentVariable { name: "WHERE".into(), value: "$AZ_BATCHAI_STDOUTERR_DIR".into() }],
        secrets: vec![TaskSecret { name: "KEY".into(), value: Secret::new("pass$word") }],
        shows_secrets: false,
    }
}

/// The share is mounted at cluster level; the setup task writes to it.
fn desired(world: &World, command: &str) -> DesiredNode {
    let volumes: Vec<Volume> = world.order("true").volumes;
    DesiredNode { volumes, setup: Some(setup(command)), ..DesiredNode::default() }
}

fn is_free(node: &ObservedNode) -> bool {
    node.ready && node.task.is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_ready_when_its_setup_task_has_succeeded() {
    let world = World::new().await;
    let logs = world.share.join("setup").join(CLUSTER);
    let wanted = desired(
        &world,
        "echo $KEY in $WHERE; echo warning >&2; touch $AZ_BATCHAI_MOUNT_ROOT/logs/begun; \
         until [ -e $AZ_BATCHAI_MOUNT_ROOT/logs/go ]; do sleep 0.02; done",
    );
    world.node.want(wanted.clone());
    until_exists(&world.share.join("begun")).await;
    // A job that arrives meanwhile waits, and the node reports that it is not ready.
    let order = world.order("echo ran");
    let task = Some(DesiredTask { goal: Goal::Prepare, order: order.clone() });
    world.node.want(DesiredNode { task, ..wanted.clone() });
    world.node.until_heartbeats(2).await;
    world.node.until("still at its setup task", |node| !node.ready && node.problem.is_none()).await;
    let seen = world.node.until("still without a task", |node| node.task.is_none()).await;
    assert!(!seen.ready);
    std::fs::write(world.share.join("go"), "").expect("a file on the share");
    let gang = world.node.until_prepared().await.expect("the job is next");
    world.node.want(DesiredNode { task: Some(DesiredTask { goal: Goal::Run { gang }, order }), ..wanted.clone() });
    assert_eq!(world.node.until_ended().await.1, None);
    world.node.want(wanted.clone());
    world.node.until("ready and free", is_free).await;
    let id = &world.node.id;
    let expected = format!("*** in {}/mounts/logs/setup/{CLUSTER}\n", world.agent.root.display());
    assert_eq!(read(&logs.join(format!("stdout-{id}.txt"))), expected, "once, though the wish came several times");
    assert_eq!(read(&logs.join(format!("stderr-{id}.txt"))), "warning\n");
    let execution = read(&logs.join(format!("execution-{id}.log")));
    assert!(execution.contains("ended with exit code 0") && !execution.contains("pass$word"), "{execution}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_setup_task_makes_the_node_unusable() {
    let world = World::new().await;
    let wanted = desired(&world, "echo no such package >&2; exit 100");
    world.node.want(wanted.clone());
    let node = world.node.until("broken", |node| node.problem.is_some()).await;
    let problem = node.problem.expect("just seen");
    assert!(!node.ready);
    assert_eq!(
        (problem.code.as_str(), problem.message.as_str()),
        ("SetupTaskFailed", "Setup task failed with non-zero exit code")
    );
    let details: Vec<(&str, &str)> =
        problem.details.iter().map(|detail| (detail.name.as_str(), detail.value.as_str())).collect();
    assert_eq!(details[..3], [("Node", world.node.id.as_str()), ("ExitCode", "100"), ("StdErr", "no such package")]);
    assert!(details[3].1.contains(CLUSTER) && details[3].1.contains("resize"), "{details:?}");
    // A job that was placed before the failure was known fails with the same error.
    let task = Some(DesiredTask { goal: Goal::Prepare, order: world.order("echo ran") });
    world.node.want(DesiredNode { task, ..wanted });
    let (_, failure) = world.node.until_ended().await;
    assert_eq!(failure.map(|failure| failure.error), Some(problem));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unwanted_node_kills_its_setup_task() {
    let mut world = World::new().await;
    let wanted = desired(&world, "(setsid sleep 600 &); sleep 600");
    world.node.want(wanted.clone());
    let begun = tokio::time::timeout(DEADLINE, async {
        while world.node.n_processes() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    begun.await.expect("both processes are there");
    world.node.want(DesiredNode { retire: true, ..wanted });
    assert_eq!(world.agent.end().await, AgentEnd::Retired);
    assert_eq!(world.node.n_processes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_runs_the_setup_task_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (root, share) = (directory.path().join("n1"), directory.path().join("share"));
    std::fs::create_dir(&share).expect("a share");
    let server = FakeServer::start().await;
    let node = server.want_node(1);
    let spawn = || {
        let mut command = tokio::process::Command::new(node_example());
        command.args([server.url.as_str(), root.to_str().expect("a plain path"), "127.0.0.4", TOKEN]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.spawn().expect("the agent starts")
    };
    let order = order("true", vec![host(&node, "127.0.0.4", 1)], &share, &directory.path().join("shared-temp"));
    let setup =
        setup("cd $AZ_BATCHAI_MOUNT_ROOT/logs; if mkdir first; then (setsid sleep 600 &); sleep 600; fi; touch done");
    let wanted = DesiredNode { volumes: order.volumes, setup: Some(setup), ..DesiredNode::default() };
    let mut first = spawn();
    node.want(wanted.clone());
    until_exists(&share.join("first")).await;
    first.kill().await.expect("it can be killed");
    let gone = tokio::time::timeout(DEADLINE, async {
        while node.n_processes() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    gone.await.expect("its guards end everything");
    assert!(!share.join("done").exists());
    let mut second = spawn();
    node.until("ready and free", is_free).await;
    assert!(share.join("done").exists(), "it ran again, to its end");
    second.kill().await.expect("it can be killed");
}
