//! Failing jobs with real processes: each failure names what failed, where and why, and nothing is left running.

mod common;

use std::time::{Duration, Instant};

use corro_test_support::skip;

use common::*;
use corro_model::batchai::{BatchAiError, ContainerSettings, ImageSourceRegistry, OutputDirectory};
use corro_model::node::{DesiredNode, Goal, Limits, TaskOrder, TaskPhase, Volume, VolumeKind, VolumeSource};

fn detail<'a>(error: &'a BatchAiError, name: &str) -> &'a str {
    let found = error.details.iter().find(|detail| detail.name == name);
    found.map(|detail| detail.value.as_str()).unwrap_or_else(|| panic!("no {name} in {error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_preparation_fails_the_job_before_its_command() {
    let world = World::new().await;
    let mut order = world.order("touch $AZ_BATCHAI_JOB_MOUNT_ROOT/logs/ran");
    order.preparation = Some("echo out; echo no such package >&2; exit 5".into());
    let (_, failure) = world.node.run_alone(&order).await;
    let failure = failure.expect("it failed");
    assert_eq!(failure.exit_code, Some(5));
    assert_eq!(failure.error.code, "JobPreparationFailed");
    assert_eq!(failure.error.message, "Job preparation task failed with non-zero exit code");
    assert_eq!(detail(&failure.error, "Node"), world.node.id.as_str());
    assert_eq!(detail(&failure.error, "ExitCode"), "5");
    assert_eq!(detail(&failure.error, "StdErr"), "no such package");
    let logs = log_directory(&world.share);
    assert_eq!(names(&logs), ["execution.log", "stderr-job_prep.txt", "stdout-job_prep.txt"]);
    assert_eq!(world.log("stdout-job_prep.txt"), "out\n");
    assert!(world.log("execution.log").contains(">>>   no such package\n"));
    assert!(!world.share.join("ran").exists());
    assert!(!world.agent.root.join("jobs/w/e/j/mounts/logs").exists(), "volumes go after a failure too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_rank_is_reported_at_once_and_stops_its_siblings() {
    let world = World::new().await;
    let order = as_ranks(TaskOrder {
        hosts: [host(&world.node, "127.0.0.4", 2)].into(),
        // The sibling takes time to end, so that the failure must be reported before.
        ..world
            .order("if [ $RANK = 1 ]; then echo cannot allocate >&2; exit 3; fi; trap '' TERM; sleep 600 & wait; wait")
    });
    world.node.want_task(Goal::Prepare, &order);
    let gang = world.node.until_prepared().await.expect("the master says where to meet");
    world.node.want_task(Goal::Run { gang }, &order);
    let early = world.node.until("failing", |node| node.task.as_ref().is_some_and(|task| !task.exits.is_empty())).await;
    let task = early.task.expect("just seen");
    let failed = &task.exits[0];
    assert_eq!((failed.rank, failed.exit_code, failed.signal, failed.stopped), (1, Some(3), None, false));
    assert_eq!(failed.stderr_tail, "cannot allocate");
    assert_eq!(task.phase, TaskPhase::Running);
    let (ended, failure) = world.node.until_ended().await;
    assert_eq!(failure, None, "the exits say it all");
    let sibling = ended.task.expect("just seen").exits.into_iter().find(|exit| exit.rank == 0).expect("it ended");
    assert!(sibling.stopped && !sibling.succeeded(), "{sibling:?}");
    assert_eq!(world.node.n_processes(), 0, "nothing is left");
    assert_eq!(world.log("stderr.txt"), "cannot allocate\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_reported_as_a_signal() {
    let world = World::new().await;
    let (ended, _) = world.node.run_alone(&world.order("kill -SEGV $$")).await;
    let exits = ended.task.expect("just seen").exits;
    assert_eq!((exits[0].exit_code, exits[0].signal, exits[0].stopped), (None, Some(11), false));
    assert_eq!(exits[0].shell_code(), 139);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_begins_with_sigterm() {
    let world = World::new().await;
    let order = world.order("trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.05; done");
    start(&world, &order).await;
    world.node.want_task(Goal::Stop { grace_ms: 20_000 }, &order);
    let (ended, failure) = world.node.until_ended().await;
    let exits = ended.task.expect("just seen").exits;
    assert_eq!((exits[0].exit_code, exits[0].stopped, failure), (Some(7), true, None));
    assert_eq!(world.log("stdout.txt"), "up\nsaved\n", "its last words are in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_with_sigkill_after_its_grace() {
    let world = World::new().await;
    let order = world.order("trap '' TERM; echo up; while :; do sleep 0.05; done");
    start(&world, &order).await;
    let begun = Instant::now();
    world.node.want_task(Goal::Stop { grace_ms: 300 }, &order);
    let (ended, _) = world.node.until_ended().await;
    let exits = ended.task.expect("just seen").exits;
    assert_eq!((exits[0].signal, exits[0].stopped), (Some(9), true));
    assert!(begun.elapsed() >= Duration::from_millis(300), "it had its grace");
    assert_eq!(world.node.n_processes(), 0);
}

/// Runs the order's command until it has printed `up`.
async fn start(world: &World, order: &TaskOrder) {
    world.node.want_task(Goal::Prepare, order);
    let gang = world.node.until_prepared().await.expect("the master says where to meet");
    world.node.want_task(Goal::Run { gang }, order);
    let stdout = log_directory(&world.share).join("stdout.txt");
    until_line(&stdout).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_preparation_ends_it_without_a_failure() {
    let world = World::new().await;
    let mut order = world.order("true");
    order.preparation = Some("touch $AZ_BATCHAI_JOB_MOUNT_ROOT/logs/preparing; sleep 600".into());
    world.node.want_task(Goal::Prepare, &order);
    until_exists(&world.share.join("preparing")).await;
    world.node.want_task(Goal::Stop { grace_ms: 0 }, &order);
    let (ended, failure) = world.node.until_ended().await;
    assert_eq!((ended.task.expect("just seen").exits.len(), failure), (0, None));
    assert!(world.log("execution.log").contains("Job preparation ended with signal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_mounted_fails_the_job() {
    let world = World::new().await;
    let mut order = world.order("true");
    order.volumes.push(Volume {
        kind: VolumeKind::FileShare,
        relative: "data".into(),
        label: "//acc.file.core.windows.net/data".into(),
        source: VolumeSource::Unavailable { why: "the share 'data' does not exist".into() },
        read_only: false,
        beneath: None,
    });
    let (_, failure) = world.node.run_alone(&order).await;
    let failure = failure.expect("it failed");
    assert_eq!((failure.error.code.as_str(), failure.exit_code), ("AZFMountError", Some(-1)));
    let info = detail(&failure.error, "Info");
    assert!(info.starts_with("Could not mount Azure File Share //acc.file.core.windows.net/data at /"), "{info}");
    assert!(info.ends_with("/mounts/data: the share 'data' does not exist"), "{info}");
    assert!(world.log("execution.log").contains(info), "the log on the volume that was mounted tells of it");
    assert!(!world.agent.root.join("jobs/w/e/j/mounts/logs").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_volumes_make_the_node_ready_or_give_it_a_problem() {
    let world = World::new().await;
    let label = "//acc.file.core.windows.net/x".to_owned();
    let volume = |source| Volume {
        kind: VolumeKind::FileShare,
        relative: "external".into(),
        label: label.clone(),
        source,
        read_only: false,
        beneath: None,
    };
    let good = vec![volume(VolumeSource::LocalDirectory(world.share.clone()))];
    let bad = vec![volume(VolumeSource::LocalDirectory(world.share.join("missing")))];
    world.node.want(DesiredNode { volumes: bad, ..DesiredNode::default() });
    let observed = world.node.until("in trouble", |node| node.problem.is_some()).await;
    assert!(!observed.ready);
    assert_eq!(observed.problem.expect("just seen").code, "AZFMountError");
    world.node.want(DesiredNode { volumes: good, ..DesiredNode::default() });
    world.node.until("ready", |node| node.ready && node.problem.is_none()).await;
    assert_eq!(std::fs::read_link(world.agent.root.join("mounts/external")).expect("a link"), world.share);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_refused_unless_the_operator_allowed_the_host() {
    let world = World::new().await;
    let registry =
        ImageSourceRegistry { server_url: None, image: "tensorflow/tensorflow:1.8.0".into(), credentials: None };
    let mut order = world.order("echo on the host");
    order.container = Some(ContainerSettings { image_source_registry: registry, shm_size: None });
    let (_, failure) = world.node.run_alone(&order).await;
    let error = failure.expect("it failed").error;
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("FailedStartingContainer", "unable to start docker container")
    );
    assert_eq!(detail(&error, "imageName"), "tensorflow/tensorflow:1.8.0");
    assert_eq!((detail(&error, "Node"), detail(&error, "Reason")), (world.node.id.as_str(), "NoEngine"));
    let info = detail(&error, "Info");
    assert!(info.contains("no-engine.sock: no such socket") && info.contains("`corro up --no-containers`"), "{info}");
    world.node.until_free().await;

    order.containers_on_host = true;
    order.attempt.number = 2;
    assert_eq!(world.node.run_alone(&order).await.1, None);
    assert_eq!(world.log("stdout.txt"), "on the host\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_directories_outside_of_volumes_are_reported() {
    let world = World::new().await;
    let output = |prefix: &str| OutputDirectory { id: "MODEL".into(), path_prefix: prefix.into(), path_suffix: None };
    // Nothing is mounted there: the file is on the node's disk.
    let mut order = world.order("echo x > $AZ_BATCHAI_OUTPUT_MODEL/model");
    order.output_directories = vec![output("$AZ_BATCHAI_MOUNT_ROOT/external")];
    assert_eq!(world.node.run_alone(&order).await.1, None);
    let kept = world.agent.root.join("mounts/external").join(SEGMENT).join("outputs/model");
    assert_eq!(read(&kept), "x\n");
    world.node.until_free().await;

    order.output_directories = vec![output("/proc/nowhere")];
    order.attempt.number = 2;
    let (_, failure) = world.node.run_alone(&order).await;
    let error = failure.expect("it failed").error;
    assert_eq!(error.code, "JobDirectoryFailed");
    assert_eq!(detail(&error, "Path"), format!("/proc/nowhere/{SEGMENT}/outputs"));
    assert!(detail(&error, "Info").contains("$AZ_BATCHAI_JOB_TEMP"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_opened_is_named() {
    let world = World::new().await;
    let logs = log_directory(&world.share);
    std::fs::create_dir_all(logs.join("stdout.txt")).expect("a directory in the way");
    let (ended, failure) = world.node.run_alone(&world.order("echo hi")).await;
    let failure = failure.expect("it failed");
    assert_eq!((failure.error.code.as_str(), failure.exit_code), ("LogWriteFailed", Some(-1)));
    assert!(detail(&failure.error, "Path").ends_with("/stdouterr/stdout.txt"));
    assert_eq!(ended.task.expect("just seen").exits, [], "nothing was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn exceeding_the_memory_limit_is_reported() {
    let world = World::new().await;
    let mut order = world.order("head -c 300M /dev/zero | tail >/dev/null");
    order.limits = Some(Limits { vm_size: "STANDARD_TINY".into(), memory_bytes: 64 << 20, cores: 1, processes: None });
    let (ended, _) = world.node.run_alone(&order).await;
    let log = world.log("execution.log");
    if log.contains("Memory for this job on this node: NO limit") {
        skip::unsupported_machine(format_args!("this machine allows no control groups: {log}"));
        return;
    }
    assert!(log.contains("Memory for this job on this node: at most 0.1 GiB, the memory of STANDARD_TINY"), "{log}");
    let exit = ended.task.expect("just seen").exits.remove(0);
    let why = exit.out_of_memory.clone().unwrap_or_else(|| panic!("it was killed: {exit:?}"));
    assert!(why.contains("STANDARD_TINY") && why.contains("larger vmSize") && log.contains("Out of memory"), "{why}");
    // The next job has the limits of its own order.
    let (ended, _) = world.node.run_alone(&TaskOrder { limits: None, ..next(&world) }).await;
    assert!(ended.task.expect("just seen").exits[0].succeeded());
}

#[tokio::test(flavor = "multi_thread")]
async fn exceeding_the_limit_on_processes_is_reported() {
    let world = World::new().await;
    // Bounded, in case there is no limit: dash ends when it cannot fork, bash after a few attempts.
    let mut order = world.order("sh -c 'for i in $(seq 1 400); do sleep 60 & done; echo all started'");
    let size = Limits { vm_size: "STANDARD_TINY".into(), memory_bytes: u64::MAX, cores: 1, processes: Some(40) };
    order.limits = Some(size);
    let (ended, _) = world.node.run_alone(&order).await;
    let log = world.log("execution.log");
    if log.contains("Processes for this job on this node: NO limit") {
        skip::unsupported_machine(format_args!("this machine allows no control groups: {log}"));
        return;
    }
    assert!(log.contains("Processes for this job on this node: at most 40, threads included"), "{log}");
    assert!(!world.log("stdout.txt").contains("all started"));
    let exit = ended.task.expect("just seen").exits.remove(0);
    let why = exit.out_of_processes.clone().unwrap_or_else(|| panic!("it was refused some: {exit:?}"));
    assert!(why.contains("may have 40 processes") && why.contains("--max-processes"), "{why}");
    assert!(log.contains("Out of processes: "), "{log}");
    // The next job has the limits of its own order.
    let mut order = world.order("sh -c 'for i in $(seq 1 200); do sleep 60 & done; echo all started'");
    order.attempt.number += 1;
    let (ended, _) = world.node.run_alone(&order).await;
    assert!(ended.task.expect("just seen").exits[0].succeeded());
    assert!(world.log("stdout.txt").contains("all started"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_the_cpus_of_its_vm_size() {
    let world = World::new().await;
    let n_here = std::thread::available_parallelism().map_or(1, usize::from);
    if n_here == 1 {
        return skip::unsupported_machine("this machine has one processor");
    }
    let mut order = world.order("nproc; cat /proc/self/cgroup; sh -c 'taskset -p $$; nproc' | tail -n 1");
    order.limits = Some(Limits { vm_size: "STANDARD_TINY".into(), memory_bytes: u64::MAX, cores: 1, processes: None });
    world.node.run_alone(&order).await;
    let (log, said) = (world.log("execution.log"), world.log("stdout.txt"));
    let (_, cpu_limit) = log.split_once("Processors for this job on this node: ").expect("a line about processors");
    let cpu_limit = cpu_limit.lines().next().expect("a line");
    let is_ours = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controls = parts.next().unwrap_or("-");
        controls.split(',').any(|control| ["cpu", ""].contains(&control)) && line.contains("/corro-")
    };
    // Other tests on this machine may have claimed all CPUs.
    if cpu_limit.contains(": number ") {
        assert_eq!(said.lines().next(), Some("1"), "{cpu_limit}\n{said}");
        assert_eq!(said.lines().last(), Some("1"), "what it starts is bound too: {said}");
    }
    match cpu_limit.starts_with("at most ") {
        true => assert!(said.lines().any(is_ours), "{said}"),
        false => skip::unsupported_machine(format_args!("this machine allows no control groups: {cpu_limit}")),
    }
    assert!(cpu_limit.contains("as STANDARD_TINY has"), "{cpu_limit}");
    let size = Limits { vm_size: "STANDARD_HUGE".into(), memory_bytes: u64::MAX, cores: u32::MAX, processes: None };
    let mut order = TaskOrder { limits: Some(size), ..world.order("nproc >&2") };
    order.attempt.number += 1;
    world.node.run_alone(&order).await;
    assert_eq!(world.log("stderr.txt").trim(), n_here.to_string());
}

/// Another attempt, with a command that needs more than the limit above.
fn next(world: &World) -> TaskOrder {
    let mut order = world.order("head -c 100M /dev/zero | tail >/dev/null");
    order.attempt.number += 1;
    order
}
