//! Tests of the named API (`Engine`) with ranks as threads: operations match by name in any order, with Horovod's semantics.

mod ranks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use corro_collectives::coordinator::SetId;
use corro_collectives::engine::handle::CompletionEvent;
use corro_collectives::engine::ops::Reduce;
use corro_collectives::settings::Settings;
use corro_collectives::{Compression, Element, Engine, Options, ReduceOp, Transport};
use half::{bf16, f16};
use ranks::on_ranks;

const ALL: SetId = SetId::GLOBAL;

fn settings(variables: &[(&str, &str)]) -> Settings {
    let read = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Settings::from_variables(read).expect("good settings")
}

/// Runs `body` on `n` ranks over shared memory and over TCP.
fn each(n: usize, variables: &[(&str, &str)], body: impl Fn(&Engine) + Sync) {
    for transport in [Transport::Auto, Transport::Tcp] {
        println!("{transport:?}, {n} ranks");
        let options = Options { transport, ..Options::DEFAULT };
        on_ranks(n, &options, |world| {
            let engine = Engine::in_world(world, &settings(variables)).expect("an engine");
            body(&engine);
            // A rank that leaves early would fail the others' operations.
            engine.barrier(ALL).expect("all ranks finish");
        });
    }
}

fn rank(engine: &Engine) -> usize {
    engine.rank_info().rank
}

#[test]
fn an_event_counts_completed_calls() {
    each(2, &[], |engine| {
        let event = Arc::new(CompletionEvent::default());
        let seen = event.count();
        if rank(engine) == 0 {
            // No call has completed: the wait ends at its time limit.
            assert!(engine.wait_event(&event, seen, Duration::from_millis(1)));
            event.notify();
            assert_ne!(event.count(), seen);
        }
        let seen = event.count();
        let joined = engine.begin_join_with_event(event.clone());
        let deadline = Instant::now() + Duration::from_secs(20);
        while event.count() == seen {
            assert!(engine.wait_event(&event, seen, Duration::from_millis(100)));
            assert!(Instant::now() < deadline, "the join has not ended");
        }
        assert!(joined.is_done() && joined.outcome().expect("all joined").last_joined.is_some());
    });
}

#[test]
fn tensors_match_by_name_in_any_order() {
    each(3, &[], |engine| {
        let n_tensors = 40;
        for step in 0..5 {
            let order = |index: usize| (index * [1, 3, 7][rank(engine)] + step) % n_tensors;
            let mut pending: Vec<_> = (0..n_tensors)
                .map(|index| {
                    let tensor = order(index);
                    let data = vec![(tensor + rank(engine)) as f32; 10 + tensor * 100];
                    (tensor, engine.allreduce_async(&format!("t{tensor}"), data, Reduce::SUM))
                })
                .collect();
            pending.reverse();
            for (tensor, reducing) in pending {
                let sums = engine.finish(reducing).expect("a sum");
                assert_eq!(sums.len(), 10 + tensor * 100);
                assert!(sums.iter().all(|sum| *sum == (3 * tensor + 3) as f32), "t{tensor}: {}", sums[0]);
            }
        }
    });
}

#[test]
fn every_kind_of_operation_works() {
    each(3, &[], |engine| {
        let me = rank(engine);
        for _ in 0..3 {
            let mut mean = vec![me as f64; 5];
            engine.allreduce("mean", &mut mean, Reduce::AVERAGE).expect("an average");
            assert_eq!(mean, [1.0; 5]);
            let scaled = Reduce { prescale: 0.5, postscale: 10.0, ..Reduce::SUM };
            let mut sum = vec![2.0f32; 3];
            engine.allreduce("scaled", &mut sum, scaled).expect("a sum");
            assert_eq!(sum, [30.0; 3]);
            let gathered = engine.allgather("gather", &vec![me as u8; me], ALL).expect("all");
            assert_eq!(gathered, [1, 2, 2]);
            let mut word = vec![me as i64; 4];
            engine.broadcast("word", &mut word, 2, ALL).expect("a broadcast");
            assert_eq!(word, [2; 4]);
            let (got, from) = engine.alltoall("swap", &[me as i32; 6], &[1, 2, 3], ALL).expect("an exchange");
            assert_eq!(from, [me as u64 + 1; 3]);
            let expected: Vec<i32> = (0..3).flat_map(|sender| vec![sender; me + 1]).collect();
            assert_eq!(got, expected);
            let rows = engine.reducescatter("rows", &[1.0f32; 8], 2, Reduce::SUM).expect("rows");
            assert_eq!(rows, vec![3.0; if me == 0 { 4 } else { 2 }]);
            let (input, mut output) = ([me as i16; 4], [0; 4]);
            engine.allreduce_into("apart", &input, &mut output, Reduce::SUM).expect("a sum");
            assert_eq!((input, output), ([me as i16; 4], [3; 4]));
            let mut empty: [f32; 0] = [];
            engine.allreduce("empty", &mut empty, Reduce::AVERAGE).expect("nothing is fine");
            engine.barrier(ALL).expect("all ranks arrive");
        }
    });
}

