//! Semantics within one process set: matching, mismatches, groups, barriers, shutdown, timeline events.

use std::sync::Arc;

use super::simulated_job::{End, SimulatedJob, config, of_kind, request};
use crate::coordinator::error_messages::shutdown_message_by;
use crate::coordinator::*;
use crate::{Dtype, ReduceOp};

#[test]
fn the_last_request_is_answered_at_once_in_any_order() {
    let mut job = SimulatedJob::new(2);
    for name in ["a", "b", "c"] {
        job.submit(0, request(name));
    }
    job.run();
    assert_eq!(job.take_executed(0), Vec::<Vec<String>>::new());
    job.submit(1, request("c"));
    job.run();
    assert_eq!(job.take_executed(0), [["c"]]);
    // Tensors completed by one frame are fused.
    job.submit(1, request("b"));
    job.submit(1, request("a"));
    job.run();
    assert_eq!(job.take_executed(0), [["b", "a"]]);
    assert_eq!(job.take_executed(1), vec![vec!["c"], vec!["b", "a"]]);
    assert_eq!(job.workers[0].n_pending() + job.workers[1].n_pending(), 0);
}

#[test]
fn mismatches_fail_on_all_ranks_and_negotiation_continues() {
    let mut job = SimulatedJob::new(3);
    for _ in 0..2 {
        let request_ids: Vec<RequestId> = (0..3)
            .map(|rank| {
                let dtype = if rank == 0 { Dtype::F64 } else { Dtype::F32 };
                job.submit(rank, Request { dtype, ..request("x") })
            })
            .collect();
        job.run();
        let text = "Mismatched data types: One rank had type float64, but another rank had type float32.";
        for (rank, request_id) in request_ids.into_iter().enumerate() {
            assert_eq!(job.end(rank, request_id), Some(&End::Failed(text.to_owned())));
        }
        let request_ids: Vec<RequestId> = (0..3).map(|rank| job.submit(rank, request("x"))).collect();
        job.run();
        for (rank, request_id) in request_ids.into_iter().enumerate() {
            assert_eq!(job.end(rank, request_id), Some(&End::Executed));
        }
    }
}

#[test]
fn a_name_in_flight_cannot_be_submitted_again() {
    let mut job = SimulatedJob::new(2);
    job.submit(0, request("x"));
    let refused = job.workers[0].submit_one(request("x"), job.now).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor that is currently being \
         processed.  If you want to request another tensor, use a different tensor name."
    );
    assert!(refused.is_invalid_argument());
    // All or nothing.
    let both = vec![request("y"), request("x")];
    assert_eq!(job.workers[0].submit(both, false, job.now), Err(SubmitError::DuplicateName));
    let twice = vec![request("y"), request("y")];
    assert_eq!(job.workers[0].submit(twice, true, job.now), Err(SubmitError::DuplicateName));
    assert_eq!(job.workers[0].n_pending(), 1);
    job.submit(1, request("x"));
    job.run();
    job.submit(0, request("x"));
}

#[test]
fn arguments_are_checked_on_the_submitting_rank() {
    let check = |request: Request, expected: &str, is_invalid_argument: bool| {
        let refused = SimulatedJob::new(2).workers[1].submit_one(request, Default::default()).unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.is_invalid_argument()), (expected, is_invalid_argument));
    };
    let unknown = |kind| Request { set: SetId(7), ..of_kind(kind, "x") };
    for (kind, call) in [
        (Kind::Allreduce, "Allreduce"),
        (Kind::Adasum, "Allreduce"),
        (Kind::Allgather, "Allgather"),
        (Kind::Broadcast, "Broadcast"),
        (Kind::Reducescatter, "Reducescatter"),
        (Kind::Alltoall, "Alltoall"),
    ] {
        let text = format!("{call}: Process set provided does not exist, or has not been registered.");
        check(unknown(kind), &text, true);
    }
    check(
        Request { root: 99, ..of_kind(Kind::Broadcast, "x") },
        "broadcast received invalid root rank 99 for provided process set",
        true,
    );
    let alltoall = |shape: &[u64], splits: &[u64]| Request {
        shape: shape.to_vec(),
        splits: splits.to_vec(),
        ..of_kind(Kind::Alltoall, "x")
    };
    check(
        alltoall(&[3], &[]),
        "splits not provided, but first dimension of tensor is not an even multiple of the number of workers.",
        true,
    );
    check(alltoall(&[3], &[2, 2]), "Sum of splits entries is greater than the first dimension of tensor.", true);
    check(alltoall(&[3], &[u64::MAX, 2]), "Sum of splits entries is greater than the first dimension of tensor.", true);
    check(alltoall(&[3], &[1]), "Number of entries in splits does not equal number of workers.", true);
    check(
        Request { op: ReduceOp::Max, ..of_kind(Kind::Reducescatter, "x") },
        "Reducescatter currently only supports AVERAGE and SUM.",
        false,
    );
    let mut job = SimulatedJob::new(2);
    let mixed = vec![request("a"), Request { device: 0, ..request("b") }];
    let refused = job.workers[0].submit(mixed, true, job.now).unwrap_err();
    assert_eq!(
        (refused.to_string().as_str(), refused.is_invalid_argument()),
        ("Tensors in list must be on same device.", false)
    );
}

