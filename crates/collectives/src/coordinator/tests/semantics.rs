//! What users of one process set see: agreement, disagreement, groups, barriers, the end.

use std::sync::Arc;

use super::world::{End, World, config, of_kind, request};
use crate::coordinator::text::shut_down_by;
use crate::coordinator::*;
use crate::{Dtype, ReduceOp};

#[test]
fn the_last_request_is_answered_at_once_in_any_order_of_names() {
    let mut world = World::new(2);
    for name in ["a", "b", "c"] {
        world.submit(0, request(name));
    }
    world.run();
    assert_eq!(world.take_performed(0), Vec::<Vec<String>>::new());
    world.submit(1, request("c"));
    world.run();
    assert_eq!(world.take_performed(0), [["c"]]);
    // What one frame makes ready travels together.
    world.submit(1, request("b"));
    world.submit(1, request("a"));
    world.run();
    assert_eq!(world.take_performed(0), [["b", "a"]]);
    assert_eq!(world.take_performed(1), vec![vec!["c"], vec!["b", "a"]]);
    assert_eq!(world.members[0].n_pending() + world.members[1].n_pending(), 0);
}

#[test]
fn disagreement_is_told_to_all_and_the_engine_goes_on() {
    let mut world = World::new(3);
    for _ in 0..2 {
        let tokens: Vec<Token> = (0..3)
            .map(|rank| {
                let dtype = if rank == 0 { Dtype::F64 } else { Dtype::F32 };
                world.submit(rank, Request { dtype, ..request("x") })
            })
            .collect();
        world.run();
        let text = "Mismatched data types: One rank had type float64, but another rank had type float32.";
        for (rank, token) in tokens.into_iter().enumerate() {
            assert_eq!(world.end(rank, token), Some(&End::Failed(text.to_owned())));
        }
        let tokens: Vec<Token> = (0..3).map(|rank| world.submit(rank, request("x"))).collect();
        world.run();
        for (rank, token) in tokens.into_iter().enumerate() {
            assert_eq!(world.end(rank, token), Some(&End::Performed));
        }
    }
}

#[test]
fn a_name_in_flight_cannot_be_submitted_again_until_it_ends() {
    let mut world = World::new(2);
    world.submit(0, request("x"));
    let refused = world.members[0].submit_one(request("x"), world.now).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor that is currently being \
         processed.  If you want to request another tensor, use a different tensor name."
    );
    assert!(refused.is_argument());
    // All or nothing.
    let both = vec![request("y"), request("x")];
    assert_eq!(world.members[0].submit(both, false, world.now), Err(SubmitError::DuplicateName));
    let twice = vec![request("y"), request("y")];
    assert_eq!(world.members[0].submit(twice, true, world.now), Err(SubmitError::DuplicateName));
    assert_eq!(world.members[0].n_pending(), 1);
    world.submit(1, request("x"));
    world.run();
    world.submit(0, request("x"));
}

#[test]
fn arguments_are_checked_where_they_are_given() {
    let check = |request: Request, expected: &str, is_argument: bool| {
        let refused = World::new(2).members[1].submit_one(request, Default::default()).unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.is_argument()), (expected, is_argument));
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
    let mut world = World::new(2);
    let mixed = vec![request("a"), Request { device: 0, ..request("b") }];
    let refused = world.members[0].submit(mixed, true, world.now).unwrap_err();
    assert_eq!(
        (refused.to_string().as_str(), refused.is_argument()),
        ("Tensors in list must be on same device.", false)
    );
}

#[test]
fn a_scalar_alltoall_is_refused_on_all_ranks() {
    let mut world = World::new(2);
    let scalar = Request { shape: Vec::new(), ..of_kind(Kind::Alltoall, "x") };
    let token = world.submit(0, scalar.clone());
    world.submit(1, scalar);
    world.run();
    let text = "Process-set rank zero tried to ALLTOALL a rank-zero tensor.";
    assert_eq!(world.end(0, token), Some(&End::Failed(text.to_owned())));
}

#[test]
fn groups_are_released_whole() {
    let mut world = World::new(2);
    world.submit_group(0, vec![request("a"), request("b")]);
    world.submit(1, request("b"));
    world.run();
    assert!(world.take_performed(0).is_empty());
    world.submit(1, request("a"));
    world.run();
    assert_eq!(world.take_performed(0), [["a", "b"]]);
}