/// Checks sum, minimum and maximum of one dtype: `values` of ranks 0 and 1, and the expected results.
fn check_dtype<T: Element + PartialEq + std::fmt::Debug>(engine: &Engine, values: [T; 2], expected: [T; 3]) {
    for (op, expected) in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max].into_iter().zip(expected) {
        let mut data = [values[rank(engine)]; 70];
        let name = format!("{op:?} of {}", T::DTYPE.name());
        engine.allreduce(&name, &mut data, Reduce { op, ..Reduce::SUM }).expect("a reduction");
        assert_eq!(data, [expected; 70], "{name}");
    }
}

#[test]
fn every_type_is_reduced() {
    each(2, &[], |engine| {
        check_dtype(engine, [1u8, 4], [5, 1, 4]);
        check_dtype(engine, [-1i8, 4], [3, -1, 4]);
        check_dtype(engine, [1u16, 400], [401, 1, 400]);
        check_dtype(engine, [-1i16, 400], [399, -1, 400]);
        check_dtype(engine, [-1i32, 70_000], [69_999, -1, 70_000]);
        check_dtype(engine, [-1i64, 1 << 40], [(1 << 40) - 1, -1, 1 << 40]);
        check_dtype(engine, [-1.5f32, 4.0], [2.5, -1.5, 4.0]);
        check_dtype(engine, [-1.5f64, 4.0], [2.5, -1.5, 4.0]);
        check_dtype(engine, [-1.5, 4.0].map(f16::from_f32), [2.5, -1.5, 4.0].map(f16::from_f32));
        check_dtype(engine, [-1.5, 4.0].map(bf16::from_f32), [2.5, -1.5, 4.0].map(bf16::from_f32));
        check_dtype(engine, [false, true], [true, false, true]);
    });
}

#[test]
fn groups_are_executed_as_a_whole() {
    each(3, &[], |engine| {
        let me = rank(engine);
        for _ in 0..3 {
            let mut tensors = [vec![me as f32; 5], vec![], vec![1.0; 300_000]];
            let mut slices: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
            engine.grouped_allreduce("reduced", &mut slices, Reduce::SUM).expect("sums");
            assert!(tensors == [vec![3.0; 5], vec![], vec![3.0; 300_000]]);
            let gathered = engine.grouped_allgather("gathered", &[&vec![me as u8; me], &[7]], ALL).expect("all");
            assert_eq!(gathered, [vec![1, 2, 2], vec![7; 3]]);
            let tensors: [(&[i32], usize); 3] = [(&[me as i32; 8], 2), (&[1; 3], 1), (&[], 4)];
            let shares = engine.grouped_reducescatter("scattered", &tensors, Reduce::SUM).expect("shares");
            assert_eq!(shares, [vec![3; if me == 0 { 4 } else { 2 }], vec![3], vec![]]);
            engine.grouped_allreduce::<f32>("none", &mut [], Reduce::SUM).expect("nothing is fine");
            assert!(engine.grouped_allgather::<u8>("none", &[], ALL).expect("nothing is fine").is_empty());
        }
        // A mismatched tensor fails its group on all ranks.
        let (mut good, mut bad) = (vec![1.0f32; 2], vec![1.0f32; 2 + me / 2]);
        let error = engine.grouped_allreduce("group", &mut [&mut good, &mut bad], Reduce::SUM).expect_err("lengths");
        assert!(error.to_string().starts_with("Mismatched ALLREDUCE tensor shapes"), "{error}");
        // Tensors of a group have Horovod's names, so their names are in flight too.
        if me == 0 {
            let pending = engine.grouped_allreduce_async("named", vec![vec![1u8], vec![2]], Reduce::SUM);
            let taken = engine.allreduce("named_2of2", &mut [1u8], Reduce::SUM).expect_err("in flight").to_string();
            assert!(taken.contains("currently being processed"), "{taken}");
            engine.barrier(ALL).expect("now the others begin");
            assert_eq!(engine.finish(pending).expect("sums"), [[3], [6]]);
        } else {
            engine.barrier(ALL).expect("the first is in flight");
            engine.grouped_allreduce("named", &mut [&mut [1u8], &mut [2]], Reduce::SUM).expect("sums");
        }
    });
}

