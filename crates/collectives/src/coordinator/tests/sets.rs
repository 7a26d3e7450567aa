//! Process sets: made and removed by all, used by members.

use super::world::{End, World, request};
use crate::coordinator::*;

fn add(world: &mut World, ranks: &[u32]) -> End {
    let tokens: Vec<Token> =
        world.members.iter_mut().map(|member| member.add_set(ranks.to_vec(), world.now).expect("allowed")).collect();
    world.run();
    let end = world.end(0, tokens[0]).expect("all have asked").clone();
    for (rank, token) in tokens.iter().enumerate() {
        assert_eq!(world.end(rank, *token), Some(&end));
    }
    end
}

fn added(id: u32, area: Area, ranks: &[u32]) -> End {
    End::SetsAdded(vec![SetMade { id: SetId(id), area, ranks: ranks.to_vec() }])
}

fn remove(world: &mut World, set: u32) {
    for rank in 0..world.size() {
        world.members[rank].remove_set(SetId(set), world.now).expect("registered");
    }
    world.run();
}

fn in_set(set: u32, name: &str) -> Request {
    Request { set: SetId(set), ..request(name) }
}

#[test]
fn ids_are_used_again_first_in_first_out_and_areas_never() {
    let mut world = World::new(3);
    assert_eq!(add(&mut world, &[2, 0]), added(1, 1, &[0, 2]));
    assert_eq!(add(&mut world, &[1]), added(2, 2, &[1]));
    assert_eq!(add(&mut world, &[1, 2]), added(3, 3, &[1, 2]));
    remove(&mut world, 2);
    remove(&mut world, 1);
    assert_eq!(add(&mut world, &[0]), added(2, 4, &[0]));
    assert_eq!(add(&mut world, &[2]), added(1, 5, &[2]));
    assert_eq!(add(&mut world, &[0, 1]), added(4, 6, &[0, 1]));
    assert_eq!(world.members[0].ranks_of(SetId(4)).map(|ranks| ranks.to_vec()), Some(vec![0, 1]));
}

#[test]
fn refusals_have_their_texts() {
    let mut world = World::new(3);
    add(&mut world, &[0, 1]);
    for (ranks, text) in [
        (&[1, 0][..], "Attempted to add a duplicate process set: [0, 1]"),
        (&[0, 1, 2], "Attempted to add a duplicate process set: [0, 1, 2]"),
        (&[0, 2, 2], "Tried to register process set with duplicate rank: 2"),
        (&[0, 3], "Tried to register process set with invalid rank: 3"),
        (&[], "Tried to register process set without ranks"),
    ] {
        assert_eq!(add(&mut world, ranks), End::SetRefused(text.into()));
    }
    let mut differ = |wishes: [&[u32]; 3], text: &str| {
        let tokens =
            [0, 1, 2].map(|rank| world.members[rank].add_set(wishes[rank].to_vec(), world.now).expect("allowed"));
        world.run();
        assert_eq!(world.end(2, tokens[2]), Some(&End::SetRefused(text.into())));
    };
    differ([&[0], &[0], &[0, 2]], "Attempted to register process set with mismatching size on different ranks");
    differ([&[0], &[1], &[0]], "Attempted to register process set with mismatching values on different ranks");
    assert_eq!(world.members[0].remove_set(SetId::GLOBAL, world.now), Err(SubmitError::NotRemovable { set: SetId(0) }));
    assert_eq!(world.members[0].remove_set(SetId(9), world.now), Err(SubmitError::NotRemovable { set: SetId(9) }));
    let mut member = Member::new(MemberConfig { rank: 0, size: 1, dynamic_sets: false });
    let off = "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding/removing process sets after Horovod initialization.";
    assert_eq!(member.add_set(vec![0], world.now).unwrap_err().to_string(), off);
    assert_eq!(member.remove_set(SetId(1), world.now).unwrap_err().to_string(), off);
}

