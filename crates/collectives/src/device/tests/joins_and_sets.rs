//! Ranks that have joined, and process sets.

use super::elements::{Reduction, Tensor, value, values};
use super::job::{Job, ONE_GPU, Rank, THROUGH_HOST, one_gpu, request};
use crate::coordinator::{Kind, Request, SetId};
use crate::{Dtype, ReduceOp};

/// Allreduce in place of all ranks in `members`.
fn reduce(rank: &Rank, name: &str, reduction: Reduction, set: SetId, n_elements: usize) -> Vec<f64> {
    let Reduction { dtype, op, prescale, postscale } = reduction;
    let tensor = Tensor::new(rank, dtype, &values(dtype, rank.rank(), n_elements));
    let request = request(name, Kind::Allreduce, dtype, &[n_elements as u64]);
    let request = Request { set, op, prescale, postscale, ..request };
    rank.finish(&rank.submit(vec![request], vec![tensor.in_place()]));
    tensor.elements()
}

/// What ranks get while `joined` takes part with zeros.
fn with_zeros(reduction: Reduction, joined: usize, n: usize, n_elements: usize) -> Vec<f64> {
    let present = (0..n).filter(move |rank| *rank != joined);
    let of_present = reduction.of_members(present, n as f64, n_elements);
    let with_zero = |element: f64| match reduction.op {
        ReduceOp::Min => element.min(0.0),
        ReduceOp::Max => element.max(0.0),
        ReduceOp::Product => 0.0,
        _ => element,
    };
    of_present.into_iter().map(with_zero).collect()
}

fn join_in_turn(rank: &Rank, dtype: Dtype) {
    let (me, n) = (rank.rank(), rank.size());
    for joined in 0..n {
        let name = |what: &str| format!("{what} {joined}");
        let sum = Reduction::new(dtype, ReduceOp::Sum);
        assert_eq!(reduce(rank, &name("before"), sum, SetId::GLOBAL, 5), sum.of(0..n, 5));
        if me != joined {
            for op in [ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product] {
                let reduction = Reduction { prescale: 2.0, ..Reduction::new(dtype, op) };
                let result = reduce(rank, &name(&format!("{op:?}")), reduction, SetId::GLOBAL, 20_001);
                assert!(result == with_zeros(reduction, joined, n, 20_001), "{op:?} while {joined} has joined");
            }
        }
        rank.engine.join().expect("all join");
    }
    let sum = Reduction::new(dtype, ReduceOp::Sum);
    assert_eq!(reduce(rank, "after", sum, SetId::GLOBAL, 5), sum.of(0..n, 5));
}

#[test]
fn a_rank_that_has_joined_contributes_zeros() {
    for job in [ONE_GPU[1], ONE_GPU[2], ONE_GPU[3], THROUGH_HOST[1], THROUGH_HOST[2]] {
        println!("{job:?}");
        job.run(|rank| join_in_turn(rank, Dtype::F32));
        job.run(|rank| join_in_turn(rank, Dtype::I16));
    }
}

#[test]
fn a_vector_of_zeros_changes_no_adaptive_sum() {
    for job in [ONE_GPU[1], THROUGH_HOST[1]] {
        job.run(|rank| {
            let sum = Reduction::new(Dtype::F64, ReduceOp::Sum);
            reduce(rank, "first", sum, SetId::GLOBAL, 3);
            for joined in 0..2 {
                if rank.rank() != joined {
                    let tensor = Tensor::new(rank, Dtype::F64, &values(Dtype::F64, rank.rank(), 50));
                    let request = request("adasum", Kind::Adasum, Dtype::F64, &[50]);
                    let request = Request { op: ReduceOp::Adasum, ..request };
                    rank.finish(&rank.submit(vec![request], vec![tensor.in_place()]));
                    assert_eq!(tensor.elements(), values(Dtype::F64, rank.rank(), 50));
                }
                rank.engine.join().expect("all join");
            }
        });
    }
}

#[test]
fn a_rank_may_join_before_its_first_tensor() {
    for job in [ONE_GPU[1], ONE_GPU[2], THROUGH_HOST[1]] {
        println!("{job:?}");
        let n = job.gpus.len();
        job.run(|rank| {
            let sum = Reduction::new(Dtype::F32, ReduceOp::Sum);
            if rank.rank() != 1 {
                assert_eq!(reduce(rank, "early", sum, SetId::GLOBAL, 9), with_zeros(sum, 1, n, 9));
            }
            rank.engine.join().expect("all join");
            assert_eq!(reduce(rank, "all", sum, SetId::GLOBAL, 9), sum.of(0..n, 9));
        });
    }
}

#[test]
fn process_sets_reduce_their_own_tensors() {
    let jobs = [one_gpu(&[1; 3]), Job { gpus: &[1, 1, 2], variables: &[] }, THROUGH_HOST[2]];
    for job in jobs {
        println!("{job:?}");
        let variables = [job.variables, &[("HOROVOD_DYNAMIC_PROCESS_SETS", "1")]].concat();
        Job { variables: &variables, ..job }.run(|rank| {
            let dtype = Dtype::F32;
            let members = [vec![0, 1], vec![1, 2], vec![0, 2], vec![2]];
            for step in 0..2 {
                let sets = members.clone().map(|ranks| rank.engine.add_set(ranks).expect("a set"));
                let mut pending = Vec::new();
                for set in sets.iter().filter(|set| set.ranks.contains(&(rank.rank() as u32))) {
                    let tensor = Tensor::new(rank, dtype, &values(dtype, rank.rank(), 300));
                    let request = request(&format!("sum {step}"), Kind::Allreduce, dtype, &[300]);
                    let request = Request { set: set.id, op: ReduceOp::Average, ..request };
                    let handle = rank.submit(vec![request], vec![tensor.in_place()]);
                    pending.push((set, tensor, handle));
                }
                for (set, tensor, handle) in pending {
                    rank.finish(&handle);
                    let ranks = set.ranks.iter().map(|rank| *rank as usize);
                    let expected = Reduction::new(dtype, ReduceOp::Average).of(ranks, 300);
                    assert_eq!(tensor.elements(), expected, "{:?}", set.ranks);
                }
                for set in sets {
                    rank.engine.remove_set(set.id).expect("it is removed");
                }
                assert_eq!(*rank.driver.imported.lock().expect("no panic"), [], "no set is left");
            }
        });
    }
}

#[test]
fn the_root_of_a_set_is_a_global_rank() {
    let variables = &[("HOROVOD_DYNAMIC_PROCESS_SETS", "1")];
    Job { gpus: &[1; 4], variables }.run(|rank| {
        let set = rank.engine.add_set(vec![1, 3]).expect("a set");
        if rank.rank() % 2 == 1 {
            let tensor = Tensor::new(rank, Dtype::I32, &values(Dtype::I32, rank.rank(), 6));
            let request = request("word", Kind::Broadcast, Dtype::I32, &[6]);
            rank.finish(&rank.submit(vec![Request { set: set.id, root: 3, ..request }], vec![tensor.in_place()]));
            let expected: Vec<f64> = (0..6).map(|index| value(Dtype::I32, 3, index)).collect();
            assert_eq!(tensor.elements(), expected);
        }
    });
}