#[test]
fn async_operations_return_their_results() {
    each(3, &[], |engine| {
        let me = rank(engine);
        for _ in 0..3 {
            let reduced = engine.allreduce_async("reduced", vec![me as f32; 3], Reduce::SUM);
            let received = engine.broadcast_async("broadcast", vec![me as i64; 4], 1, ALL);
            let gathered = engine.allgather_async("gathered", vec![me as u16; me], ALL);
            let swapped = engine.alltoall_async("swapped", vec![me as i32; 6], &[1, 2, 3], ALL);
            let shared = engine.reducescatter_async("shared", vec![1.0f64; 8], 2, Reduce::SUM);
            let group = engine.grouped_allreduce_async("g", vec![vec![me as i8; 2], vec![1]], Reduce::SUM);
            let lists = engine.grouped_allgather_async("l", vec![vec![me as u8; me], vec![9]], ALL);
            let rows = vec![(vec![1i32; 6], 2), (vec![2; 3], 1)];
            let shares = engine.grouped_reducescatter_async("s", rows, Reduce::SUM);
            let none = engine.grouped_allreduce_async::<u8>("none", Vec::new(), Reduce::SUM);
            // The result of this one is dropped.
            drop(engine.allreduce_async("forgotten", vec![1.0f32; 50_000], Reduce::SUM));
            assert!(none.poll() && engine.finish(none).expect("nothing").is_empty());
            assert_eq!(engine.finish(shares).expect("shares"), [vec![3; 2], vec![6]]);
            assert_eq!(engine.finish(lists).expect("lists"), [vec![1, 2, 2], vec![9; 3]]);
            assert_eq!(engine.finish(group).expect("sums"), [vec![3; 2], vec![3]]);
            assert_eq!(engine.finish(shared).expect("rows"), vec![3.0; if me == 0 { 4 } else { 2 }]);
            let senders: Vec<i32> = (0..3).flat_map(|sender| vec![sender; me + 1]).collect();
            assert_eq!(engine.finish(swapped).expect("an exchange"), (senders, vec![me as u64 + 1; 3]));
            assert_eq!(engine.finish(gathered).expect("all"), [1, 2, 2]);
            assert_eq!(engine.finish(received).expect("a broadcast"), [1; 4]);
            // The operation completes without a waiting thread.
            while !reduced.poll() {
                std::thread::yield_now();
            }
            assert_eq!(engine.finish(reduced).expect("a sum"), [3.0; 3]);
            engine.barrier(ALL).expect("the dropped operation is complete on all ranks");
        }
    });
}

