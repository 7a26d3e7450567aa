//! Leases of nodes that lose the server, stops that take no effect, and agents that are no longer needed.

mod common;

use std::time::Duration;

use common::*;
use corro_agent::{AgentConfig, AgentEnd};
use corro_model::node::{DesiredNode, DesiredTask, Goal, TaskPhase};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Marks every moment of its life on the share.
const TICKING_COMMAND: &str =
    "cd $AZ_BATCHAI_JOB_MOUNT_ROOT/logs; echo $PPID > guard; while :; do echo >> ticks; sleep 0.05; done";

/// A proxy to the server that can go dead: connections are accepted, and nothing is forwarded.
struct Proxy {
    url: String,
    dead: watch::Sender<bool>,
}

async fn proxy(to: &FakeServer) -> Proxy {
    let target = to.url.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (dead, is_dead) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (target, mut is_dead) = (target.clone(), is_dead.clone());
            tokio::spawn(async move {
                let through = async {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                };
                tokio::select! {
                    biased;
                    _ = is_dead.wait_for(|dead| *dead) => {}
                    () = through => return,
                }
                // Kept open, so that neither side gets an error.
                std::future::pending::<()>().await;
                drop(near);
            });
        }
    });
    Proxy { url, dead }
}

fn n_ticks(world: &World) -> usize {
    std::fs::read_to_string(world.share.join("ticks")).unwrap_or_default().lines().count()
}

/// Prepares and starts the job with a lease.
async fn start(world: &World, lease_ms: u64) {
    let order = world.order(TICKING_COMMAND);
    let wish = |goal| {
        let task = Some(DesiredTask { goal, order: order.clone() });
        DesiredNode { lease_ms: Some(lease_ms), task, ..DesiredNode::default() }
    };
    world.node.want(wish(Goal::Prepare));
    let gang = world.node.until_prepared().await.expect("the master says where to meet");
    world.node.want(wish(Goal::Run { gang }));
    until_line(&world.share.join("ticks")).await;
}

async fn world(config: impl FnOnce(&mut AgentConfig)) -> World {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let share = directory.path().join("share");
    std::fs::create_dir(&share).expect("a share");
    let server = FakeServer::start().await;
    let node = server.want_node(1);
    let mut settings = common::config(&server, &directory.path().join("n1"), "127.0.0.4");
    config(&mut settings);
    let agent = Agent::start_with(settings);
    node.until_ready().await;
    World { server, node, agent, share, directory }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_ends_its_ranks_when_its_lease_expires() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let share = directory.path().join("share");
    std::fs::create_dir(&share).expect("a share");
    let server = FakeServer::start().await;
    let wire = proxy(&server).await;
    let node = server.want_node(1);
    let mut settings = common::config(&server, &directory.path().join("n1"), "127.0.0.4");
    settings.server = wire.url.clone();
    let agent = Agent::start_with(settings);
    node.until_ready().await;
    let mut world = World { server, node, agent, share, directory };
    start(&world, 1_500).await;
    // While the connection works, the lease is renewed.
    world.node.until_heartbeats(30).await;
    assert!(world.node.n_processes() > 0);
    wire.dead.send_replace(true);
    let AgentEnd::Fenced { reason } = world.agent.end().await else { panic!("it gives itself up") };
    assert_eq!(reason, "the server was not reached within the lease of 1.5 s");
    assert_eq!(world.node.n_processes(), 0);
    assert!(!corro_agent::has_joined(&world.agent.root), "it will not come back as the same node");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_renews_the_lease() {
    let mut world = world(|_| {}).await;
    // The shortest lease that a server accepts.
    start(&world, 3_000).await;
    world.server.go_away().await;
    world.node.cut_line();
    // Longer than the lease.
    let (before, deadline) = (n_ticks(&world), std::time::Instant::now() + DEADLINE);
    while n_ticks(&world) < before + 90 {
        assert!(std::time::Instant::now() < deadline, "the job does not go on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.agent.shut_down().await, AgentEnd::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_succeeds_with_an_unresponsive_guard() {
    let world = world(|_| {}).await;
    start(&world, 60_000).await;
    let guard: i32 = read(&world.share.join("guard")).trim().parse().expect("an id");
    kill_process(Pid::from_raw(guard).expect("an id is not 0"), Signal::STOP).expect("our own process");
    world.node.want_task(Goal::Stop { grace_ms: 10 }, &world.order(TICKING_COMMAND));
    let (node, failure) = world.node.until_ended().await;
    assert_eq!((world.node.n_processes(), failure), (0, None));
    assert!(node.problem.is_none() && node.task.expect("just seen").exits.iter().all(|exit| exit.stopped));
    world.node.until_free().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_ranks_stays_prepared_until_the_job_is_over() {
    let world = World::new().await;
    let mut order = world.order("true");
    let this = order.hosts[0].clone();
    let node = corro_model::NodeId::parse("tvm-1_9-20180718t174802z-p").expect("a valid id");
    order.hosts = [corro_model::node::GangHost { node, ..this.clone() }, this].into();
    order.host_idx = 1;
    world.node.want_task(Goal::Prepare, &order);
    let own = world.node.until_prepared().await.expect("it has a door for the job's other nodes");
    assert_eq!(own.rendezvous_port, 0, "the master is another node");
    let gang = corro_model::node::GangAddress::new("127.0.0.9", 1, 1);
    world.node.want_task(Goal::Run { gang }, &order);
    world.node.until_running().await;
    world.node.until_heartbeats(3).await;
    let seen = world.node.until("there", |_| true).await;
    assert_eq!(seen.task.expect("it has one").phase, TaskPhase::Running);
    let mounted = world.agent.root.join("jobs/w/e/j/mounts/logs");
    assert!(mounted.is_dir(), "the job's volumes are still there");
    world.node.want_task(Goal::Stop { grace_ms: 1000 }, &order);
    let (_, failure) = world.node.until_ended().await;
    assert_eq!(failure, None);
    assert!(!mounted.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_agent_rejoins_for_the_next_cluster() {
    let world = world(|config| config.rejoin = true).await;
    world.node.want(DesiredNode { retire: true, ..DesiredNode::default() });
    world.server.until_join_declined().await;
    let second = world.server.want_node(2);
    second.until_ready().await;
    second.fence();
    world.server.until_join_declined().await;
    let third = world.server.want_node(3);
    third.until_ready().await;
    assert_eq!(world.agent.shut_down().await, AgentEnd::Stopped);
}