#[test]
fn one_bad_member_of_a_group_fails_alone() {
    let mut world = World::new(2);
    let group = |dtype| vec![request("a"), Request { dtype, ..request("b") }, request("c")];
    let tokens = world.submit_group(0, group(Dtype::F32));
    world.submit_group(1, group(Dtype::I32));
    world.run();
    assert_eq!(world.take_performed(1), [["a", "c"]]);
    assert!(matches!(world.end(0, tokens[1]), Some(End::Failed(_))));
}

#[test]
fn mixed_dtypes_in_a_group_are_performed_apart() {
    let mut world = World::new(2);
    let group = || vec![request("a"), Request { dtype: Dtype::I32, ..request("b") }, request("c")];
    world.submit_group(0, group());
    world.submit_group(1, group());
    world.run();
    assert_eq!(world.take_performed(1), vec![vec!["a", "c"], vec!["b"]]);
}

#[test]
fn groups_stay_apart_when_asked() {
    let mut world = World::with(Config { groups_apart: true, ..config(2) });
    for rank in 0..2 {
        world.submit_group(rank, vec![request("a"), request("b")]);
        world.submit(rank, request("c"));
        world.submit_group(rank, vec![request("d")]);
        world.submit(rank, request("e"));
    }
    world.run();
    assert_eq!(world.take_performed(1), vec![vec!["a", "b"], vec!["c", "e"], vec!["d"]]);
}

#[test]
fn a_barrier_waits_for_all_and_is_one_at_a_time() {
    let mut world = World::new(2);
    let first = world.members[0].barrier(SetId::GLOBAL, world.now).expect("a member");
    assert_eq!(world.members[0].barrier(SetId::GLOBAL, world.now), Err(SubmitError::DuplicateName));
    world.run();
    assert_eq!(world.end(0, first), None);
    world.members[1].barrier(SetId::GLOBAL, world.now).expect("a member");
    world.run();
    assert_eq!(world.end(0, first), Some(&End::Performed));
    // A tensor of the barrier's name is a tensor.
    world.submit(0, request("barrier.noname"));
    world.submit(1, request("barrier.noname"));
    world.members[0].barrier(SetId::GLOBAL, world.now).expect("a member");
    world.run();
    assert_eq!(world.take_performed(0), [["barrier.noname"]]);
}

#[test]
fn sizes_of_allgather_and_alltoall_reach_everybody_also_when_remembered() {
    let mut world = World::new(2);
    for (rows, splits) in [([1, 2], [[1, 0], [2, 3]]), ([1, 2], [[1, 0], [2, 3]]), ([1, 5], [[1, 0], [2, 0]])] {
        for rank in 0..2 {
            world.submit(rank, Request { shape: vec![rows[rank], 3], ..of_kind(Kind::Allgather, "g") });
            let splits = splits[rank].to_vec();
            world.submit(rank, Request { shape: vec![9, 2], splits, ..of_kind(Kind::Alltoall, "t") });
        }
        world.run();
        for (rank, own_splits) in splits.iter().enumerate() {
            let done = std::mem::take(&mut world.done[rank]);
            let [Action::Perform { tensors: gather, .. }, Action::Perform { tensors: all, .. }] = &done[..] else {
                panic!("{done:?}")
            };
            assert_eq!(
                (&gather[0].agreed.rows[..], &gather[0].agreed.shape[..]),
                (&rows[..], &[rows.iter().sum(), 3][..])
            );
            let received = [splits[0][rank], splits[1][rank]];
            assert_eq!((&all[0].agreed.rows[..], all[0].agreed.shape[0]), (&received[..], received.iter().sum()));
            assert_eq!(*all[0].splits, *own_splits);
        }
    }
}

#[test]
fn a_name_can_change_its_kind() {
    let mut world = World::new(2);
    for kind in [Kind::Allreduce, Kind::Reducescatter, Kind::Allgather, Kind::Broadcast, Kind::Adasum, Kind::Alltoall] {
        for _ in 0..2 {
            let tokens = [0, 1].map(|rank| world.submit(rank, of_kind(kind, "x")));
            world.run();
            assert_eq!(
                [0, 1].map(|rank| world.end(rank, tokens[rank]).cloned()),
                [Some(End::Performed), Some(End::Performed)]
            );
        }
    }
}

