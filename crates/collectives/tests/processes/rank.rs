//! What a rank process does: connects through the door it is told, then obeys. Says every outcome on its standard output, after a mark,
//! because the test harness writes there too.

use std::error::Error;
use std::io::BufRead;

use corro_collectives::bootstrap::launch_env::Launch;
use corro_collectives::coordinator::SetId;
use corro_collectives::engine::ops::Reduce;
use corro_collectives::settings::Settings;
use corro_collectives::{Communicator, Engine, Options, ReduceOp, World};

pub const ARGUMENTS: [&str; 4] = ["--ignored", "--exact", "processes::rank::a_rank", "--nocapture"];
pub const MARK: &str = "@";
/// `direct` or `negotiated`.
pub const DOOR: &str = "RANK_DOOR";
/// In place of the standard input, which not every launcher hands on; separated by semicolons.
pub const ORDERS: &str = "RANK_ORDERS";

#[test]
#[ignore = "started by the other tests as a process"]
fn a_rank() {
    let mut door = match Door::open() {
        Ok(door) => door,
        Err(error) => return say(&format!("refused {}", chain(&*error))),
    };
    say("ready");
    let told: Box<dyn Iterator<Item = String>> = match std::env::var(ORDERS) {
        Ok(orders) => Box::new(orders.split(';').map(str::to_owned).collect::<Vec<_>>().into_iter()),
        Err(_) => Box::new(std::io::stdin().lock().lines().map_while(Result::ok)),
    };
    for line in told {
        let mut words = line.split_whitespace();
        let (order, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let n = words.next().and_then(|number| number.parse().ok()).unwrap_or(1);
        let outcome = match order {
            "reduce" => door.reduce(name, n),
            "again" => again(|| door.reduce(name, n)),
            "swarm" => again(|| door.swarm(name, n)),
            "all" => door.all(name),
            "fork" => {
                say(&format!("forked {}", fork(name)));
                continue;
            }
            "leave" => break,
            unknown => panic!("what is `{unknown}`?"),
        };
        match outcome {
            Ok(()) => say(&format!("done {name}")),
            Err(error) => say(&format!("failed {name} {}", chain(&*error))),
        }
    }
    drop(door);
    say("left");
}

/// Until it fails; says `busy` when it has begun.
fn again(mut work: impl FnMut() -> Outcome) -> Outcome {
    work()?;
    say("busy");
    loop {
        work()?;
    }
}

/// Makes a child that keeps everything it has and never ends: by `fork`, or by a system call that runs no handlers of the C library.
fn fork(how: &str) -> i32 {
    let no_fd: libc::c_long = 0;
    // SAFETY: the child calls nothing but `pause`, which is async-signal-safe.
    let child = unsafe {
        match how {
            "libc" => libc::fork(),
            "kernel" => {
                let flags = libc::c_long::from(libc::SIGCHLD);
                libc::syscall(libc::SYS_clone, flags, no_fd, no_fd, no_fd, no_fd) as i32
            }
            unknown => panic!("what is `{unknown}`?"),
        }
    };
    assert!(child >= 0, "no child: {}", std::io::Error::last_os_error());
    if child == 0 {
        loop {
            // SAFETY: as above.
            unsafe { libc::pause() };
        }
    }
    child
}

fn say(what: &str) {
    println!("{MARK}{what}");
}

type Outcome = Result<(), Box<dyn Error>>;

enum Door {
    /// The world lives as long as its communicator.
    Direct(Box<Communicator>, World),
    Negotiated(Engine),
}

impl Door {
    fn open() -> Result<Door, Box<dyn Error>> {
        if std::env::var(DOOR).as_deref() == Ok("negotiated") {
            return Ok(Door::Negotiated(Engine::start()?));
        }
        let settings = Settings::from_environment()?;
        let world = World::connect(&Launch::from_environment()?, &Options::from_settings(&settings)?)?;
        Ok(Door::Direct(Box::new(world.communicator()?), world))
    }

    fn rank_and_size(&self) -> (usize, usize) {
        let place = match self {
            Door::Direct(_, world) => world.rank_info(),
            Door::Negotiated(engine) => engine.rank_info(),
        };
        (place.rank, place.size)
    }

    /// A sum of `n` numbers, which is checked.
    fn reduce(&mut self, name: &str, n: usize) -> Outcome {
        let (rank, size) = self.rank_and_size();
        let mut data: Vec<f32> = (0..n).map(|index| (index % 1000 + rank) as f32).collect();
        match self {
            Door::Direct(communicator, _) => communicator.allreduce(&mut data, ReduceOp::Sum)?,
            Door::Negotiated(engine) => engine.allreduce(name, &mut data, Reduce::SUM)?,
        }
        let others: usize = (0..size).sum();
        let wrong = data.iter().enumerate().find(|(index, sum)| **sum != (index % 1000 * size + others) as f32);
        assert_eq!(wrong, None, "{name} on rank {rank}");
        Ok(())
    }

    /// Many sums at once, each of which comes to its end.
    fn swarm(&mut self, name: &str, n: usize) -> Outcome {
        let Door::Negotiated(engine) = self else { return Err("only the negotiated door has several at once".into()) };
        let submit = |index| engine.allreduce_async(&format!("{name} {index}"), vec![1.0f32; n], Reduce::SUM);
        let pending: Vec<_> = (0..50).map(submit).collect();
        let outcomes: Vec<_> = pending.into_iter().map(|pending| engine.finish(pending)).collect();
        outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(())
    }

    /// Every collective, on little and on much, checked.
    fn all(&mut self, name: &str) -> Outcome {
        let (rank, size) = self.rank_and_size();
        for n in [1, 1000, 400_000] {
            self.reduce(&format!("{name} sum {n}"), n)?;
            let mine = vec![rank as i32; n + rank];
            let everybody: Vec<i32> = (0..size).flat_map(|other| vec![other as i32; n + other]).collect();
            let mut word = vec![rank as i32; n];
            let parcels: Vec<i32> = (0..size).flat_map(|to| vec![(rank * 100 + to) as i32; n]).collect();
            let delivered: Vec<i32> = (0..size).flat_map(|from| vec![(from * 100 + rank) as i32; n]).collect();
            let rows = vec![1.0f32; n * size];
            let (gathered, got, share) = match self {
                Door::Direct(communicator, _) => {
                    communicator.barrier()?;
                    communicator.broadcast(&mut word, size - 1)?;
                    let gathered = communicator.allgather(&mine)?;
                    let (got, _) = communicator.alltoall(&parcels, &vec![n; size])?;
                    let share = communicator.reducescatter(&rows, n, ReduceOp::Sum)?;
                    (gathered, got, share)
                }
                Door::Negotiated(engine) => {
                    let all = SetId::GLOBAL;
                    engine.barrier(all)?;
                    engine.broadcast(&format!("{name} word {n}"), &mut word, size as u32 - 1, all)?;
                    let gathered = engine.allgather(&format!("{name} gather {n}"), &mine, all)?;
                    let splits = vec![n as u64; size];
                    let (got, _) = engine.alltoall(&format!("{name} parcels {n}"), &parcels, &splits, all)?;
                    let share = engine.reducescatter(&format!("{name} rows {n}"), &rows, n, Reduce::SUM)?;
                    (gathered, got, share)
                }
            };
            assert!(word.iter().all(|word| *word as usize == size - 1), "{name}: broadcast of {n}");
            assert!(gathered == everybody, "{name}: allgather of {n}");
            assert!(got == delivered, "{name}: alltoall of {n}");
            assert!(share == vec![size as f32; n], "{name}: reducescatter of {n}");
        }
        Ok(())
    }
}

fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")).replace('\n', " ")
}
