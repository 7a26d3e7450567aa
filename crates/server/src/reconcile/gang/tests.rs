//! Decisions for hand-made gangs.

use super::*;
use corro_model::gpu::XidError;
use corro_model::node::HostPorts;
use corro_model::{AttemptId, Timestamp};

fn node(i: usize) -> NodeId {
    NodeId::parse(&format!("tvm-1_{i}-20180718t174802z-p")).expect("a node id")
}

fn rendezvous() -> GangAddress {
    GangAddress::new("127.0.0.4", 1, 2)
}

fn report(phase: TaskPhase, exits: Vec<RankExit>) -> ObservedTask {
    ObservedTask { attempt: AttemptId { job: "j".to_owned(), number: 1 }, phase, exits, elastic: None }
}

fn exit(rank: usize, code: i32, at: i64) -> RankExit {
    let (signal, stopped) = (None, false);
    let stderr_tail = "Traceback\nboom\n".to_owned();
    let at = Timestamp::from_millis(at);
    let (role, exit_code, out_of_memory, out_of_processes) = (Role::Rank, Some(code), None, None);
    #[rustfmt::skip]
    let exit = RankExit {
        rank, role, index: rank, exit_code, signal, stopped, at, stderr_tail, out_of_memory, out_of_processes,
        gpu_errors: Vec::new(),
    };
    exit
}

fn prepared() -> ObservedTask {
    report(TaskPhase::Prepared { gang: Some(rendezvous()) }, vec![])
}

fn ended(exits: Vec<RankExit>) -> ObservedTask {
    report(TaskPhase::Ended { failure: None }, exits)
}

/// Checks the decision for two nodes with these reports; `None` is a node without a report about the attempt.
fn check(reports: [Option<ObservedTask>; 2], change: impl FnOnce(&mut Gang), expected: impl FnOnce(GangDecision)) {
    let nodes = [node(1), node(2)];
    let members = nodes.iter().zip(&reports).map(|(node, report)| Member {
        node,
        lost: false,
        gone: false,
        connected: true,
        is_known: true,
        report: report.as_ref(),
    });
    let mut gang = Gang {
        members: members.collect(),
        terminating: false,
        evicted: None,
        overdue: None,
        known_address: None,
        n_ranks: 2,
        has_servers: false,
    };
    change(&mut gang);
    expected(decide(&gang));
}

fn is(step: GangDecision) -> impl FnOnce(GangDecision) {
    move |got| assert_eq!(got, step)
}

#[test]
fn ranks_start_when_all_nodes_are_prepared() {
    let preparing = || Some(report(TaskPhase::Preparing, vec![]));
    check([None, None], |_| {}, is(GangDecision::Continue(Goal::Prepare)));
    check([Some(prepared()), preparing()], |_| {}, is(GangDecision::Continue(Goal::Prepare)));
    check([Some(prepared()), Some(prepared())], |_| {}, is(GangDecision::Continue(Goal::Run { gang: rendezvous() })));
}

#[test]
fn the_rendezvous_address_is_stable_once_some_ranks_run() {
    let running = Some(report(TaskPhase::Running, vec![]));
    let late = Some(report(TaskPhase::Prepared { gang: None }, vec![]));
    check(
        [running.clone(), late.clone()],
        |gang| gang.known_address = Some(rendezvous()),
        is(GangDecision::Continue(Goal::Run { gang: rendezvous() })),
    );
    check([running, late], |_| {}, is(GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS })));
}

#[test]
fn a_job_succeeds_when_all_ranks_succeed() {
    check(
        [Some(ended(vec![exit(0, 0, 1)])), Some(ended(vec![exit(1, 0, 1)]))],
        |_| {},
        is(GangDecision::End(Outcome::Succeeded)),
    );
    let running = Some(report(TaskPhase::Running, vec![]));
    check(
        [running, Some(ended(vec![exit(1, 0, 1)]))],
        |g| g.known_address = Some(rendezvous()),
        is(GangDecision::Continue(Goal::Run { gang: rendezvous() })),
    );
}