#[test]
fn compressed_values_are_rounded_to_half_precision() {
    let fine = 1.0 + 1.0 / 4096.0;
    each(2, &[], |engine| {
        for (compression, expected) in
            [(Compression::None, 2.0 * fine), (Compression::Fp16, 2.0), (Compression::Bf16, 2.0)]
        {
            let mut data = [fine, 0.5];
            engine.allreduce_compressed("waits", &mut data, Reduce::SUM, compression).expect("a sum");
            assert_eq!(data, [expected, 1.0], "{compression:?}");
            let pending = engine.allreduce_compressed_async("later", vec![fine, 0.5], Reduce::SUM, compression);
            assert_eq!(engine.finish(pending).expect("a sum"), [expected, 1.0], "{compression:?}");
        }
    });
    each(1, &[], |engine| {
        let mut data = [fine];
        engine.allreduce_compressed("alone", &mut data, Reduce::AVERAGE, Compression::Bf16).expect("itself");
        assert_eq!(data, [fine]);
    });
}

#[test]
fn invalid_arguments_are_rejected_without_other_ranks() {
    each(2, &[], |engine| {
        // Only rank 0 calls: the errors must not involve the other rank.
        if rank(engine) == 0 {
            for row in [0, 2, 6] {
                let error = engine.reducescatter("rows", &[1.0f32; 5], row, Reduce::SUM).expect_err("torn");
                let text =
                    format!("reducescatter received 5 elements, which is not a multiple of the row length {row}");
                assert!(error.is_invalid_argument() && error.to_string() == text, "{error}");
                let pending = engine.reducescatter_async("rows", vec![1u8; 5], row, Reduce::SUM);
                assert!(pending.poll() && engine.finish(pending).is_err());
                let group: [(&[u8], usize); 2] = [(&[1; 4], 2), (&[1; 5], row)];
                assert!(engine.grouped_reducescatter("group", &group, Reduce::SUM).is_err());
                let group = vec![(vec![1u8; 4], 2), (vec![1; 5], row)];
                assert!(engine.finish(engine.grouped_reducescatter_async("group", group, Reduce::SUM)).is_err());
            }
            let error = engine.allreduce_into("apart", &[1u8; 3], &mut [0; 2], Reduce::SUM).expect_err("lengths");
            assert!(error.is_invalid_argument(), "{error}");
        }
        let rows = engine.reducescatter("rows", &[1.0f32; 4], 2, Reduce::SUM).expect("the name is free");
        assert_eq!(rows, [2.0; 2]);
    });
}

#[test]
fn sixty_four_ranks_are_one_engine() {
    on_ranks(64, &Options::DEFAULT, |world| {
        let engine = Engine::in_world(world, &settings(&[])).expect("an engine");
        let mut sum = [rank(&engine) as i32; 100];
        engine.allreduce("sum", &mut sum, Reduce::SUM).expect("a sum");
        assert_eq!(sum, [63 * 32; 100]);
        let mut word = [rank(&engine) as u8; 3];
        engine.broadcast("word", &mut word, 63, ALL).expect("a broadcast");
        assert_eq!(word, [63; 3]);
        let all = engine.allgather("all", &[rank(&engine) as u8], ALL).expect("all");
        assert_eq!(all, (0..64).collect::<Vec<u8>>());
        engine.barrier(ALL).expect("all ranks finish");
    });
}

#[test]
fn mismatches_fail_on_all_ranks_and_the_engine_stays_usable() {
    each(2, &[], |engine| {
        let me = rank(engine);
        for round in 0..3 {
            let failed = engine.allreduce("shape", &mut vec![1.0f32; 3 + me], Reduce::SUM).expect_err("lengths differ");
            assert!(failed.to_string().starts_with("Mismatched ALLREDUCE tensor shapes: One rank sent"), "{failed}");
            assert!(!failed.is_invalid_argument());
            let failed = match me {
                0 => engine.allreduce("dtype", &mut [1.0f32], Reduce::SUM),
                _ => engine.allreduce("dtype", &mut [1.0f64], Reduce::SUM),
            };
            let error = failed.expect_err("types differ").to_string();
            assert!(error.starts_with("Mismatched data types: One rank had type float"), "{error}");
            let refused = engine.broadcast("root", &mut [1u8], 9, ALL).expect_err("no such rank");
            assert_eq!(refused.to_string(), "broadcast received invalid root rank 9 for provided process set");
            assert!(refused.is_invalid_argument());
            let mut sum = [1i32];
            engine.allreduce(&format!("good{round}"), &mut sum, Reduce::SUM).expect("still works");
            assert_eq!(sum, [2]);
        }
    });
}