#[test]
fn a_scalar_alltoall_fails_on_all_ranks() {
    let mut job = SimulatedJob::new(2);
    let scalar = Request { shape: Vec::new(), ..of_kind(Kind::Alltoall, "x") };
    let request_id = job.submit(0, scalar.clone());
    job.submit(1, scalar);
    job.run();
    let text = "Process-set rank zero tried to ALLTOALL a rank-zero tensor.";
    assert_eq!(job.end(0, request_id), Some(&End::Failed(text.to_owned())));
}

#[test]
fn groups_are_executed_as_a_whole() {
    let mut job = SimulatedJob::new(2);
    job.submit_group(0, vec![request("a"), request("b")]);
    job.submit(1, request("b"));
    job.run();
    assert!(job.take_executed(0).is_empty());
    job.submit(1, request("a"));
    job.run();
    assert_eq!(job.take_executed(0), [["a", "b"]]);
}

#[test]
fn a_mismatched_tensor_of_a_group_fails_alone() {
    let mut job = SimulatedJob::new(2);
    let group = |dtype| vec![request("a"), Request { dtype, ..request("b") }, request("c")];
    let request_ids = job.submit_group(0, group(Dtype::F32));
    job.submit_group(1, group(Dtype::I32));
    job.run();
    assert_eq!(job.take_executed(1), [["a", "c"]]);
    assert!(matches!(job.end(0, request_ids[1]), Some(End::Failed(_))));
}

#[test]
fn mixed_dtypes_in_a_group_are_not_fused() {
    let mut job = SimulatedJob::new(2);
    let group = || vec![request("a"), Request { dtype: Dtype::I32, ..request("b") }, request("c")];
    job.submit_group(0, group());
    job.submit_group(1, group());
    job.run();
    assert_eq!(job.take_executed(1), vec![vec!["a", "c"], vec!["b"]]);
}

#[test]
fn group_fusion_can_be_disabled() {
    let mut job = SimulatedJob::with(Config { disable_group_fusion: true, ..config(2) });
    for rank in 0..2 {
        job.submit_group(rank, vec![request("a"), request("b")]);
        job.submit(rank, request("c"));
        job.submit_group(rank, vec![request("d")]);
        job.submit(rank, request("e"));
    }
    job.run();
    assert_eq!(job.take_executed(1), vec![vec!["a", "b"], vec!["c", "e"], vec!["d"]]);
}

#[test]
fn a_barrier_waits_for_all_and_is_one_at_a_time() {
    let mut job = SimulatedJob::new(2);
    let first = job.workers[0].barrier(SetId::GLOBAL, job.now).expect("a member");
    assert_eq!(job.workers[0].barrier(SetId::GLOBAL, job.now), Err(SubmitError::DuplicateName));
    job.run();
    assert_eq!(job.end(0, first), None);
    job.workers[1].barrier(SetId::GLOBAL, job.now).expect("a member");
    job.run();
    assert_eq!(job.end(0, first), Some(&End::Executed));
    // A tensor with the barrier's name is an ordinary tensor.
    job.submit(0, request("barrier.noname"));
    job.submit(1, request("barrier.noname"));
    job.workers[0].barrier(SetId::GLOBAL, job.now).expect("a member");
    job.run();
    assert_eq!(job.take_executed(0), [["barrier.noname"]]);
}

#[test]
fn allgather_and_alltoall_sizes_reach_all_ranks_even_if_cached() {
    let mut job = SimulatedJob::new(2);
    for (rows, splits) in [([1, 2], [[1, 0], [2, 3]]), ([1, 2], [[1, 0], [2, 3]]), ([1, 5], [[1, 0], [2, 0]])] {
        for rank in 0..2 {
            job.submit(rank, Request { shape: vec![rows[rank], 3], ..of_kind(Kind::Allgather, "g") });
            let splits = splits[rank].to_vec();
            job.submit(rank, Request { shape: vec![9, 2], splits, ..of_kind(Kind::Alltoall, "t") });
        }
        job.run();
        for (rank, own_splits) in splits.iter().enumerate() {
            let done = std::mem::take(&mut job.done[rank]);
            let [Action::Execute { tensors: gather, .. }, Action::Execute { tensors: all, .. }] = &done[..] else {
                panic!("{done:?}")
            };
            assert_eq!(
                (&gather[0].response.rows[..], &gather[0].response.shape[..]),
                (&rows[..], &[rows.iter().sum(), 3][..])
            );
            let received = [splits[0][rank], splits[1][rank]];
            assert_eq!((&all[0].response.rows[..], all[0].response.shape[0]), (&received[..], received.iter().sum()));
            assert_eq!(*all[0].splits, *own_splits);
        }
    }
}

