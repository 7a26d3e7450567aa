//! The ordered API over every transport and algorithm, against scalar loops.

mod ranks;

use corro_collectives::algorithm_override::AlgorithmOverride;
use corro_collectives::bootstrap::rank_info::RankInfo;
use corro_collectives::communicator::typed::Scale;
use corro_collectives::{
    Communicator, Compression, DirectRead, Element, Options, ReduceOp, Transport, World, affinity,
};
use half::{bf16, f16};
use ranks::{launch, on_ranks};

/// Shared memory with and without CMA, and TCP with one and with several streams.
fn every_transport() -> Vec<(&'static str, Options)> {
    let plain = Options::DEFAULT;
    vec![
        ("staged", Options { direct_read: DirectRead::Never, ..plain.clone() }),
        ("direct", plain.clone()),
        ("tcp", Options { transport: Transport::Tcp, n_streams: 1, ..plain.clone() }),
        ("tcp, 3 streams", Options { transport: Transport::Tcp, n_streams: 3, ..plain }),
    ]
}

fn each(sizes: &[usize], body: impl Fn(&mut Communicator) + Sync) {
    for (name, options) in every_transport() {
        for &n in sizes {
            println!("{name}, {n} ranks");
            on_ranks(n, &options, |world| body(&mut world.communicator().expect("a communicator")));
        }
    }
}

fn value(rank: usize, index: usize) -> i64 {
    ((rank * 7919 + index * 31) % 1009) as i64 - 500
}

const LENGTHS: [usize; 9] = [0, 1, 3, 16, 1000, 4096, 33_000, 300_001, 2_000_003];

#[test]
fn allreduce_sums_the_inputs_of_all_ranks() {
    each(&[1, 2, 3, 4, 7], |comm| {
        for length in LENGTHS {
            let input: Vec<i64> = (0..length).map(|index| value(comm.rank(), index)).collect();
            let n = comm.size();
            let expected = |index: usize| (0..n).map(|rank| value(rank, index)).sum::<i64>();
            let mut data = input.clone();
            comm.allreduce(&mut data, ReduceOp::Sum).expect("a sum");
            assert!(data.iter().enumerate().all(|(index, sum)| *sum == expected(index)), "{length} in place");
            let mut output = vec![0; length];
            comm.allreduce_into(&input, &mut output, ReduceOp::Sum).expect("a sum");
            assert!(output == data && (0..length).all(|index| input[index] == value(comm.rank(), index)));
        }
    });
}

#[test]
fn averages_and_scale_factors_apply_to_the_sum() {
    each(&[1, 2, 4], |comm| {
        for length in [1usize, 5, 40_000, 700_000] {
            let n = comm.size() as f32;
            let rank = comm.rank() as f32;
            let mut data = vec![rank; length];
            comm.allreduce(&mut data, ReduceOp::Average).expect("an average");
            assert!(data.iter().all(|mean| *mean == (n - 1.0) / 2.0), "{length}: {:?}", data.first());
            let mut data = vec![rank; length];
            let scale = Scale { prescale: 0.5, postscale: 4.0 };
            comm.allreduce_scaled(&mut data, ReduceOp::Sum, scale).expect("a sum");
            assert!(data.iter().all(|sum| *sum == (n - 1.0) * n), "{length}");
        }
    });
}

#[test]
fn min_max_and_product() {
    each(&[2, 3], |comm| {
        let n = comm.size() as i32;
        for length in [1usize, 50_000] {
            for (op, expected) in [(ReduceOp::Min, 1), (ReduceOp::Max, n), (ReduceOp::Product, (1..=n).product())] {
                let mut data = vec![comm.rank() as i32 + 1; length];
                comm.allreduce(&mut data, op).expect("a reduction");
                assert!(data.iter().all(|value| *value == expected), "{op:?} of {length}");
            }
        }
    });
}

#[test]
fn all_ranks_get_the_same_bits() {
    for (name, options) in every_transport() {
        let results = on_ranks(5, &options, |world| {
            let mut comm = world.communicator().expect("a communicator");
            let mut state = comm.rank() as u32 + 1;
            let mut results = Vec::new();
            for length in [3usize, 2_000, 100_000, 1_000_000] {
                let next = |state: &mut u32| {
                    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *state as f32 / 1e9 - 2.0
                };
                let mut data: Vec<f32> = (0..length).map(|_| next(&mut state)).collect();
                comm.allreduce(&mut data, ReduceOp::Average).expect("an average");
                results.push(data);
            }
            results
        });
        assert!(results.iter().all(|result| *result == results[0]), "{name}");
    }
}

