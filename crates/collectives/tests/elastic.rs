//! Elastic jobs of real processes: members that are killed, survivors that go on in the next generation without a restart, and what each
//! generation leaves behind.

#[path = "../src/bootstrap/rendezvous/tests/kv_server.rs"]
mod kv_server;
mod processes;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use corro_collectives::coordinator::SetId;
use corro_collectives::elastic::{ElasticProcess, ElasticStartError, PlaceError, start_generation};
use corro_collectives::engine::ops::Reduce;
use corro_collectives::{Engine, EngineError, Settings};
use kv_server::KvServer;
use processes::rank::MARK;
use processes::{Rank, variables};

const SHM: (&str, &str) = ("CORRO_DIRECT_READ", "0");
const CMA: (&str, &str) = ("CORRO_DIRECT_READ", "1");
const TCP: (&str, &str) = ("CORRO_TRANSPORT", "tcp");

/// Decides as the test says. The answers are values of a key-value server.
struct Driver {
    server: KvServer,
    generation: u64,
    members: Vec<u64>,
    processes: BTreeMap<u64, Rank>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Driver {
    fn new(variables: &[(&'static str, &'static str)]) -> Driver {
        let server = KvServer::start(true);
        Driver { server, generation: 0, members: Vec::new(), processes: BTreeMap::new(), variables: variables.to_vec() }
    }

    fn start(&mut self, process: u64) {
        let (number, port) = (process.to_string(), self.server.port().to_string());
        let own = variables(&[
            ("HOROVOD_ELASTIC", "1"),
            ("CORRO_ELASTIC_PROCESS", &number),
            ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"),
            ("HOROVOD_GLOO_RENDEZVOUS_PORT", &port),
            ("HOROVOD_HOSTNAME", "here"),
        ]);
        let command = std::env::current_exe().expect("a test has a file").into_os_string();
        let arguments = ["--ignored", "--exact", "a_member", "--nocapture"].map(OsString::from);
        let command = [command].into_iter().chain(arguments).collect();
        self.processes.insert(process, Rank::start(command, &[own, variables(&self.variables)].concat()));
    }

    /// Begins a generation, and waits until its members are connected. Returns what each printed.
    fn begin(&mut self, members: &[u64]) -> Vec<String> {
        self.announce(members);
        self.joined()
    }

    fn announce(&mut self, members: &[u64]) {
        self.generation += 1;
        self.members = members.to_vec();
        let (generation, size) = (self.generation, members.len());
        let places = members.iter().enumerate().flat_map(|(rank, process)| {
            let place = format!("{generation} {rank} {size} {rank} {size} 0 1");
            (0..generation).map(move |after| (format!("/corro_elastic/place.{process}.{after}"), place.clone()))
        });
        self.server.put_all(places);
    }

    fn joined(&mut self) -> Vec<String> {
        let (generation, size) = (self.generation, self.members.len());
        let mut usage = Vec::new();
        for (rank, process) in self.members.clone().into_iter().enumerate() {
            usage.push(self.process(process).wait_for(&format!("joined {generation}: {rank} of {size},")));
        }
        for process in self.members.clone() {
            self.process(process).wait_for("busy");
        }
        usage
    }

    fn process(&mut self, process: u64) -> &mut Rank {
        self.processes.get_mut(&process).expect("it was started")
    }

    /// Kills a member and checks the errors of the others.
    fn kill(&mut self, process: u64) {
        let rank = self.members.iter().position(|member| *member == process).expect("a member");
        self.process(process).kill();
        let expected = format!("rank {rank} on host here has died");
        for other in self.members.clone().into_iter().filter(|other| *other != process) {
            for operation in ["failed", "later"] {
                assert_eq!(self.process(other).wait_for(operation), expected, "process {other}, {operation}");
            }
        }
    }

    /// Dismisses processes, which end as a success.
    fn dismiss(&mut self, processes: &[u64]) {
        let generation = self.generation;
        let answer = |process: &u64| (format!("/corro_elastic/place.{process}.{generation}"), "dismissed".to_owned());
        self.server.put_all(processes.iter().map(answer));
        for process in processes {
            let rank = self.process(*process);
            rank.wait_for("dismissed");
            assert!(rank.child.wait().expect("a child can be waited for").success());
        }
    }
}

/// A process of the job: reduces until an operation fails, then asks for the next generation.
#[test]
#[ignore = "started by the other tests as a process"]
fn a_member() {
    let process = ElasticProcess::from_environment().expect("good variables").expect("an elastic process");
    let settings = Settings::from_environment().expect("good settings");
    let mut generation = 0;
    loop {
        let engine = match start_generation(&process, generation, &settings, &|| false, &|_| {}) {
            Ok((next, engine)) => {
                generation = next;
                engine
            }
            Err(ElasticStartError::Place(PlaceError::Dismissed { .. })) => return report("dismissed"),
            Err(error) => return report(&format!("refused {error}")),
        };
        let info = engine.rank_info();
        report(&format!("joined {generation}: {} of {}, {}", info.rank, info.size, resources()));
        report(&format!("failed {}", reduce_until_failure(&engine)));
        let late = engine.allreduce("late", &mut [1.0f32], Reduce::SUM);
        report(&format!("later {}", late.expect_err("the engine has failed")));
    }
}

fn reduce_until_failure(engine: &Engine) -> EngineError {
    let size = engine.rank_info().size;
    let registered = engine.synchronize(&engine.begin_register_sets(vec![vec![0, size as u32 - 1]]));
    if size > 2
        && let Err(error) = registered
    {
        return error;
    }
    for step in 0.. {
        let mut data = vec![1.0f32; 20_000];
        if let Err(error) = engine.allreduce("gradient", &mut data, Reduce::SUM) {
            return error;
        }
        assert!(data.iter().all(|sum| *sum == size as f32));
        let in_pair = engine
            .sets()
            .iter()
            .any(|(id, ranks)| *id == SetId(1) && ranks.contains(&(engine.rank_info().rank as u32)));
        if in_pair {
            let mut pair = [1.0f32];
            let sum = Reduce { set: SetId(1), ..Reduce::SUM };
            if let Err(error) = engine.allreduce("pair", &mut pair, sum) {
                return error;
            }
            assert_eq!(pair, [2.0]);
        }
        if step == 3 {
            report("busy");
        }
    }
    unreachable!("a rank is killed")
}

fn report(what: &str) {
    println!("{MARK}{what}");
}

/// Files, threads, memory mappings and mapped MiB of this process.
fn resources() -> String {
    let count = |folder: &str| fs::read_dir(folder).expect("/proc/self is readable").count();
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc/self is readable").lines().count();
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self is readable");
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("the kernel reports it");
    let mapped: usize = mapped.trim().trim_end_matches(" kB").parse().expect("a number");
    format!("{} {} {maps} {}", count("/proc/self/fd"), count("/proc/self/task"), mapped / 1024)
}

fn survive(transport: (&'static str, &'static str)) {
    let mut driver = Driver::new(&[transport]);
    (1..=4).for_each(|process| driver.start(process));
    driver.begin(&[1, 2, 3, 4]);
    // The coordinator, the last rank, one between.
    driver.kill(1);
    driver.start(5);
    driver.begin(&[2, 3, 4, 5]);
    driver.kill(5);
    driver.begin(&[2, 3, 4]);
    driver.kill(3);
    driver.start(6);
    driver.start(7);
    driver.begin(&[2, 4, 6, 7]);
    driver.kill(2);
    driver.dismiss(&[4, 6, 7]);
}

#[test]
fn survivors_go_on_when_memory_is_shared() {
    survive(SHM);
}

#[test]
fn survivors_go_on_when_memory_is_read_directly() {
    survive(CMA);
}

#[test]
fn survivors_go_on_over_tcp() {
    survive(TCP);
}

#[test]
fn a_member_that_ends_before_it_is_connected_costs_a_generation() {
    let mut driver = Driver::new(&[]);
    (1..=2).for_each(|process| driver.start(process));
    // Process 3 has ended before it could join; the launcher says so.
    driver.announce(&[1, 2, 3]);
    driver.server.put_all([("/corro_1/failed".to_owned(), "2 rank 2 on host here ended with exit code 1".to_owned())]);
    driver.begin(&[1, 2]);
    driver.kill(1);
    driver.dismiss(&[2]);
}

#[test]
fn a_hundred_generations_leave_nothing_behind() {
    const N_GENERATIONS: u64 = 100;
    /// By then permanent allocations exist.
    const BASELINE: u64 = 20;
    let mut driver = Driver::new(&[]);
    (1..=2).for_each(|process| driver.start(process));
    let mut baseline: Vec<Vec<usize>> = Vec::new();
    for generation in 1..=N_GENERATIONS {
        let victim = generation + 2;
        driver.start(victim);
        let usage = driver.begin(&[1, 2, victim]);
        let parse = |text: &String| text.split(' ').map(|number| number.parse().expect("a number")).collect();
        let usage: Vec<Vec<usize>> = usage[..2].iter().map(parse).collect();
        if generation == BASELINE {
            baseline = usage;
        } else if generation == N_GENERATIONS {
            println!("files, threads, mappings, MiB: {baseline:?} became {usage:?}");
            for (before, after) in baseline.iter().zip(&usage) {
                // A thread of the rendezvous may still end.
                let tolerated = [2, 1, 8, 100];
                let is_fine =
                    before.iter().zip(after).zip(tolerated).all(|((before, after), more)| *after <= before + more);
                assert!(is_fine, "files, threads, mappings, MiB: {baseline:?} became {usage:?}");
            }
        }
        driver.kill(victim);
        driver.processes.remove(&victim);
    }
    driver.dismiss(&[1, 2]);
}