#[test]
fn a_name_in_flight_cannot_be_reused() {
    each(2, &[], |engine| {
        if rank(engine) == 0 {
            let first = engine.allreduce_async("once", vec![1.0f32], Reduce::SUM);
            let second = engine.allreduce_async("once", vec![1.0f32], Reduce::SUM);
            let error = engine.finish(second).expect_err("the name is taken").to_string();
            assert!(error.contains("currently being processed.  If you want"), "{error}");
            engine.barrier(ALL).expect("now the other begins");
            assert_eq!(engine.finish(first).expect("a sum"), [2.0]);
        } else {
            engine.barrier(ALL).expect("the first is in flight");
            engine.allreduce("once", &mut [1.0f32], Reduce::SUM).expect("a sum");
        }
    });
}

#[test]
fn joined_ranks_contribute_zeros() {
    each(3, &[], |engine| {
        for round in 0..3u32 {
            // Rank 2 has the most data, rank 0 the least.
            for step in 0..rank(engine) {
                let mut mean = vec![3.0f32; 1000];
                engine.allreduce(&format!("step{step}"), &mut mean, Reduce::AVERAGE).expect("an average");
                let expected = 3.0 * (3 - (step + 1)) as f32 / 3.0;
                assert!(
                    mean.iter().all(|value| (*value - expected).abs() < 1e-6),
                    "round {round}, step {step}: {}",
                    mean[0]
                );
            }
            assert_eq!(engine.join().expect("all join"), 2);
        }
    });
}

#[test]
fn process_sets_can_be_added_and_removed() {
    each(4, &[("HOROVOD_DYNAMIC_PROCESS_SETS", "1")], |engine| {
        let me = rank(engine) as u32;
        for _ in 0..3 {
            let even = engine.add_set(vec![0, 2]).expect("a set");
            let odd = engine.add_set(vec![1, 3]).expect("a set");
            let error = engine.add_set(vec![1, 3]).expect_err("it exists").to_string();
            assert!(error.starts_with("Attempted to add a duplicate process set"), "{error}");
            let own = if me.is_multiple_of(2) { &even } else { &odd };
            let other = if me.is_multiple_of(2) { &odd } else { &even };
            for _ in 0..10 {
                let mut sum = [i64::from(me); 2];
                engine.allreduce("in set", &mut sum, Reduce { set: own.id, ..Reduce::SUM }).expect("a sum");
                assert_eq!(sum, [i64::from(own.ranks[0] + own.ranks[1]); 2]);
            }
            let error = engine.barrier(other.id).expect_err("not ours").to_string();
            assert_eq!(error, format!("Barrier: Rank {me} is not a member of the provided process set."));
            engine.remove_set(even.id).expect("removed");
            engine.remove_set(odd.id).expect("removed");
            assert!(engine.remove_set(odd.id).is_err() && engine.remove_set(ALL).is_err());
        }
    });
}

#[test]
fn adasum_fails_on_all_ranks_unless_they_are_a_power_of_two() {
    each(2, &[], |engine| {
        let adasum = Reduce { op: ReduceOp::Adasum, ..Reduce::SUM };
        let mut data = vec![2.0f32; 4];
        engine.allreduce("ada", &mut data, adasum).expect("an adaptive sum");
        assert!(data.iter().all(|value| (*value - 2.0).abs() < 1e-6));
    });
    each(3, &[], |engine| {
        let adasum = Reduce { op: ReduceOp::Adasum, ..Reduce::SUM };
        assert!(engine.allreduce("ada", &mut [2.0f32], adasum).is_err());
    });
}

#[test]
fn a_shutdown_of_one_rank_shuts_all_ranks_down() {
    let ends = on_ranks(3, &Options::DEFAULT, |world| {
        let engine = Engine::in_world(world, &settings(&[])).expect("an engine");
        engine.barrier(ALL).expect("all are there");
        if rank(&engine) == 1 {
            engine.shut_down();
            return engine.allreduce("late", &mut [1u8], Reduce::SUM).expect_err("it has ended").to_string();
        }
        engine.allreduce("lonely", &mut [1u8], Reduce::SUM).expect_err("one has left").to_string()
    });
    assert!(ends.iter().all(|text| text.starts_with("Horovod has been shut down.")), "{ends:?}");
}

