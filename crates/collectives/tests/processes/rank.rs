//! The rank process of tests: connects with one of the two APIs and executes commands. Prints every outcome on standard output after a mark,
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
/// The API to use: `ordered` or `named`.
pub const API_VARIABLE: &str = "RANK_API";
/// Commands, separated by semicolons, for launchers that do not forward standard input.
pub const COMMANDS: &str = "RANK_COMMANDS";

#[test]
#[ignore = "started by the other tests as a process"]
fn a_rank() {
    let mut api = match Api::open() {
        Ok(api) => api,
        Err(error) => return report(&format!("refused {}", chain(&*error))),
    };
    report("ready");
    let commands: Box<dyn Iterator<Item = String>> = match std::env::var(COMMANDS) {
        Ok(text) => Box::new(text.split(';').map(str::to_owned).collect::<Vec<_>>().into_iter()),
        Err(_) => Box::new(std::io::stdin().lock().lines().map_while(Result::ok)),
    };
    for line in commands {
        let mut words = line.split_whitespace();
        let (command, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let n = words.next().and_then(|number| number.parse().ok()).unwrap_or(1);
        let outcome = match command {
            "reduce" => api.reduce(name, n),
            "again" => repeat(|| api.reduce(name, n)),
            "swarm" => repeat(|| api.swarm(name, n)),
            "all" => api.all(name),
            "fork" => {
                report(&format!("forked {}", fork(name)));
                continue;
            }
            "leave" => break,
            unknown => panic!("unknown command `{unknown}`"),
        };
        match outcome {
            Ok(()) => report(&format!("done {name}")),
            Err(error) => report(&format!("failed {name} {}", chain(&*error))),
        }
    }
    drop(api);
    report("left");
}

/// Repeats an operation until it fails; prints `busy` after the first time.
fn repeat(mut work: impl FnMut() -> Outcome) -> Outcome {
    work()?;
    report("busy");
    loop {
        work()?;
    }
}

/// Creates a child that inherits all descriptors and never ends: by `fork`, or by `clone`, which runs no `pthread_atfork` handlers.
fn fork(how: &str) -> i32 {
    let no_fd: libc::c_long = 0;
    // SAFETY: the child calls only `pause`, which is async-signal-safe.
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
            // SAFETY: `pause` takes no arguments.
            unsafe { libc::pause() };
        }
    }
    child
}

fn report(what: &str) {
    println!("{MARK}{what}");
}

type Outcome = Result<(), Box<dyn Error>>;

enum Api {
    /// The world lives as long as its communicator.
    Ordered(Box<Communicator>, World),
    Named(Engine),
}

impl Api {
    fn open() -> Result<Api, Box<dyn Error>> {
        if std::env::var(API_VARIABLE).as_deref() == Ok("named") {
            return Ok(Api::Named(Engine::start()?));
        }
        let settings = Settings::from_environment()?;
        let world = World::connect(&Launch::from_environment()?, &Options::from_settings(&settings)?)?;
        Ok(Api::Ordered(Box::new(world.communicator()?), world))
    }

    fn rank_and_size(&self) -> (usize, usize) {
        let rank_info = match self {
            Api::Ordered(_, world) => world.rank_info(),
            Api::Named(engine) => engine.rank_info(),
        };
        (rank_info.rank, rank_info.size)
    }

    /// Allreduces `n` numbers and checks the sums.
    fn reduce(&mut self, name: &str, n: usize) -> Outcome {
        let (rank, size) = self.rank_and_size();
        let mut data: Vec<f32> = (0..n).map(|index| (index % 1000 + rank) as f32).collect();
        match self {
            Api::Ordered(communicator, _) => communicator.allreduce(&mut data, ReduceOp::Sum)?,
            Api::Named(engine) => engine.allreduce(name, &mut data, Reduce::SUM)?,
        }
        let others: usize = (0..size).sum();
        let wrong = data.iter().enumerate().find(|(index, sum)| **sum != (index % 1000 * size + others) as f32);
        assert_eq!(wrong, None, "{name} on rank {rank}");
        Ok(())
    }

    /// Runs many allreduces at the same time.
    fn swarm(&mut self, name: &str, n: usize) -> Outcome {
        let Api::Named(engine) = self else { return Err("only the named API has concurrent operations".into()) };
        let submit = |index| engine.allreduce_async(&format!("{name} {index}"), vec![1.0f32; n], Reduce::SUM);
        let pending: Vec<_> = (0..50).map(submit).collect();
        let outcomes: Vec<_> = pending.into_iter().map(|pending| engine.finish(pending)).collect();
        outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(())
    }

    /// Runs every collective on small and large inputs, and checks the results.
    fn all(&mut self, name: &str) -> Outcome {
        let (rank, size) = self.rank_and_size();
        for n in [1, 1000, 400_000] {
            self.reduce(&format!("{name} sum {n}"), n)?;
            let mine = vec![rank as i32; n + rank];
            let expected_gather: Vec<i32> = (0..size).flat_map(|other| vec![other as i32; n + other]).collect();
            let mut word = vec![rank as i32; n];
            let sent: Vec<i32> = (0..size).flat_map(|to| vec![(rank * 100 + to) as i32; n]).collect();
            let expected_alltoall: Vec<i32> = (0..size).flat_map(|from| vec![(from * 100 + rank) as i32; n]).collect();
            let rows = vec![1.0f32; n * size];
            let (gathered, got, share) = match self {
                Api::Ordered(communicator, _) => {
                    communicator.barrier()?;
                    communicator.broadcast(&mut word, size - 1)?;
                    let gathered = communicator.allgather(&mine)?;
                    let (got, _) = communicator.alltoall(&sent, &vec![n; size])?;
                    let share = communicator.reducescatter(&rows, n, ReduceOp::Sum)?;
                    (gathered, got, share)
                }
                Api::Named(engine) => {
                    let all = SetId::GLOBAL;
                    engine.barrier(all)?;
                    engine.broadcast(&format!("{name} word {n}"), &mut word, size as u32 - 1, all)?;
                    let gathered = engine.allgather(&format!("{name} gather {n}"), &mine, all)?;
                    let splits = vec![n as u64; size];
                    let (got, _) = engine.alltoall(&format!("{name} parcels {n}"), &sent, &splits, all)?;
                    let share = engine.reducescatter(&format!("{name} rows {n}"), &rows, n, Reduce::SUM)?;
                    (gathered, got, share)
                }
            };
            assert!(word.iter().all(|word| *word as usize == size - 1), "{name}: broadcast of {n}");
            assert!(gathered == expected_gather, "{name}: allgather of {n}");
            assert!(got == expected_alltoall, "{name}: alltoall of {n}");
            assert!(share == vec![size as f32; n], "{name}: reducescatter of {n}");
        }
        Ok(())
    }
}

fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")).replace('\n', " ")
}
