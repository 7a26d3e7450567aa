//! Decision table: every stage of a local task against every desired state.

use corro_model::Timestamp;
use corro_model::layout::Role;
use corro_model::node::{RankExit, TaskFailure, VolumeSource};

use super::*;
use crate::testing;

fn attempt(number: u32) -> AttemptId {
    AttemptId { job: "guid".into(), number }
}

fn order(number: u32) -> TaskOrder {
    TaskOrder { attempt: attempt(number), ..testing::order(1) }
}

fn gang() -> GangAddress {
    GangAddress::new("127.0.0.4", 1, 2)
}

fn wants(number: u32, goal: Goal) -> DesiredNode {
    let task = Some(DesiredTask { goal, order: order(number) });
    DesiredNode { task, ..DesiredNode::default() }
}

fn nothing() -> DesiredNode {
    DesiredNode::default()
}

fn retire() -> DesiredNode {
    DesiredNode { retire: true, ..wants(1, Goal::Run { gang: gang() }) }
}

fn ready(task: Option<LocalTask>) -> LocalNode {
    LocalNode { volumes: Some(Vec::new()), task, ..LocalNode::default() }
}

fn task(phase: TaskPhase) -> LocalTask {
    LocalTask::new(ObservedTask { attempt: attempt(1), phase, exits: Vec::new(), elastic: None })
}

#[test]
fn no_task_has_no_stats() {
    let check = |desired: DesiredNode, expected: Option<Action>| {
        assert_eq!(next_action(&desired, &ready(None)), expected, "{desired:?}");
    };
    check(nothing(), None);
    check(retire(), Some(Action::Retire));
    check(wants(1, Goal::Prepare), Some(Action::Begin(&order(1))));
    check(wants(1, Goal::PrepareAndRun), Some(Action::Begin(&order(1))));
    check(wants(1, Goal::Run { gang: gang() }), Some(Action::Decline(&order(1), DeclineReason::Restarted)));
    check(wants(1, Goal::Stop { grace_ms: 5 }), Some(Action::Decline(&order(1), DeclineReason::Stopped)));
}

#[test]
fn a_single_node_gang_is_started_once() {
    let desired = wants(1, Goal::PrepareAndRun);
    let mut task = task(TaskPhase::Preparing);
    assert_eq!(next_action(&desired, &ready(Some(task.clone()))), Some(Action::RunAlone));
    task.gang_given = true;
    assert_eq!(next_action(&desired, &ready(Some(task))), None);
    let last_cleaned = LocalNode { last_cleaned: Some(attempt(1)), ..ready(None) };
    assert_eq!(next_action(&desired, &last_cleaned), Some(Action::Decline(&order(1), DeclineReason::Restarted)));
}

#[test]
fn an_attempt_that_was_cleaned_up_never_begins_again() {
    let local = LocalNode { last_cleaned: Some(attempt(1)), ..ready(None) };
    let again = wants(1, Goal::Prepare);
    assert_eq!(next_action(&again, &local), Some(Action::Decline(&order(1), DeclineReason::Restarted)));
    let next = wants(2, Goal::Prepare);
    assert_eq!(next_action(&next, &local), Some(Action::Begin(&order(2))));
}

/// The action for a task that has received no instruction, for each desired state.
#[test]
fn every_stage_against_every_desired_state() {
    let stop = |grace| Some(Action::Stop(grace));
    let five = Duration::from_millis(5);
    let gang = gang();
    let run = Some(Action::Run(&gang));
    type Row<'a> = (TaskPhase, [Option<Action<'a>>; 6]);
    let rows: [Row; 4] = [
        //                                  Prepare, Run,  Stop,       none,                 other,                retire
        (
            TaskPhase::Preparing,
            [None, run.clone(), stop(five), stop(UNWANTED_GRACE), stop(UNWANTED_GRACE), stop(UNWANTED_GRACE)],
        ),
        (
            TaskPhase::Prepared { gang: None },
            [None, run, stop(five), stop(UNWANTED_GRACE), stop(UNWANTED_GRACE), stop(UNWANTED_GRACE)],
        ),
        (
            TaskPhase::Running,
            [None, None, stop(five), stop(UNWANTED_GRACE), stop(UNWANTED_GRACE), stop(UNWANTED_GRACE)],
        ),
        (
            TaskPhase::Ended { failure: None },
            [None, None, None, Some(Action::Clean), Some(Action::Clean), Some(Action::Clean)],
        ),
    ];
    for (phase, expected) in rows {
        let wishes = [
            wants(1, Goal::Prepare),
            wants(1, Goal::Run { gang: gang.clone() }),
            wants(1, Goal::Stop { grace_ms: 5 }),
            nothing(),
            wants(2, Goal::Prepare),
            retire(),
        ];
        for (request, expected) in wishes.iter().zip(expected) {
            // Ranks run only after the gang's address was given.
            let gang_given = phase == TaskPhase::Running;
            let local = ready(Some(LocalTask { gang_given, ..task(phase.clone()) }));
            assert_eq!(next_action(request, &local), expected, "{phase:?}, {request:?}");
        }
    }
}