#[test]
fn allgather_accepts_different_lengths() {
    each(&[1, 2, 3, 5], |comm| {
        for length in [0usize, 1, 10, 100_000] {
            let mine: Vec<u16> = vec![comm.rank() as u16; length * comm.rank() + usize::from(comm.rank() == 1)];
            let expected: Vec<u16> =
                (0..comm.size()).flat_map(|rank| vec![rank as u16; length * rank + usize::from(rank == 1)]).collect();
            assert!(comm.allgather(&mine).expect("all") == expected, "{length}");
        }
    });
}

#[test]
fn broadcast_from_any_root() {
    each(&[1, 2, 3, 5], |comm| {
        for length in [1usize, 9, 70_000, 1_500_000] {
            for root in 0..comm.size() {
                let mut data = vec![comm.rank() as f64; length];
                comm.broadcast(&mut data, root).expect("a broadcast");
                assert!(data.iter().all(|value| *value == root as f64), "{length} from {root}");
            }
        }
    });
}

#[test]
fn alltoall_sends_a_part_to_each_rank() {
    each(&[1, 2, 3, 4], |comm| {
        for unit in [0usize, 1, 50_000] {
            let (n, me) = (comm.size(), comm.rank());
            let counts: Vec<usize> = (0..n).map(|to| unit * (to + 1) + me).collect();
            let mut data: Vec<i32> = (0..n).flat_map(|to| vec![(me * 100 + to) as i32; counts[to]]).collect();
            data.extend([-1; 7]);
            let (got, from) = comm.alltoall(&data, &counts).expect("an exchange");
            let expected: Vec<usize> = (0..n).map(|sender| unit * (me + 1) + sender).collect();
            assert_eq!(from, expected);
            let values = (0..n).flat_map(|sender| vec![(sender * 100 + me) as i32; expected[sender]]);
            assert!(got == values.collect::<Vec<_>>(), "{unit}");
        }
    });
}

#[test]
fn reducescatter_gives_the_first_ranks_one_row_more() {
    each(&[1, 2, 3, 4], |comm| {
        for (n_rows, row) in [(0usize, 2usize), (1, 3), (7, 2), (10, 30_001)] {
            let (n, me) = (comm.size(), comm.rank());
            let data: Vec<f32> = (0..n_rows * row).map(|index| (index % 100 + me) as f32).collect();
            let own = corro_collectives::algorithm::partition::split_rows(n_rows, n, me);
            let base = (n * (n - 1) / 2) as f32;
            let expected: Vec<f32> =
                (own.start * row..own.end * row).map(|index| (index % 100 * n) as f32 + base).collect();
            assert!(comm.reducescatter(&data, row, ReduceOp::Sum).expect("rows") == expected, "{n_rows} rows");
        }
    });
}

#[test]
fn grouped_allreduce_equals_separate_calls() {
    each(&[2, 3], |comm| {
        let lengths = [3usize, 0, 70_000, 1, 3_000_000, 12];
        let mut tensors: Vec<Vec<f32>> = lengths.iter().map(|length| vec![comm.rank() as f32; *length]).collect();
        let mut slices: Vec<&mut [f32]> = tensors.iter_mut().map(Vec::as_mut_slice).collect();
        comm.grouped_allreduce(&mut slices, ReduceOp::Sum).expect("sums");
        let expected = (comm.size() * (comm.size() - 1) / 2) as f32;
        assert!(tensors.iter().flatten().all(|sum| *sum == expected));
    });
}