#[test]
fn nodes_without_ranks_wait_until_the_others_are_done() {
    let idle = || Some(report(TaskPhase::Running, vec![]));
    let one_rank = |gang: &mut Gang| (gang.n_ranks, gang.known_address) = (1, Some(rendezvous()));
    check([idle(), idle()], one_rank, is(GangDecision::Continue(Goal::Run { gang: rendezvous() })));
    let stop = GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS });
    check([Some(ended(vec![exit(0, 0, 1)])), idle()], one_rank, is(stop));
    check([Some(ended(vec![exit(0, 0, 1)])), Some(ended(vec![]))], one_rank, is(GangDecision::End(Outcome::Succeeded)));
}

#[test]
fn parameter_servers_are_stopped_when_the_workers_are_done() {
    let worker = |rank, code| RankExit { role: Role::Worker, ..exit(rank, code, 1) };
    let server = |code, stopped| RankExit { role: Role::ParameterServer, index: 0, stopped, ..exit(2, code, 2) };
    let serves = |gang: &mut Gang| (gang.has_servers, gang.known_address) = (true, Some(rendezvous()));
    let running = |exits| Some(report(TaskPhase::Running, exits));
    let stop = || GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS });
    let go_on = GangDecision::Continue(Goal::Run { gang: rendezvous() });
    check([running(vec![worker(0, 0)]), running(vec![])], serves, is(go_on));
    check([running(vec![worker(0, 0)]), Some(ended(vec![worker(1, 0)]))], serves, is(stop()));
    let stopped = || Some(ended(vec![worker(0, 0), server(143, true)]));
    check([stopped(), Some(ended(vec![worker(1, 0)]))], serves, is(GangDecision::End(Outcome::Succeeded)));
    // A failed parameter server stops the workers.
    check([running(vec![server(1, false)]), running(vec![])], serves, is(stop()));
    let failed = [Some(ended(vec![server(3, false)])), Some(ended(vec![]))];
    check(failed, serves, |step| {
        let GangDecision::End(Outcome::Failed { exit_code, errors }) = step else { panic!("{step:?}") };
        assert_eq!(exit_code, Some(3));
        assert_eq!(errors[0].details[0].value, "parameter server 0");
    });
}

#[test]
fn an_mpirun_stands_for_all_ranks() {
    let mpirun = RankExit { role: Role::Mpirun, ..exit(0, 0, 1) };
    let idle = Some(report(TaskPhase::Running, vec![]));
    let stop = GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS });
    check([Some(ended(vec![mpirun.clone()])), idle], |_| {}, is(stop));
    check([Some(ended(vec![mpirun])), Some(ended(vec![]))], |_| {}, is(GangDecision::End(Outcome::Succeeded)));
}

#[test]
fn all_nodes_get_the_ports_of_all() {
    let at = |port| GangAddress {
        ports: vec![HostPorts { remote: Some(port), ..HostPorts::default() }],
        ..GangAddress::new("127.0.0.4", 1, 2)
    };
    let prepared = |port| Some(report(TaskPhase::Prepared { gang: Some(at(port)) }, vec![]));
    let all = GangAddress { ports: [at(7).ports, at(8).ports].concat(), ..at(7) };
    check([prepared(7), prepared(8)], |_| {}, is(GangDecision::Continue(Goal::Run { gang: all.clone() })));
    let preparing = Some(report(TaskPhase::Preparing, vec![]));
    check([prepared(7), preparing], |gang| assert_eq!(address(gang), Some(rendezvous())), |_| {});
    let running = Some(report(TaskPhase::Running, vec![]));
    let known = |gang: &mut Gang| gang.known_address = Some(all.clone());
    check([prepared(7), running], known, is(GangDecision::Continue(Goal::Run { gang: all.clone() })));
}

