//! Ranks that have run out of data.

use super::world::{End, World, config, of_kind, request};
use crate::coordinator::*;

fn join(world: &mut World, rank: usize) -> Token {
    world.members[rank].join(SetId::GLOBAL, world.now).expect("a member")
}

/// Which of the tensors that a rank performed were its own.
fn own(world: &World, rank: usize) -> Vec<bool> {
    let performed = world.done[rank].iter().filter_map(|action| match action {
        Action::Perform { tensors, .. } => Some(tensors.iter().map(|tensor| tensor.token.is_some())),
        _ => None,
    });
    performed.flatten().collect()
}

#[test]
fn a_joined_rank_supplies_zeros_and_all_hear_who_was_last() {
    let mut world = World::new(3);
    for round in 0..3 {
        let first = join(&mut world, 1);
        world.run();
        for _ in 0..2 {
            let tokens = [0, 2].map(|rank| world.submit(rank, request("x")));
            world.run();
            assert_eq!(world.end(2, tokens[1]), Some(&End::Performed), "round {round}");
        }
        assert_eq!(own(&world, 1), vec![false; 2 * (round + 1)]);
        join(&mut world, 2);
        world.run();
        world.submit(0, request("alone"));
        world.run();
        assert_eq!(world.end(1, first), None);
        let last = join(&mut world, 0);
        world.run();
        assert_eq!((world.end(1, first), world.end(0, last)), (Some(&End::Joined(0)), Some(&End::Joined(0))));
        world.done[1]
            .retain(|action| !matches!(action, Action::Perform { tensors, .. } if &*tensors[0].agreed.name == "alone"));
    }
}

#[test]
fn what_waited_only_for_a_rank_that_joins_is_performed() {
    let mut world = World::new(2);
    let group = world.submit_group(0, vec![request("a"), request("b")]);
    world.run();
    join(&mut world, 1);
    world.run();
    assert_eq!(world.end(0, group[1]), Some(&End::Performed));
    assert_eq!(own(&world, 1), [false, false]);
}

#[test]
fn what_a_rank_submitted_before_it_joined_is_its_own() {
    let mut world = World::new(2);
    let before = world.submit(1, request("a"));
    join(&mut world, 1);
    let others = world.submit_group(0, vec![request("a"), request("b")]);
    world.run();
    assert_eq!(world.end(1, before), Some(&End::Performed));
    assert_eq!(own(&world, 1), [true, false]);
    assert_eq!(others.len(), 2);
}

#[test]
fn kinds_that_need_everybody_are_refused_also_when_remembered() {
    let mut world = World::new(2);
    for kind in [Kind::Allgather, Kind::Alltoall, Kind::Broadcast, Kind::Reducescatter] {
        let name = kind.name();
        world.submit_on([0, 1], of_kind(kind, name));
    }
    world.run();
    join(&mut world, 1);
    for kind in [Kind::Allgather, Kind::Alltoall, Kind::Broadcast, Kind::Reducescatter] {
        for name in [kind.name(), "new"] {
            let token = world.submit(0, of_kind(kind, name));
            world.run();
            let Some(End::Failed(text)) = world.end(0, token) else { panic!("{kind:?} fails") };
            assert!(text.starts_with(&format!("{} is not supported with Join at this time.", kind.call())), "{text}");
        }
    }
    let token = world.submit(0, request("x"));
    world.run();
    assert_eq!(world.end(0, token), Some(&End::Performed));
}

#[test]
fn a_barrier_does_not_wait_for_who_has_joined() {
    let mut world = World::new(2);
    join(&mut world, 1);
    let token = world.members[0].barrier(SetId::GLOBAL, world.now).expect("a member");
    world.run();
    assert_eq!(world.end(0, token), Some(&End::Performed));
}

/// The joined rank's next request is under way while the others are told to do without it.
#[test]
fn a_request_that_crosses_an_operation_without_it_waits_for_the_next() {
    let mut world = World::new(2);
    join(&mut world, 1);
    world.run();
    world.submit(0, request("x"));
    world.flush(0);
    world.deliver_up(0);
    world.drain();
    let crossing = world.submit(1, request("x"));
    world.run();
    assert_eq!((world.end(1, crossing), own(&world, 1)), (None, vec![false]));
    world.submit(0, request("x"));
    world.run();
    assert_eq!(world.end(1, crossing), Some(&End::Performed));
}

/// A request by an id that was lost on the way has to be sent again, and must not be overtaken by the join behind it.
#[test]
fn a_join_does_not_overtake_what_has_to_be_sent_again() {
    let mut world = World::with(Config { cache_capacity: 1, ..config(2) });
    world.submit_on([0, 1], request("x"));
    world.run();
    world.submit_on([0, 1], request("y"));
    for rank in 0..2 {
        world.flush(rank);
        world.deliver_up(rank);
    }
    // "x" has no id any more; rank 1 does not know yet.
    let before = world.submit(1, request("x"));
    join(&mut world, 1);
    world.flush(1);
    world.deliver_up(1);
    world.submit(0, request("x"));
    world.run();
    assert_eq!(world.end(1, before), Some(&End::Performed));
    assert_eq!(own(&world, 1), [true; 3]);
}