#[test]
fn sets_of_init_are_made_together_or_not_at_all() {
    let check = |wishes: [&[&[u32]]; 2], expected: Result<usize, &str>| {
        let mut world = World::new(2);
        let tokens = [0, 1].map(|rank| {
            let sets = wishes[rank].iter().map(|ranks| ranks.to_vec()).collect();
            world.members[rank].register_sets(sets, world.now).expect("the first thing")
        });
        world.run();
        let end = world.end(1, tokens[1]).expect("all have asked");
        match expected {
            Ok(n) => assert!(matches!(end, End::SetsAdded(sets) if sets.len() == n), "{end:?}"),
            Err(text) => {
                assert_eq!(*end, End::SetRefused(text.into()));
                assert_eq!(add(&mut world, &[0]), added(1, 1, &[0]));
            }
        }
    };
    check([&[&[0], &[1]], &[&[0], &[1]]], Ok(2));
    check([&[], &[]], Ok(0));
    check([&[&[0], &[1]], &[&[0]]], Err("Different ranks tried to set up mismatching numbers of process sets"));
    check([&[&[1]], &[&[0]]], Err("Attempted to register process set with mismatching values on different ranks"));
    check(
        [&[&[1], &[0]], &[&[1], &[0, 1]]],
        Err("Attempted to register process set with mismatching size on different ranks"),
    );
    check([&[&[1], &[1]], &[&[1], &[1]]], Err("Attempted to add a duplicate process set: [1]"));
}

#[test]
fn only_members_take_part_and_hear_of_it() {
    let mut world = World::new(3);
    add(&mut world, &[0, 2]);
    let refused = world.members[1].submit_one(in_set(1, "x"), world.now).unwrap_err();
    assert_eq!(refused.to_string(), "Allreduce: Rank 1 is not a member of the provided process set.");
    let refused = world.members[1].barrier(SetId(1), world.now).unwrap_err();
    assert_eq!(refused.to_string(), "Barrier: Rank 1 is not a member of the provided process set.");
    let root = Request { kind: Kind::Broadcast, root: 1, ..in_set(1, "x") };
    let refused = world.members[0].submit_one(root, world.now).unwrap_err();
    assert_eq!(refused.to_string(), "broadcast received invalid root rank 1 for provided process set");
    // The same name in two sets is two tensors.
    for rank in 0..3 {
        world.submit(rank, request("x"));
    }
    for _ in 0..2 {
        world.submit_on([0, 2], in_set(1, "x"));
        world.run();
    }
    assert_eq!(world.take_performed(0).len(), 3);
    assert_eq!(world.take_performed(1).len(), 1);
    // And a join in one is none in the other.
    world.members[0].join(SetId(1), world.now).expect("a member");
    world.submit(1, request("y"));
    world.submit(2, request("y"));
    world.run();
    assert_eq!(world.take_performed(1).len(), 0);
}

#[test]
fn what_waits_in_a_set_fails_when_it_is_removed() {
    let mut world = World::new(3);
    add(&mut world, &[0, 1]);
    let token = world.submit(0, in_set(1, "x"));
    let barrier = world.members[1].barrier(SetId(1), world.now).expect("a member");
    remove(&mut world, 1);
    let gone =
        |call: &str| End::Failed(format!("{call}: Process set provided does not exist, or has not been registered."));
    assert_eq!(world.end(0, token), Some(&gone("Allreduce")));
    assert_eq!(world.end(1, barrier), Some(&gone("Barrier")));
    let refused = world.members[0].submit_one(in_set(1, "x"), world.now).unwrap_err();
    assert_eq!(refused, SubmitError::UnknownSet { kind: Kind::Allreduce });
    assert_eq!(world.members[0].n_pending() + world.members[1].n_pending(), 0);
}

#[test]
fn a_request_under_way_to_a_removed_set_never_reaches_its_successor() {
    let mut world = World::new(3);
    add(&mut world, &[0, 1]);
    for rank in 0..3 {
        world.members[rank].remove_set(SetId(1), world.now).expect("registered");
        world.members[rank].add_set(vec![0, 1], world.now).expect("allowed");
    }
    // Sent after both wishes, but meant for the set that is about to go.
    let late = world.submit(0, in_set(1, "x"));
    world.run();
    let text = "Allreduce: Process set provided does not exist, or has not been registered.";
    assert_eq!(world.end(0, late), Some(&End::Failed(text.into())));
    let token = world.submit(1, in_set(1, "x"));
    world.run();
    assert_eq!(world.end(1, token), None);
    world.submit(0, in_set(1, "x"));
    world.run();
    assert_eq!(world.end(1, token), Some(&End::Performed));
}