#[test]
fn the_first_failing_rank_stops_the_gang_and_is_named() {
    let running = Some(report(TaskPhase::Running, vec![]));
    check(
        [running, Some(ended(vec![exit(1, 3, 5)]))],
        |_| {},
        is(GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS })),
    );
    let stopped = RankExit { stopped: true, exit_code: None, signal: Some(15), ..exit(0, 0, 1) };
    check(
        [Some(ended(vec![stopped])), Some(ended(vec![exit(1, 3, 5)]))],
        |_| {},
        |step| {
            let GangDecision::End(Outcome::Failed { exit_code, errors }) = step else { panic!("{step:?}") };
            let details: Vec<_> = errors[0].details.iter().map(|d| (d.name.as_str(), d.value.as_str())).collect();
            let id = node(2);
            assert_eq!((exit_code, errors[0].code.as_str()), (Some(3), "JobFailed"));
            assert_eq!(
                details,
                [("Rank", "1"), ("Node", id.as_str()), ("ExitCode", "3"), ("StdErr", "Traceback\nboom")]
            );
        },
    );
}

#[test]
fn a_lost_node_is_the_cause_even_when_a_rank_complained_first() {
    let complained = || Some(ended(vec![exit(1, 1, 5)]));
    let stop = || GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS });
    check([None, complained()], |gang| gang.members[0].connected = false, is(stop()));
    // The job is not retried while the lost node may still run its processes.
    check([None, complained()], |gang| gang.members[0].lost = true, is(stop()));
    let gone = |gang: &mut Gang| (gang.members[0].lost, gang.members[0].gone) = (true, true);
    check([None, complained()], gone, is(GangDecision::End(Outcome::NodeLost { node: node(1) })));
}

#[test]
fn a_job_whose_agent_was_restarted_is_tried_again() {
    let error = BatchAiError::new(AGENT_RESTARTED, "stopped while the job ran on it");
    let failure = TaskFailure { exit_code: None, error, at: Timestamp::from_millis(3) };
    let restarted = Some(report(TaskPhase::Ended { failure: Some(failure) }, vec![]));
    let stopped = RankExit { stopped: true, ..exit(1, 0, 4) };
    let stopped = Some(ended(vec![stopped]));
    // While the agent shuts down, its node may still come back and be given the next job.
    let stop = GangDecision::Continue(Goal::Stop { grace_ms: FAILURE_GRACE_MS });
    check([restarted.clone(), stopped.clone()], |gang| gang.members[0].connected = false, is(stop));
    check([restarted, stopped], |_| {}, is(GangDecision::End(Outcome::NodeLost { node: node(1) })));
}

#[test]
fn a_job_that_was_done_before_it_was_stopped_has_succeeded() {
    let done = |rank| Some(ended(vec![exit(rank, 0, 1)]));
    check([done(0), done(1)], |gang| gang.evicted = Some(9), is(GangDecision::End(Outcome::Succeeded)));
    check([done(0), done(1)], |gang| gang.overdue = Some("PT1S".to_owned()), is(GangDecision::End(Outcome::Succeeded)));
    let failed = GangDecision::End(Outcome::Failed { exit_code: None, errors: vec![] });
    check([done(0), done(1)], |gang| gang.terminating = true, is(failed));
}

#[test]
fn an_evicted_job_has_its_grace_period() {
    let running = || Some(report(TaskPhase::Running, vec![]));
    let stop = |grace_ms| is(GangDecision::Continue(Goal::Stop { grace_ms }));
    check([running(), running()], |gang| gang.evicted = Some(30_000), stop(30_000));
    // A termination does not wait for the eviction's grace period.
    check([running(), running()], |g| (g.evicted, g.terminating) = (Some(30_000), true), stop(TERMINATE_GRACE_MS));
}

#[test]
fn ranks_that_were_stopped_have_not_succeeded() {
    let stopped = |rank| RankExit { stopped: true, ..exit(rank, 0, 1) };
    let report = |rank| Some(ended(vec![stopped(rank)]));
    check([report(0), report(1)], |_| {}, is(GangDecision::End(Outcome::Interrupted)));
    check([Some(ended(vec![exit(0, 0, 1)])), report(1)], |_| {}, is(GangDecision::End(Outcome::Interrupted)));
}