#[test]
fn grouped_allgather_and_reducescatter_equal_separate_calls() {
    // Small tensors that are fused, large ones that are not, and more than one run.
    let lengths = [3usize, 0, 70_000, 1, 200_000, 12, 100_000, 100_000, 100_000, 100_000, 100_000, 5];
    each(&[1, 2, 3], |comm| {
        let me = comm.rank();
        let tensors: Vec<Vec<i32>> =
            lengths.iter().map(|n| (0..n + me).map(|index| value(me, index) as i32).collect()).collect();
        let slices: Vec<&[i32]> = tensors.iter().map(Vec::as_slice).collect();
        let one_by_one: Vec<_> = slices.iter().map(|tensor| comm.allgather(tensor).expect("all")).collect();
        assert!(comm.grouped_allgather(&slices).expect("all") == one_by_one);
        let n = comm.size();
        assert_eq!(one_by_one[0].len(), 3 * n + n * (n - 1) / 2);

        let tensors: Vec<Vec<i32>> =
            lengths.iter().map(|rows| (0..rows * 2).map(|index| value(me, index) as i32).collect()).collect();
        let with_rows: Vec<(&[i32], usize)> = tensors.iter().map(|tensor| (tensor.as_slice(), 2)).collect();
        let scatter = |(tensor, row): &(&[i32], usize)| comm.reducescatter(tensor, *row, ReduceOp::Sum).expect("rows");
        let one_by_one: Vec<_> = with_rows.iter().map(scatter).collect();
        assert!(comm.grouped_reducescatter(&with_rows, ReduceOp::Sum).expect("rows") == one_by_one);
        assert!(comm.grouped_allgather::<u8>(&[]).expect("nothing").is_empty());
        assert!(comm.grouped_reducescatter::<u8>(&[], ReduceOp::Sum).expect("nothing").is_empty());
    });
}

/// Sum, min and max of one type: `values` of ranks 0 and 1, and the expected results.
fn check_dtype<T: Element + PartialEq + std::fmt::Debug>(comm: &mut Communicator, values: [T; 2], expected: [T; 3]) {
    for (op, expected) in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max].into_iter().zip(expected) {
        for length in [1, 70, 40_000] {
            let mut data = vec![values[comm.rank()]; length];
            comm.allreduce(&mut data, op).expect("a reduction");
            assert!(data == vec![expected; length], "{op:?} of {length} {}: {:?}", T::DTYPE.name(), data[0]);
        }
    }
}

#[test]
fn every_type_is_reduced() {
    each(&[2], |comm| {
        check_dtype(comm, [1u8, 4], [5, 1, 4]);
        check_dtype(comm, [-1i8, 4], [3, -1, 4]);
        check_dtype(comm, [1u16, 400], [401, 1, 400]);
        check_dtype(comm, [-1i16, 400], [399, -1, 400]);
        check_dtype(comm, [-1i32, 70_000], [69_999, -1, 70_000]);
        check_dtype(comm, [-1i64, 1 << 40], [(1 << 40) - 1, -1, 1 << 40]);
        check_dtype(comm, [-1.5f32, 4.0], [2.5, -1.5, 4.0]);
        check_dtype(comm, [-1.5f64, 4.0], [2.5, -1.5, 4.0]);
        check_dtype(comm, [-1.5, 4.0].map(f16::from_f32), [2.5, -1.5, 4.0].map(f16::from_f32));
        check_dtype(comm, [-1.5, 4.0].map(bf16::from_f32), [2.5, -1.5, 4.0].map(bf16::from_f32));
        check_dtype(comm, [false, true], [true, false, true]);
    });
}

#[test]
fn compressed_values_are_rounded() {
    let fine = 1.0 + 1.0 / 4096.0;
    each(&[1, 2], |comm| {
        let n = comm.size() as f32;
        for (compression, rounded) in [(Compression::None, fine), (Compression::Fp16, 1.0), (Compression::Bf16, 1.0)] {
            // A single rank compresses nothing.
            let expected = if n == 1.0 { fine } else { rounded * n };
            for length in [0usize, 1, 50_000, 10] {
                let mut data = vec![fine; length];
                comm.allreduce_compressed(&mut data, ReduceOp::Sum, compression).expect("a sum");
                assert!(data.iter().all(|sum| *sum == expected), "{length}, {compression:?}");
            }
        }
    });
}

#[test]
fn sixty_four_ranks_of_one_machine_work_together() {
    on_ranks(64, &Options { transport: Transport::SharedMemory, ..Options::DEFAULT }, |world| {
        let mut comm = world.communicator().expect("a communicator");
        for length in [3usize, 10_000] {
            let mut sum = vec![comm.rank() as i32; length];
            comm.allreduce(&mut sum, ReduceOp::Sum).expect("a sum");
            assert!(sum.iter().all(|sum| *sum == 63 * 32), "{length}");
            let mut word = vec![comm.rank() as u8; length];
            comm.broadcast(&mut word, 63).expect("a broadcast");
            assert!(word.iter().all(|value| *value == 63), "{length}");
        }
        let all = comm.allgather(&[comm.rank() as u8]).expect("all");
        assert_eq!(all, (0..64).collect::<Vec<u8>>());
        comm.barrier().expect("all come");
    });
}

