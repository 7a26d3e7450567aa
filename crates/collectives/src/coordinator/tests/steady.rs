//! A training loop: after the first step only ids travel, and nothing grows.

use super::world::{World, config, of_kind, request};
use crate::coordinator::*;

const N_TENSORS: usize = 161;

fn step(world: &mut World) {
    for rank in 0..world.size() {
        // Every rank in its own order.
        for n in 0..N_TENSORS {
            world.submit(
                rank,
                request(&format!("a.rather.long.name.of.a.gradient.{}", (n * 5 + rank * 11) % N_TENSORS)),
            );
        }
        world.submit(rank, Request { shape: vec![rank as u64, 2], ..of_kind(Kind::Allgather, "g") });
        world.submit(rank, Request { shape: vec![6], splits: vec![1, 2, 3], ..of_kind(Kind::Alltoall, "t") });
        world.submit(rank, of_kind(Kind::Broadcast, "b"));
        world.submit(rank, of_kind(Kind::Reducescatter, "r"));
        world.members[rank].barrier(SetId::GLOBAL, world.now).expect("a member");
    }
    world.run();
    assert_eq!(world.members.iter().map(Member::n_pending).sum::<usize>(), 0);
}

#[test]
fn only_ids_travel_and_nothing_grows() {
    let mut world = World::new(3);
    step(&mut world);
    step(&mut world);
    let sizes = |world: &World| {
        let members: Vec<_> = world.members.iter().map(Member::footprint).collect();
        (world.coordinator.footprint(), members)
    };
    let before = sizes(&world);
    for _ in 0..50 {
        (world.bytes_up, world.bytes_down) = (0, 0);
        step(&mut world);
        let n_operations = 3 * (N_TENSORS + 5);
        assert!(world.bytes_up <= 3 * n_operations, "{} bytes up", world.bytes_up);
        assert!(world.bytes_down <= 3 * n_operations, "{} bytes down", world.bytes_down);
    }
    assert_eq!(sizes(&world), before);
}

#[test]
fn more_names_than_the_cache_holds_work_and_do_not_pile_up() {
    for cache_capacity in [0, 1, 7, 100] {
        let mut world = World::with(Config { cache_capacity, ..config(3) });
        for _ in 0..10 {
            step(&mut world);
        }
        let (coordinator, member) = (world.coordinator.footprint(), world.members[2].footprint());
        assert!(coordinator.n_ids == cache_capacity && member.n_ids == cache_capacity, "{coordinator:?} {member:?}");
        assert!(
            coordinator.n_names == cache_capacity && member.n_names == cache_capacity,
            "{coordinator:?} {member:?}"
        );
    }
}

#[test]
fn names_used_once_do_not_pile_up() {
    let mut world = World::with(Config { cache_capacity: 10, ..config(2) });
    for n in 0..1000 {
        world.submit_on([0, 1], request(&n.to_string()));
        world.run();
    }
    let (coordinator, member) = (world.coordinator.footprint(), world.members[1].footprint());
    assert!(coordinator.n_slots < 16 && member.n_slots < 16, "{coordinator:?} {member:?}");
}

/// A rank uses an id that was lost while its message was under way.
#[test]
fn a_lost_id_is_asked_for_again_in_full() {
    let mut world = World::with(Config { cache_capacity: 1, ..config(2) });
    world.submit_on([0, 1], request("x"));
    world.run();
    world.submit_on([0, 1], request("y"));
    for rank in 0..2 {
        world.flush(rank);
        world.deliver_up(rank);
    }
    // "x" has no id any more, but nobody knows yet.
    let group = world.submit_group(0, vec![request("z"), request("x")]);
    let single = world.submit(1, request("x"));
    world.submit(1, request("z"));
    world.run();
    assert!(world.end(0, group[0]).is_some() && world.end(0, group[1]).is_some() && world.end(1, single).is_some());
}