#[test]
fn instructions_are_not_repeated() {
    let gang_given = LocalTask { gang_given: true, ..task(TaskPhase::Preparing) };
    assert_eq!(next_action(&wants(1, Goal::Run { gang: gang() }), &ready(Some(gang_given))), None);
    let stopping = LocalTask { stopping: Some(UNWANTED_GRACE), ..task(TaskPhase::Running) };
    let local = ready(Some(stopping));
    assert_eq!(next_action(&nothing(), &local), None);
    assert_eq!(next_action(&wants(1, Goal::Stop { grace_ms: 60_000 }), &local), None);
    let sooner = Some(Action::Stop(Duration::ZERO));
    assert_eq!(next_action(&wants(1, Goal::Stop { grace_ms: 0 }), &local), sooner, "a more urgent stop counts");
    assert_eq!(next_action(&wants(1, Goal::Run { gang: gang() }), &local), None, "a stop is not taken back");
    let cleaning = LocalTask { cleaning: true, ..task(TaskPhase::Ended { failure: None }) };
    for desired in [nothing(), wants(2, Goal::Prepare), retire()] {
        assert_eq!(next_action(&desired, &ready(Some(cleaning.clone()))), None, "{desired:?}");
    }
}

#[test]
fn volumes_are_mounted_before_tasks() {
    let volume = Volume {
        read_only: false,
        beneath: None,
        kind: Default::default(),
        relative: "a".into(),
        label: "//a".into(),
        source: VolumeSource::LocalDirectory("/a".into()),
    };
    let volumes = vec![volume];
    let desired = DesiredNode { volumes: volumes.clone(), ..wants(1, Goal::Prepare) };
    for local in [LocalNode::default(), ready(None), ready(Some(task(TaskPhase::Running)))] {
        assert_eq!(next_action(&desired, &local), Some(Action::MountVolumes(&volumes)), "{local:?}");
    }
    let problem = Some(BatchAiError::new("AZFMountError", "no"));
    let failed = LocalNode { volumes: Some(volumes), problem, ..LocalNode::default() };
    assert_eq!(next_action(&desired, &failed), Some(Action::Decline(&order(1), DeclineReason::NotReady)));
    assert_eq!((failed.observed(false).ready, failed.observed(false).problem.is_some()), (false, true));
    assert!(!LocalNode::default().observed(false).ready, "not before the server has said which volumes");
    assert!(ready(None).observed(false).ready);
}

#[test]
fn a_stuck_node_takes_no_more_jobs() {
    let stuck = LocalNode { stuck: Some(BatchAiError::new("ProcessesNotKilled", "no")), ..ready(None) };
    let observed = stuck.observed(false);
    assert!(!observed.ready && observed.problem == stuck.stuck);
    let desired = wants(1, Goal::Prepare);
    assert_eq!(next_action(&desired, &stuck), Some(Action::Decline(&order(1), DeclineReason::NotReady)));
}

#[test]
fn a_setup_task_runs_once_before_the_first_job() {
    let setup = SetupOrder {
        command: "true".into(),
        std_out_err_path_prefix: "/x".into(),
        segment: "s".into(),
        environment: Vec::new(),
        secrets: Vec::new(),
        shows_secrets: false,
    };
    let desired = DesiredNode { setup: Some(setup.clone()), ..wants(1, Goal::Prepare) };
    let at = |setup: SetupProgress| LocalNode { setup, ..ready(None) };
    let order = order(1);
    for (progress, action) in [
        (SetupProgress::NotBegun, Some(Action::SetUp(&setup))),
        (SetupProgress::Running, None),
        (SetupProgress::Done, Some(Action::Begin(&order))),
        (SetupProgress::Failed(BatchAiError::new("X", "x")), Some(Action::Decline(&order, DeclineReason::NotReady))),
    ] {
        let local = at(progress);
        assert_eq!(next_action(&desired, &local), action, "{local:?}");
        assert_eq!(local.observed(true).ready, local.setup == SetupProgress::Done);
    }
    let stopped = DesiredNode { task: wants(1, Goal::Stop { grace_ms: 1 }).task, ..desired };
    let declined = Some(Action::Decline(&order, DeclineReason::Stopped));
    assert_eq!(next_action(&stopped, &at(SetupProgress::Running)), declined);
}

#[test]
fn only_tasks_ended_by_the_stop_count_as_interrupted() {
    let exit = |exit_code, stopped| RankExit {
        rank: 0,
        role: Role::Rank,
        index: 0,
        exit_code,
        signal: None,
        stopped,
        at: Timestamp::from_millis(1),
        stderr_tail: String::new(),
        out_of_memory: None,
        out_of_processes: None,
        gpu_errors: Vec::new(),
    };
    let (well, badly, stopped) = (exit(Some(0), false), exit(Some(3), false), exit(Some(0), true));
    let at = Timestamp::from_millis(1);
    let error = BatchAiError::new("ProcessesNotKilled", "they live");
    let ended = |failure| TaskPhase::Ended { failure };
    let failed = || ended(Some(TaskFailure { exit_code: None, error: error.clone(), at }));
    for (phase, exits, cut) in [
        (ended(None), vec![], true),
        (ended(None), vec![stopped.clone()], true),
        (ended(None), vec![well.clone(), stopped.clone()], true),
        (ended(None), vec![well.clone()], false),
        (ended(None), vec![well.clone(), badly.clone()], false),
        (failed(), vec![], false),
        (failed(), vec![stopped.clone()], false),
        (TaskPhase::Preparing, vec![], false),
        (TaskPhase::Prepared { gang: None }, vec![], false),
        (TaskPhase::Running, vec![], false),
        (TaskPhase::Running, vec![stopped.clone()], false),
    ] {
        let task = ObservedTask { attempt: order(1).attempt, phase, exits, elastic: None };
        assert_eq!(ended_by_stop(&task), cut, "{task:?}");
    }
}