#[test]
fn adasum_averages_parallel_and_adds_orthogonal_vectors() {
    each(&[1, 2, 4], |comm| {
        let mut same = vec![2.0f32; 1000];
        comm.allreduce(&mut same, ReduceOp::Adasum).expect("an adaptive sum");
        assert!(same.iter().all(|value| (*value - 2.0).abs() < 1e-5));
        let mut apart = vec![0.0f64; 4];
        apart[comm.rank()] = 3.0;
        comm.allreduce(&mut apart, ReduceOp::Adasum).expect("an adaptive sum");
        let expected: Vec<f64> = (0..4).map(|index| if index < comm.size() { 3.0 } else { 0.0 }).collect();
        assert_eq!(apart, expected);
    });
}

#[test]
fn invalid_arguments_are_refused_and_break_nothing() {
    each(&[3], |comm| {
        let text = comm.allreduce(&mut [1.0f32], ReduceOp::Adasum).expect_err("three ranks").to_string();
        assert_eq!(text, "Adasum needs a power of two of ranks; there are 3");
        let text = comm.broadcast(&mut [1u8], 3).expect_err("no such root").to_string();
        assert_eq!(text, "root rank 3 is not one of the 3 ranks");
        assert!(comm.alltoall(&[1u8], &[1, 1]).is_err() && comm.alltoall(&[1u8], &[1, 1, 0]).is_err());
        assert!(comm.allreduce(&mut [true], ReduceOp::Average).is_err());
        assert!(comm.allreduce_into(&[1u8], &mut [], ReduceOp::Sum).is_err());
        assert!(comm.reducescatter(&[1u8; 5], 2, ReduceOp::Sum).is_err());
        assert!(comm.reducescatter(&[1u8; 5], 0, ReduceOp::Sum).is_err());
        assert!(comm.grouped_reducescatter(&[(&[1u8; 4], 2), (&[1; 5], 2)], ReduceOp::Sum).is_err());
        comm.barrier().expect("everything still works");
    });
}

#[test]
fn subsets_work_at_the_same_time() {
    for (name, options) in every_transport() {
        on_ranks(4, &options, |world| {
            let mut even = world.subset(&[0, 2]).expect("a subset");
            let mut odd = world.subset(&[1, 3]).expect("a subset");
            let mut last = world.subset(&[2, 3]).expect("a subset");
            for round in 0..50 {
                for (comm, members) in [(&mut even, [0, 2]), (&mut odd, [1, 3]), (&mut last, [2, 3])] {
                    if let Some(comm) = comm {
                        let mut sum = vec![world.rank() as i64 + round; 5_000];
                        comm.allreduce(&mut sum, ReduceOp::Sum).expect("a sum");
                        assert!(sum.iter().all(|value| *value == members[0] + members[1] + 2 * round), "{name}");
                    }
                }
            }
            assert!(world.subset(&[]).is_err() && world.subset(&[3, 2]).is_err() && world.subset(&[9]).is_err());
        });
    }
}

#[test]
fn ranks_with_different_affinity_select_the_same_algorithm() {
    on_ranks(2, &Options::DEFAULT, |world| {
        if world.rank() == 0 {
            // This thread now has fewer cores than that of the other rank, if there are two or more.
            affinity::pin(&RankInfo { local_size: 2, ..RankInfo::single() }).expect("a share");
        }
        let mut comm = world.communicator().expect("a communicator");
        let mut data = vec![comm.rank() as i32 + 1; 1_000_000];
        comm.allreduce(&mut data, ReduceOp::Sum).expect("a sum");
        assert!(data.iter().all(|sum| *sum == 3));
    });
}

#[test]
fn ranks_with_different_algorithms_do_not_connect() {
    let round = u64::MAX;
    let identity = format!("unlike {}", std::process::id());
    let connect = |rank: usize| {
        let forced = if rank == 1 { "allreduce=flat" } else { "" };
        let options = Options {
            algorithm_override: AlgorithmOverride::parse(forced).expect("a known algorithm"),
            ..Options::DEFAULT
        };
        World::connect_round(&launch(rank, 3, &identity), &options, round).map(drop)
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..3).map(|rank| scope.spawn(move || connect(rank))).collect();
        for rank in ranks {
            let text = rank.join().expect("no rank panics").expect_err("the algorithms differ").to_string();
            assert!(text.contains("rank 1 on host host1 has allreduce=flat, rank 0 has none"), "{text}");
        }
    });
}