#[test]
fn the_end_asked_for_by_one_reaches_all() {
    let mut world = World::new(3);
    let token = world.submit(1, request("x"));
    world.members[2].shut_down();
    world.run();
    let Some(End::Failed(text)) = world.end(1, token) else { panic!("it fails") };
    assert!(text.starts_with(
        "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to"
    ));
    for rank in 0..3 {
        let refused = world.members[rank].submit_one(request("y"), world.now).unwrap_err();
        assert_eq!(refused, SubmitError::Ended(shut_down_by(2).into()));
        assert!(matches!(
            world.done[rank].last(),
            Some(Action::ShutDown { reason: ShutdownReason::Asked { rank: 2 }, .. })
        ));
    }
}

#[test]
fn a_lost_rank_is_named_to_the_others() {
    let mut world = World::new(3);
    let token = world.submit(0, request("x"));
    world.run();
    world.coordinator.on_lost(1, "rank 1 on host-1 is gone");
    world.coordinator.on_lost(2, "rank 2 on host-2 is gone");
    world.run();
    assert_eq!(world.end(0, token), Some(&End::Failed("rank 1 on host-1 is gone".into())));
    assert_eq!(
        world.members[2].barrier(SetId::GLOBAL, world.now),
        Err(SubmitError::Ended("rank 1 on host-1 is gone".into()))
    );
    assert!(world.done[1].is_empty());
}

#[test]
fn an_abort_fails_everything_pending() {
    let mut world = World::new(2);
    let mut tokens = vec![world.submit(0, request("x"))];
    tokens.push(world.members[0].barrier(SetId::GLOBAL, world.now).expect("a member"));
    tokens.push(world.members[0].join(SetId::GLOBAL, world.now).expect("a member"));
    tokens.push(world.members[0].add_set(vec![0], world.now).expect("allowed"));
    assert_eq!(world.members[0].n_pending(), 4);
    assert_eq!(world.members[0].pending().count(), 3);
    assert_eq!(world.members[0].abort("gone"), tokens);
    assert_eq!(world.members[0].n_pending(), 0);
    assert_eq!(world.members[0].submit_one(request("y"), world.now), Err(SubmitError::Ended("gone".into())));
}

#[test]
fn tuning_reaches_all_and_holds() {
    let mut world = World::new(2);
    let tuning = Tuning { fusion_threshold: 0, cycle_time_ms: 2.5 };
    world.coordinator.tune(tuning);
    for rank in 0..2 {
        world.submit_group(rank, vec![request("a"), request("b")]);
    }
    world.run();
    assert_eq!(world.done[1][0], Action::Tune(tuning));
    assert_eq!(world.take_performed(1), [["a"], ["b"]]);
}

#[test]
fn a_timeline_hears_of_those_who_asked_before_it_began() {
    let mut world = World::new(3);
    let (area, name) = (GLOBAL_AREA, Arc::<str>::from("x"));
    for _ in 0..2 {
        world.coordinator.events().set(false);
        world.submit(2, request("x"));
        world.run();
        world.coordinator.events().set(true);
        for rank in 0..2 {
            world.submit(rank, request("x"));
            world.run();
        }
        let ready = |place| Event::Ready { area, name: name.clone(), place };
        let start = Event::Start { area, name: name.clone(), kind: Kind::Allreduce };
        let end = Event::End { area, name: name.clone() };
        assert_eq!(world.coordinator.events().take(), [start, ready(2), ready(0), ready(1), end]);
    }
}

#[test]
fn a_timeline_hears_who_is_ready_when() {
    let mut world = World::new(2);
    world.submit(0, request("before"));
    world.run();
    world.coordinator.events().set(true);
    for _ in 0..2 {
        world.submit(1, request("x"));
        world.run();
        world.submit(0, request("x"));
        world.run();
        let (area, name) = (GLOBAL_AREA, Arc::<str>::from("x"));
        assert_eq!(
            world.coordinator.events().take(),
            [
                Event::Start { area, name: name.clone(), kind: Kind::Allreduce },
                Event::Ready { area, name: name.clone(), place: 1 },
                Event::Ready { area, name: name.clone(), place: 0 },
                Event::End { area, name },
            ]
        );
    }
}