#[test]
fn a_wait_can_time_out_and_be_resumed() {
    each(2, &[], |engine| {
        if rank(engine) == 0 {
            let barrier = engine.begin_barrier(ALL);
            assert!(!engine.wait_for(&barrier, Duration::from_millis(20)), "the other comes after the sum only");
            engine.allreduce("here", &mut [1u8], Reduce::SUM).expect("a sum");
            while !engine.wait_for(&barrier, Duration::from_millis(20)) {}
            barrier.outcome().expect("both were there");
        } else {
            engine.allreduce("here", &mut [1u8], Reduce::SUM).expect("a sum");
            engine.barrier(ALL).expect("both were there");
        }
    });
}

#[test]
fn a_name_in_flight_is_rejected_at_submission() {
    each(2, &[], |engine| {
        if rank(engine) == 0 {
            let first = engine.allreduce_async("x", vec![1u8], Reduce::SUM);
            let second = engine.allreduce_async("x", vec![1u8], Reduce::SUM);
            assert!(second.poll() && !first.poll(), "the other rank has asked for nothing yet");
            assert!(engine.finish(second).is_err_and(|error| error.is_invalid_argument()));
            engine.barrier(ALL).expect("both come");
            assert_eq!(engine.finish(first).expect("a sum"), [2]);
        } else {
            engine.barrier(ALL).expect("both come");
            engine.allreduce("x", &mut [1u8], Reduce::SUM).expect("a sum");
        }
    });
}

#[test]
fn shutdown_wakes_a_waiting_thread() {
    on_ranks(2, &Options::DEFAULT, |world| {
        let engine = Engine::in_world(world, &settings(&[])).expect("an engine");
        let lonely = engine.allreduce_async(&format!("of {}", rank(&engine)), vec![1u8], Reduce::SUM);
        engine.barrier(ALL).expect("all are there");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| engine.finish(lonely));
            engine.shut_down();
            engine.shut_down();
            let error = waiting.join().expect("no panic").expect_err("it has ended").to_string();
            assert!(error.starts_with("Horovod has been shut down."), "{error}");
        });
    });
}

#[test]
fn many_threads_share_an_engine() {
    each(2, &[], |engine| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for step in 0..50 {
                        let mut sum = [step + thread; 7];
                        engine.allreduce(&format!("of {thread}"), &mut sum, Reduce::SUM).expect("a sum");
                        assert_eq!(sum, [2 * (step + thread); 7]);
                    }
                });
            }
        });
    });
}

#[test]
fn a_single_rank_needs_no_peers() {
    each(1, &[], |engine| {
        let mut sum = [5.0f32];
        engine.allreduce("a", &mut sum, Reduce::AVERAGE).expect("itself");
        assert_eq!(sum, [5.0]);
        assert_eq!(engine.join().expect("alone"), 0);
        assert_eq!(engine.allgather("g", &[1u8, 2], ALL).expect("itself"), [1, 2]);
    });
}

#[test]
fn a_timeline_shows_negotiation_and_execution() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("timeline.json");
    let variables = [("HOROVOD_TIMELINE", path.to_str().expect("text")), ("HOROVOD_TIMELINE_MARK_CYCLES", "1")];
    on_ranks(2, &Options::DEFAULT, |world| {
        let engine = Engine::in_world(world, &settings(&variables)).expect("an engine");
        for _ in 0..3 {
            engine.allreduce("allreduce.test_allreduce", &mut [1.0f32; 3], Reduce::SUM).expect("a sum");
        }
        engine.allgather("allgather.rows", &[1u8], ALL).expect("all");
        engine.barrier(ALL).expect("all ranks arrive");
        engine.shut_down();
    });
    let text = std::fs::read_to_string(&path).expect("it was written");
    let events: serde_json::Value = serde_json::from_str(&text).expect("it is whole");
    let events = events.as_array().expect("a list");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!((named("NEGOTIATE_ALLREDUCE"), named("ALLREDUCE"), named("ALLGATHER")), (3, 3, 1), "{text}");
    // Both ranks were ready for each of the four operations.
    assert!(named("0") >= 4 && named("1") >= 4 && named("CYCLE_START") > 0, "{text}");
    assert!(text.contains("allreduce.test_allreduce") && text.contains("start_time_since_epoch_in_micros"));
}

