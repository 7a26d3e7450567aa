//! Restarts and disconnections of server and agent: jobs continue, nothing runs twice, nothing is left behind.

mod common;

use std::process::Stdio;

use common::*;
use corro_agent::AgentEnd;
use corro_model::node::{DesiredNode, Goal, ObservedNode, TaskFailure, TaskOrder, TaskPhase, Volume};

/// Marks its start on the share, then waits for a file there.
const WAITING_COMMAND: &str =
    "cd $AZ_BATCHAI_JOB_MOUNT_ROOT/logs; echo $$ >> starts; until [ -e go ]; do sleep 0.02; done; echo gone";

async fn start(world: &World, order: &TaskOrder) {
    world.node.want_task(Goal::Prepare, order);
    let gang = world.node.until_prepared().await.expect("the master says where to meet");
    world.node.want_task(Goal::Run { gang }, order);
    until_line(&world.share.join("starts")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_while_the_server_is_away() {
    let world = World::new().await;
    let order = world.order(WAITING_COMMAND);
    start(&world, &order).await;
    let before = *world.node.connections.borrow();
    world.node.cut_line();
    world.node.until_connected(before + 1).await;
    world.node.until_heartbeats(3).await;
    // The same desired state came again with the new connection, and comes once more.
    let gang = order_gang(&world).await;
    world.node.want_task(Goal::Run { gang }, &order);
    std::fs::write(world.share.join("go"), "").expect("a file on the share");
    let (ended, failure) = world.node.until_ended().await;
    assert_eq!((ended.task.expect("just seen").exits.len(), failure), (1, None));
    assert_eq!(read(&world.share.join("starts")).lines().count(), 1, "it started once");
    assert_eq!(world.log("stdout.txt"), "gone\n");
}

/// Any address serves for a node that already runs.
async fn order_gang(world: &World) -> corro_model::node::GangAddress {
    world.node.until_running().await;
    corro_model::node::GangAddress::new("127.0.0.4", 1, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_desired_state_changes_nothing() {
    let world = World::new().await;
    let order = world.order(WAITING_COMMAND);
    start(&world, &order).await;
    let pid = read(&world.share.join("starts"));
    for _ in 0..3 {
        let gang = order_gang(&world).await;
        world.node.want_task(Goal::Run { gang }, &order);
    }
    // An answer to a later desired state shows that the earlier ones have been handled.
    world.node.want(DesiredNode {
        volumes: order.volumes.clone(),
        task: Some(corro_model::node::DesiredTask { goal: Goal::Prepare, order: order.clone() }),
        ..DesiredNode::default()
    });
    until_exists(&world.agent.root.join("mounts/logs")).await;
    assert_eq!(read(&world.share.join("starts")), pid);
    std::fs::write(world.share.join("go"), "").expect("a file on the share");
    assert_eq!(world.node.until_ended().await.1, None);
    assert_eq!(read(&world.share.join("starts")), pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unwanted_task_is_stopped_and_cleaned_up() {
    let world = World::new().await;
    start(&world, &world.order(WAITING_COMMAND)).await;
    world.node.until_free().await;
    assert_eq!(world.node.n_processes(), 0);
    assert!(!world.agent.root.join("jobs/w/e/j").exists() && journal_is_empty(&world.agent.root));
    assert_eq!(names(&world.share), ["cifar", "starts"], "the share is as the job left it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_node_ends_everything_and_deletes_its_credential() {
    let mut world = World::new().await;
    start(&world, &world.order(WAITING_COMMAND)).await;
    world.node.fence();
    assert_eq!(world.agent.end().await, AgentEnd::Fenced { reason: "declared lost".into() });
    assert_eq!(world.node.n_processes(), 0);
    assert_eq!(names(&world.agent.root), ["home", "incarnation", "jobs", "lock", "mounts", "spare"]);
    for left in ["jobs", "spare"] {
        assert_eq!(names(&world.agent.root.join(left)), Vec::<String>::new());
    }
    assert!(world.share.join("starts").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_credential_fences_the_node() {
    let mut world = World::new().await;
    world.node.refuse();
    world.node.cut_line();
    assert!(matches!(world.agent.end().await, AgentEnd::Fenced { .. }));
    assert!(!corro_agent::has_joined(&world.agent.root));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_node_stops_cleans_up_and_reports_it() {
    let mut world = World::new().await;
    let order = world.order(WAITING_COMMAND);
    start(&world, &order).await;
    std::fs::write(world.agent.root.join("of the operator"), "").expect("a file that is not ours");
    world.node.want(DesiredNode { retire: true, ..DesiredNode::default() });
    assert_eq!(world.agent.end().await, AgentEnd::Retired);
    world.node.until("retired", |node| node.retired).await;
    assert_eq!(names(&world.agent.root), ["of the operator"], "only what it made is gone");
    assert!(world.share.join("starts").exists());
    assert_eq!(world.node.n_processes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agent_ends_its_task_and_stays_the_same_node() {
    let world = World::new().await;
    let order = world.order(WAITING_COMMAND);
    start(&world, &order).await;
    let World { server, node, agent, share: _share, directory } = world;
    assert_eq!(agent.shut_down().await, AgentEnd::Stopped);
    let (last_word, failure) = node.until_ended().await;
    assert_eq!(failure.expect("the job did not end by itself").error.code, "AgentRestarted");
    assert!(last_word.ending, "{last_word:?}");
    assert_eq!(node.n_processes(), 0);

    let before = *node.connections.borrow();
    let _agent = Agent::start(&server, &directory.path().join("n1"), "127.0.0.4");
    node.until_connected(before + 1).await;
    node.until("back", |node| !node.ending).await;
    assert_eq!(node.until_ended().await.1.expect("it is reported again").error.code, "AgentRestarted");
    node.until_free().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_ended_before_the_agent_was_stopped_has_succeeded() {
    let world = World::new().await;
    let mut order = world.order(WAITING_COMMAND);
    // Unmounting this many volumes takes long enough for the agent to be stopped meanwhile.
    let many = |i| Volume { relative: format!("v{i}"), ..order.volumes[0].clone() };
    let volumes: Vec<Volume> = (0..3_000).map(many).collect();
    order.volumes.extend(volumes);
    start(&world, &order).await;
    std::fs::write(world.share.join("go"), "").expect("a file on the share");
    world.node.until("done", |node| node.task.as_ref().is_some_and(|task| !task.exits.is_empty())).await;
    let World { server, node, agent, share: _share, directory } = world;
    assert_eq!(agent.shut_down().await, AgentEnd::Stopped);
    let well = |(ended, failure): (ObservedNode, Option<TaskFailure>)| {
        let exits = ended.task.expect("just seen").exits;
        assert_eq!((exits.len(), exits[0].exit_code, exits[0].stopped, failure), (1, Some(0), false, None));
    };
    well(node.until_ended().await);
    let before = *node.connections.borrow();
    let _agent = Agent::start(&server, &directory.path().join("n1"), "127.0.0.4");
    node.until_connected(before + 1).await;
    well(node.until_ended().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_crashed_runs_nothing_twice() {
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
    let mut first = spawn();
    node.until_ready().await;
    let hosts = vec![host(&node, "127.0.0.4", 1)];
    let order = order(WAITING_COMMAND, hosts, &share, &directory.path().join("shared-temp"));
    node.want_task(Goal::Prepare, &order);
    let gang = node.until_prepared().await.expect("the master says where to meet");
    node.want_task(Goal::Run { gang }, &order);
    until_line(&share.join("starts")).await;
    first.start_kill().expect("it can be killed");
    first.wait().await.expect("it is gone");

    let _second = spawn();
    let (ended, failure) = node.until_ended().await;
    let failure = failure.expect("the job did not end by itself");
    assert_eq!(failure.error.code, "AgentRestarted");
    assert!(failure.error.message.contains(node.id.as_str()), "{}", failure.error.message);
    assert_eq!(ended.task.expect("just seen").exits, []);
    assert_eq!(node.n_processes(), 0, "the old rank is gone");
    assert_eq!(read(&share.join("starts")).lines().count(), 1);
    assert!(!root.join("jobs/w/e/j").exists(), "and so are its directories");
    node.until_free().await;
    assert!(share.join("starts").exists() && journal_is_empty(&root));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_reported_again_after_a_restart() {
    let world = World::new().await;
    assert_eq!(world.node.run_alone(&world.order("exit 4")).await.1, None);
    let World { server, node, agent, share: _share, directory } = world;
    assert_eq!(agent.shut_down().await, AgentEnd::Stopped);
    let before = *node.connections.borrow();
    let _agent = Agent::start(&server, &directory.path().join("n1"), "127.0.0.4");
    node.until_connected(before + 1).await;
    let (ended, failure) = node.until_ended().await;
    let task = ended.task.expect("just seen");
    assert_eq!((task.exits[0].exit_code, failure), (Some(4), None));
    assert!(matches!(task.phase, TaskPhase::Ended { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_in_the_same_directory_is_refused() {
    let world = World::new().await;
    let second = corro_agent::run_until(config(&world.server, &world.agent.root, "127.0.0.4"), std::future::pending());
    let error = second.await.expect_err("the directory is taken");
    assert!(error.to_string().starts_with("another agent runs in"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn joining_waits_for_a_cluster_and_fails_on_a_bad_token_or_url() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = FakeServer::start().await;
    let _agent = Agent::start(&server, &directory.path().join("n1"), "127.0.0.4");
    let mut bad = config(&server, &directory.path().join("n2"), "127.0.0.5");
    bad.join_token = corro_model::Secret::new("wrong");
    let error = corro_agent::run_until(bad, std::future::pending()).await.expect_err("the token is wrong");
    assert!(error.to_string().contains("refused the join token"), "{error}");
    let mut bad = config(&server, &directory.path().join("n2"), "127.0.0.5");
    bad.server = "ftp://127.0.0.1:1".into();
    let error = corro_agent::run_until(bad, std::future::pending()).await.expect_err("no such scheme");
    assert!(error.to_string().contains("does not begin with http:// or https://"), "{error}");
    server.until_join_declined().await;
    let node = server.want_node(1);
    node.until_ready().await;
}

/// Whether the journal is empty: the record begins with its length.
fn journal_is_empty(root: &std::path::Path) -> bool {
    std::fs::read(root.join("attempt")).expect("an agent has a memory").starts_with(&[0; 4])
}
