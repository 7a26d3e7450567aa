//! An elastic job: generation after generation has workers and a coordinator of its own, and a rank dies while operations are in flight.
//! Invariants: every request of a survivor has been executed or fails with the name of the dead rank, never both; nothing stays pending;
//! survivors have executed the same operations in the same order, up to how far each has come; the next generation knows nothing of the last one.

use super::random::Rng;
use super::simulated_job::{End, SimulatedJob, config, request};
use crate::coordinator::*;

const N_GENERATIONS: usize = 6;
const N_NAMES: usize = 10;

/// The names in a random order.
fn shuffled_names(rng: &mut Rng) -> Vec<String> {
    let mut names: Vec<String> = (0..N_NAMES).map(|name| format!("tensor.{name}")).collect();
    for at in (1..names.len()).rev() {
        names.swap(at, rng.below(at + 1));
    }
    names
}

/// Moves requests and messages in random order until the rank dies, or until all is submitted.
fn work(job: &mut SimulatedJob, rng: &mut Rng, n_moves: Option<usize>) -> Vec<Vec<RequestId>> {
    let size = job.size();
    let mut names: Vec<Vec<String>> = (0..size).map(|_| shuffled_names(rng)).collect();
    let mut submitted = vec![Vec::new(); size];
    for n_moved in 0.. {
        if Some(n_moved) == n_moves || (n_moves.is_none() && names.iter().all(Vec::is_empty)) {
            break;
        }
        let rank = rng.below(size);
        match rng.below(5) {
            0 => {
                if let Some(name) = names[rank].pop() {
                    submitted[rank].push(job.submit(rank, request(&name)));
                }
            }
            1 => job.flush(rank),
            2 => drop(job.deliver_up(rank)),
            3 => job.drain(),
            _ => drop(job.deliver_down(rank)),
        }
    }
    submitted
}

fn check_death(job: &mut SimulatedJob, submitted: &[Vec<RequestId>], victim: usize) {
    let text = format!("rank {victim} on host host-{victim} has died");
    let survivors: Vec<usize> = (0..job.size()).filter(|rank| *rank != victim).collect();
    for rank in &survivors {
        let mut failed = job.workers[*rank].abort(&text);
        let mut pending: Vec<RequestId> = submitted[*rank].clone();
        pending.retain(|request_id| job.end(*rank, *request_id).is_none());
        failed.sort_unstable();
        pending.sort_unstable();
        assert_eq!(failed, pending, "rank {rank}");
        assert_eq!(job.workers[*rank].n_pending(), 0, "rank {rank}");
        let refused = job.workers[*rank].submit_one(request("late"), job.now).expect_err("the engine has ended");
        assert_eq!(refused, SubmitError::Ended(text.as_str().into()), "rank {rank}");
    }
    let executed: Vec<Vec<Vec<String>>> = survivors.iter().map(|rank| job.take_executed(*rank)).collect();
    let furthest = executed.iter().max_by_key(|executed| executed.len()).expect("there are survivors");
    assert!(executed.iter().all(|executed| furthest.starts_with(executed)), "{executed:?}");
}

#[test]
fn survivors_agree_on_what_was_executed() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut rng = Rng((seed << 1) | 1);
        for generation in 1..=N_GENERATIONS {
            let size = 2 + rng.below(4);
            let cache_capacity = [0, 4, 1024][rng.below(3)];
            let mut job = SimulatedJob::with(Config { cache_capacity, ..config(size as u32) });
            let is_last = generation == N_GENERATIONS;
            let n_moves = (!is_last).then(|| rng.below(400));
            let submitted = work(&mut job, &mut rng, n_moves);
            if !is_last {
                let victim = rng.below(size);
                check_death(&mut job, &submitted, victim);
                continue;
            }
            job.run();
            for (rank, submitted) in submitted.iter().enumerate() {
                let is_executed = |request_id: &RequestId| job.end(rank, *request_id) == Some(&End::Executed);
                assert!(submitted.len() == N_NAMES && submitted.iter().all(is_executed), "rank {rank}");
            }
        }
    }
}