#[test]
fn a_single_node_prepares_and_runs_in_one_step() {
    let alone = |report: Option<ObservedTask>| {
        check([report, None], |gang| gang.members.truncate(1), is(GangDecision::Continue(Goal::PrepareAndRun)));
    };
    alone(None);
    alone(Some(prepared()));
    alone(Some(report(TaskPhase::Running, vec![])));
}

#[test]
fn a_terminated_job_waits_for_its_ranks() {
    let running = || Some(report(TaskPhase::Running, vec![]));
    check(
        [running(), running()],
        |gang| gang.terminating = true,
        is(GangDecision::Continue(Goal::Stop { grace_ms: TERMINATE_GRACE_MS })),
    );
    let done = || Some(ended(vec![]));
    check(
        [done(), done()],
        |gang| gang.terminating = true,
        is(GangDecision::End(Outcome::Failed { exit_code: None, errors: vec![] })),
    );
    check([done(), done()], |gang| gang.evicted = Some(9), is(GangDecision::End(Outcome::Interrupted)));
}

#[test]
fn errors_of_gpus_are_details_those_of_the_failed_node_first() {
    let xid = |number: u32, line: &str| {
        let line = format!("NVRM: Xid (PCI:0000:3b:00): {number}, {line}");
        XidError { gpu: Some(0), ..XidError::parse(&line).expect("an error") }
    };
    let failed = RankExit { gpu_errors: vec![xid(43, "")], ..exit(0, 1, 1) };
    let elsewhere = vec![xid(79, "GPU has fallen off the bus."), xid(45, "")];
    let stopped = RankExit { stopped: true, gpu_errors: elsewhere, ..exit(1, 143, 3) };
    check(
        [Some(ended(vec![failed])), Some(ended(vec![stopped]))],
        |_| {},
        |step| {
            let GangDecision::End(Outcome::Failed { errors, .. }) = step else { panic!("{step:?}") };
            let details = errors[0].details.iter().filter(|detail| detail.name == "GpuError");
            let found: Vec<&str> = details.map(|detail| detail.value.as_str()).collect();
            let other = format!("Xid 79 of GPU 0 (0000:3b:00): GPU has fallen off the bus. On node {}", node(2));
            assert_eq!(found, ["Xid 43 of GPU 0 (0000:3b:00)", other.as_str()]);
        },
    );
}

#[test]
fn the_rank_that_the_others_name_is_the_root_cause() {
    let victim = |rank, at| {
        let stderr_tail = "HorovodInternalError: rank 1 on host h has died\n".to_owned();
        RankExit { stderr_tail, ..exit(rank, 1, at) }
    };
    // The named rank ends last, on another node.
    check(
        [Some(ended(vec![victim(0, 1)])), Some(ended(vec![exit(1, 5, 9), victim(2, 2)]))],
        |_| {},
        |step| {
            let GangDecision::End(Outcome::Failed { exit_code, errors }) = step else { panic!("{step:?}") };
            assert_eq!(exit_code, Some(5));
            assert_eq!((errors[0].details[0].name.as_str(), errors[0].details[0].value.as_str()), ("Rank", "1"));
        },
    );
    // It was stopped because its node failed.
    let error = BatchAiError::new(AGENT_RESTARTED, "The agent was restarted");
    let failure = TaskFailure { exit_code: None, error, at: Timestamp::from_millis(9) };
    let stopped = RankExit { stopped: true, ..exit(1, 143, 3) };
    let restarted = report(TaskPhase::Ended { failure: Some(failure) }, vec![stopped]);
    let lost = GangDecision::End(Outcome::NodeLost { node: node(2) });
    check([Some(ended(vec![victim(0, 1)])), Some(restarted)], |_| {}, is(lost));
}