#[test]
fn a_name_can_change_its_kind() {
    let mut job = SimulatedJob::new(2);
    for kind in [Kind::Allreduce, Kind::Reducescatter, Kind::Allgather, Kind::Broadcast, Kind::Adasum, Kind::Alltoall] {
        for _ in 0..2 {
            let request_ids = [0, 1].map(|rank| job.submit(rank, of_kind(kind, "x")));
            job.run();
            assert_eq!(
                [0, 1].map(|rank| job.end(rank, request_ids[rank]).cloned()),
                [Some(End::Executed), Some(End::Executed)]
            );
        }
    }
}

#[test]
fn a_shutdown_requested_by_one_rank_reaches_all() {
    let mut job = SimulatedJob::new(3);
    let request_id = job.submit(1, request("x"));
    job.workers[2].shut_down();
    job.run();
    let Some(End::Failed(text)) = job.end(1, request_id) else { panic!("it fails") };
    assert!(text.starts_with(
        "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to"
    ));
    for rank in 0..3 {
        let refused = job.workers[rank].submit_one(request("y"), job.now).unwrap_err();
        assert_eq!(refused, SubmitError::Ended(shutdown_message_by(2).into()));
        assert!(matches!(
            job.done[rank].last(),
            Some(Action::ShutDown { reason: ShutdownReason::Requested { rank: 2 }, .. })
        ));
    }
}

#[test]
fn a_lost_rank_is_named_in_the_errors_of_the_others() {
    let mut job = SimulatedJob::new(3);
    let request_id = job.submit(0, request("x"));
    job.run();
    job.coordinator.on_rank_lost(1, "rank 1 on host-1 is gone");
    job.coordinator.on_rank_lost(2, "rank 2 on host-2 is gone");
    job.run();
    assert_eq!(job.end(0, request_id), Some(&End::Failed("rank 1 on host-1 is gone".into())));
    assert_eq!(
        job.workers[2].barrier(SetId::GLOBAL, job.now),
        Err(SubmitError::Ended("rank 1 on host-1 is gone".into()))
    );
    assert!(job.done[1].is_empty());
}

#[test]
fn an_abort_fails_everything_pending() {
    let mut job = SimulatedJob::new(2);
    let mut request_ids = vec![job.submit(0, request("x"))];
    request_ids.push(job.workers[0].barrier(SetId::GLOBAL, job.now).expect("a member"));
    request_ids.push(job.workers[0].join(SetId::GLOBAL, job.now).expect("a member"));
    request_ids.push(job.workers[0].add_set(vec![0], job.now).expect("allowed"));
    assert_eq!(job.workers[0].n_pending(), 4);
    assert_eq!(job.workers[0].pending().count(), 3);
    assert_eq!(job.workers[0].abort("gone"), request_ids);
    assert_eq!(job.workers[0].n_pending(), 0);
    assert_eq!(job.workers[0].submit_one(request("y"), job.now), Err(SubmitError::Ended("gone".into())));
}

#[test]
fn tuning_reaches_all_ranks_and_takes_effect() {
    let mut job = SimulatedJob::new(2);
    let tuning = Tuning { fusion_threshold: 0, cycle_time_ms: 2.5 };
    job.coordinator.tune(tuning);
    for rank in 0..2 {
        job.submit_group(rank, vec![request("a"), request("b")]);
    }
    job.run();
    assert_eq!(job.done[1][0], Action::Tune(tuning));
    assert_eq!(job.take_executed(1), [["a"], ["b"]]);
}

#[test]
fn events_include_requests_made_before_recording_was_enabled() {
    let mut job = SimulatedJob::new(3);
    let (generation, name) = (GLOBAL_GENERATION, Arc::<str>::from("x"));
    for _ in 0..2 {
        job.coordinator.events().set_enabled(false);
        job.submit(2, request("x"));
        job.run();
        job.coordinator.events().set_enabled(true);
        for rank in 0..2 {
            job.submit(rank, request("x"));
            job.run();
        }
        let ready = |set_rank| NegotiationEvent::Ready { generation, name: name.clone(), set_rank };
        let start = NegotiationEvent::Start { generation, name: name.clone(), kind: Kind::Allreduce };
        let end = NegotiationEvent::End { generation, name: name.clone() };
        assert_eq!(job.coordinator.events().drain(), [start, ready(2), ready(0), ready(1), end]);
    }
}

#[test]
fn events_show_when_each_rank_is_ready() {
    let mut job = SimulatedJob::new(2);
    job.submit(0, request("before"));
    job.run();
    job.coordinator.events().set_enabled(true);
    for _ in 0..2 {
        job.submit(1, request("x"));
        job.run();
        job.submit(0, request("x"));
        job.run();
        let (generation, name) = (GLOBAL_GENERATION, Arc::<str>::from("x"));
        assert_eq!(
            job.coordinator.events().drain(),
            [
                NegotiationEvent::Start { generation, name: name.clone(), kind: Kind::Allreduce },
                NegotiationEvent::Ready { generation, name: name.clone(), set_rank: 1 },
                NegotiationEvent::Ready { generation, name: name.clone(), set_rank: 0 },
                NegotiationEvent::End { generation, name },
            ]
        );
    }
}