#[test]
fn a_timeline_started_later_shows_the_first_negotiation_while_it_waits() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |round: usize| directory.path().join(format!("timeline{round}.json"));
    let text = |round: usize| std::fs::read_to_string(path(round)).unwrap_or_default();
    on_ranks(2, &Options::DEFAULT, |world| {
        let rank = world.rank();
        let engine = Engine::in_world(world, &settings(&[("HOROVOD_TIMELINE", "DYNAMIC")])).expect("an engine");
        for round in 0..2 {
            engine.barrier(ALL).expect("all ranks arrive");
            if rank == 0 {
                engine.timeline().start(&path(round), true, 0).expect("a file");
            }
            // Rank 1 submits once the timeline shows the negotiation.
            let deadline = Instant::now() + Duration::from_secs(10);
            while rank == 1 && !text(round).contains("NEGOTIATE_ALLREDUCE") && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            let is_shown = rank == 0 || Instant::now() < deadline;
            engine.allreduce("allreduce.first", &mut [1.0f32; 3], Reduce::SUM).expect("a sum");
            if rank == 0 {
                engine.timeline().stop().expect("it was written");
            }
            engine.barrier(ALL).expect("all ranks arrive");
            assert!(is_shown, "{}", text(round));
        }
        engine.barrier(ALL).expect("all ranks arrive");
        engine.shut_down();
    });
    for round in 0..2 {
        let text = text(round);
        let events: serde_json::Value = serde_json::from_str(&text).expect("it is whole");
        let events = events.as_array().expect("a list");
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!((named("NEGOTIATE_ALLREDUCE"), named("ALLREDUCE"), named("0"), named("1")), (1, 1, 1, 1), "{text}");
    }
}

#[test]
fn autotuning_runs_and_writes_its_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tuned.csv");
    let variables = [
        ("HOROVOD_AUTOTUNE", "1"),
        ("HOROVOD_AUTOTUNE_LOG", path.to_str().expect("text")),
        ("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"),
        ("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2"),
        ("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "3"),
    ];
    on_ranks(2, &Options::DEFAULT, |world| {
        let engine = Engine::in_world(world, &settings(&variables)).expect("an engine");
        for _ in 0..200 {
            for tensor in 0..4 {
                let mut data = vec![1.0f32; 500];
                engine.allreduce(&format!("t{tensor}"), &mut data, Reduce::SUM).expect("a sum");
                assert!(data.iter().all(|sum| *sum == 2.0));
            }
        }
        engine.barrier(ALL).expect("all ranks arrive");
        engine.shut_down();
    });
    let text = std::fs::read_to_string(&path).expect("it was written");
    let mut lines = text.lines();
    assert!(
        lines.next().is_some_and(|header| header.starts_with("hierarchical_allreduce,") && header.ends_with("score"))
    );
    assert!(lines.count() >= 3, "{text}");
}

#[test]
fn shards_are_gathered_in_place_and_a_wrong_size_fails() {
    each(3, &[], |engine| {
        let (me, share) = (rank(engine), engine.shard(10));
        assert_eq!(share, [0..4, 4..7, 7..10][me].clone());
        let mut data = [0u16; 10];
        data[share].fill(me as u16 + 1);
        engine.allgather_shards("shares", &mut data).expect("gathered");
        assert_eq!(data, [1, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
        // Rank 1 passes a different size, so no rank's buffer has the total size.
        let mut data = vec![me as u16; if me == 1 { 7 } else { 10 }];
        let gathered = engine.allgather_shards("more", &mut data);
        assert!(gathered.is_err(), "{me}");
        engine.allgather_shards("again", &mut [0u16; 10]).expect("the engine goes on");
    });
}
