//! Seeded simulation of elastic trainings: hosts come and go, processes start slowly, die, hang, do not leave when told to, and complete the
//! training. After each step the invariants of the driver are checked; once the faults stop, the training must end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corro_elastic::{Action, Driver, Generation, Host, Member, OnFailure, Outcome, ProcessId, Settings};
use corro_test_support::rng::SplitMix64;

const ELASTIC_TIMEOUT: u64 = 60_000;
/// Faults and changes of hosts stop at this time at the latest.
const MAX_CALM_AT: u64 = 400_000;
/// Computing time until the training is complete, within one generation after the calm.
const WORK: u64 = 30_000;
/// By then every training has ended: waits of the driver and the work, with reserve.
const END: u64 = MAX_CALM_AT + 20 * ELASTIC_TIMEOUT;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Waiting,
    Running,
    Leaving,
    Killed,
}

#[derive(Debug)]
struct Process {
    host: String,
    slot: usize,
    state: State,
    /// The generation it was a member of last.
    generation: Generation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Discovery,
    Ask(ProcessId),
    Exit(ProcessId, bool),
    /// A random living process dies.
    Fault,
    /// The members of this generation have completed the training.
    Complete(Generation),
}

struct Simulation {
    driver: Driver,
    settings: Settings,
    rng: SplitMix64,
    calm_at: u64,
    /// Milliseconds.
    now: u64,
    /// By time and order of insertion.
    queue: BTreeMap<(u64, u64), Event>,
    n_events: u64,
    processes: BTreeMap<ProcessId, Process>,
    listed: Vec<Host>,
    last_process: ProcessId,
    generation: Generation,
    members: Vec<ProcessId>,
    /// Generations of which a process survived into the next one.
    n_continued: u32,
    is_complete: bool,
    outcome: Option<Outcome>,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut rng = SplitMix64::new(seed);
        let min = rng.between(1, 5) as usize;
        let max = (!rng.one_in(3)).then(|| min + rng.below(4) as usize);
        let cooldown = rng.one_in(2).then(|| (Duration::from_secs(1), Duration::from_secs(20)));
        let settings = Settings {
            min,
            max,
            elastic_timeout: Duration::from_millis(ELASTIC_TIMEOUT),
            reset_limit: (!rng.one_in(3)).then(|| rng.between(0, 30) as u32),
            cooldown,
            on_failure: if rng.one_in(2) { OnFailure::RestartOnHost } else { OnFailure::ExcludeHost },
        };
        let driver = Driver::new(settings.clone(), seed).with_spares(rng.below(2) as usize);
        let mut simulation = Simulation {
            driver,
            settings,
            calm_at: rng.between(1_000, MAX_CALM_AT),
            rng,
            now: 0,
            queue: BTreeMap::new(),
            n_events: 0,
            processes: BTreeMap::new(),
            listed: Vec::new(),
            last_process: 0,
            generation: 0,
            members: Vec::new(),
            n_continued: 0,
            is_complete: false,
            outcome: None,
        };
        simulation.schedule(0, Event::Discovery);
        simulation.schedule(1_000, Event::Fault);
        simulation
    }

    fn schedule(&mut self, delay: u64, event: Event) {
        self.n_events += 1;
        self.queue.insert((self.now + delay, self.n_events), event);
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    fn run(&mut self) {
        while self.outcome.is_none() || !self.processes.is_empty() {
            let timer = self.driver.next_timer().map(|timer| timer.as_nanos().div_ceil(1_000_000) as u64);
            let event = self.queue.first_key_value().map(|((at, _), _)| *at);
            assert!(timer.is_none_or(|timer| timer >= self.now), "a timer in the past would spin");
            match (timer, event) {
                (Some(timer), event) if event.is_none_or(|event| timer <= event) => {
                    self.now = timer;
                    let actions = self.driver.on_time(self.time());
                    self.apply(actions);
                }
                (_, Some(_)) => {
                    let ((at, _), event) = self.queue.pop_first().expect("there is one");
                    self.now = at;
                    self.handle(event);
                }
                _ => panic!("nothing happens any more, and the training has not ended: {:?}", self.driver),
            }
            assert!(self.now < END, "the training does not end: {:?}", self.driver);
            assert_eq!(self.driver.on_time(self.time()), [], "decisions were left over");
        }
    }

    fn handle(&mut self, event: Event) {
        let is_calm = self.now >= self.calm_at;
        match event {
            Event::Discovery => {
                if is_calm {
                    self.listed = (0..4).map(|idx| Host { name: format!("calm{idx}"), slots: 4 }).collect();
                    self.listed.extend((0..4).map(|idx| Host { name: format!("h{idx}"), slots: 2 }));
                } else {
                    let (names, slots) = (self.rng.below(5), 1 + self.rng.below(3) as usize);
                    self.listed = (0..names).map(|idx| Host { name: format!("h{idx}"), slots }).collect();
                    if self.rng.one_in(3) {
                        self.listed.reverse();
                    }
                    let delay = self.rng.between(10, 40_000);
                    self.schedule(delay.min(self.calm_at - self.now), Event::Discovery);
                }
                let actions = self.driver.on_hosts(self.time(), &self.listed.clone());
                self.apply(actions);
            }
            Event::Fault if !is_calm => {
                let living = self.processes.iter().filter(|(_, process)| process.state != State::Killed);
                let ids: Vec<ProcessId> = living.map(|(id, _)| *id).collect();
                if let Some(victim) = self.rng.pick(ids) {
                    self.handle(Event::Exit(victim, false));
                }
                let delay = self.rng.between(1, 60_000);
                self.schedule(delay, Event::Fault);
            }
            Event::Fault => {}
            Event::Ask(id) => {
                let Some(process) = self.processes.get_mut(&id) else { return };
                if ![State::Starting, State::Running].contains(&process.state) {
                    return;
                }
                process.state = State::Waiting;
                let after = process.generation;
                let actions = self.driver.on_waiting(self.time(), id, after);
                self.apply(actions);
            }
            Event::Exit(id, success) => {
                let Some(process) = self.processes.remove(&id) else { return };
                match success {
                    true => self.is_complete |= [State::Running, State::Waiting].contains(&process.state),
                    false if process.state == State::Running => self.interrupt_generation(),
                    false => {}
                }
                let actions = self.driver.on_exit(self.time(), id, success);
                self.apply(actions);
            }
            Event::Complete(generation) if generation == self.generation => {
                let running = self.processes.iter().filter(|(_, process)| process.state == State::Running);
                let running: Vec<ProcessId> = running.map(|(id, _)| *id).collect();
                // Only a generation that is whole completes the work.
                if running.len() == self.members.len() {
                    for id in running {
                        let delay = self.rng.below(2_000);
                        self.schedule(delay, Event::Exit(id, true));
                    }
                }
            }
            Event::Complete(_) => {}
        }
    }

    /// The members that compute notice a death, or a notification, and ask again. Before the calm one may hang.
    fn interrupt_generation(&mut self) {
        let running = self.processes.iter().filter(|(_, process)| process.state == State::Running);
        for id in running.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.now < self.calm_at && self.rng.one_in(50) {
                continue;
            }
            let delay = self.rng.below(500);
            self.schedule(delay, Event::Ask(id));
        }
    }

    fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert!(self.outcome.is_none(), "{action:?} after the end");
            match action {
                Action::Start { process, host, slot } => self.on_start(process, host, slot),
                Action::Begin { generation, members } => self.on_begin(generation, &members),
                Action::Dismiss { process } => {
                    self.processes.get_mut(&process).expect("it lives").state = State::Leaving;
                    if !self.rng.one_in(10) {
                        let delay = self.rng.below(1_000);
                        self.schedule(delay, Event::Exit(process, true));
                    }
                }
                Action::Kill { process } => self.kill(process),
                Action::Notify { generation, .. } => {
                    assert_eq!(generation, self.generation);
                    self.interrupt_generation();
                }
                Action::Report { text } => assert!(!text.is_empty()),
                Action::Finish(outcome) => {
                    if outcome == Outcome::Succeeded {
                        assert!(self.is_complete && self.processes.is_empty(), "{:?}", self.processes);
                    }
                    self.outcome = Some(outcome);
                    // The launcher ends what still runs.
                    self.processes.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.kill(id));
                }
            }
        }
    }

    fn kill(&mut self, process: ProcessId) {
        self.processes.get_mut(&process).expect("it lives").state = State::Killed;
        let delay = self.rng.below(5_000);
        self.schedule(delay, Event::Exit(process, false));
    }

    fn on_start(&mut self, id: ProcessId, host: String, slot: usize) {
        assert_eq!(id, self.last_process + 1, "numbers are never reused");
        self.last_process = id;
        assert!(!self.is_complete || self.generation == 0, "nothing starts once the training is complete");
        let has_slot = |listed: &Host| listed.name == host && slot < listed.slots;
        assert!(self.listed.iter().any(has_slot), "{host}:{slot} is not listed");
        let is_free = |process: &Process| process.host != host || process.slot != slot;
        assert!(self.processes.values().all(is_free), "two processes in {host}:{slot}");
        self.processes.insert(id, Process { host, slot, state: State::Starting, generation: 0 });
        let delay = self.rng.between(1, 10_000);
        match self.now < self.calm_at {
            true if self.rng.one_in(20) => self.schedule(delay, Event::Exit(id, false)),
            // Hangs while it starts.
            true if self.rng.one_in(50) => {}
            _ => self.schedule(delay, Event::Ask(id)),
        }
    }

    fn on_begin(&mut self, generation: Generation, members: &[Member]) {
        assert_eq!(generation, self.generation + 1);
        assert!(!self.is_complete, "a generation begins after the end of the training");
        assert!(members.len() >= self.settings.min && members.len() <= self.settings.max.unwrap_or(usize::MAX));
        let ids: Vec<ProcessId> = members.iter().map(|member| member.process).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "a process twice: {ids:?}");
        for (id, process) in &self.processes {
            assert_ne!(process.state, State::Running, "process {id} is still in generation {}", self.generation);
        }
        let survivors: Vec<ProcessId> = ids.iter().copied().filter(|id| self.members.contains(id)).collect();
        let old_order: Vec<ProcessId> = self.members.iter().copied().filter(|id| survivors.contains(id)).collect();
        assert_eq!(ids[..survivors.len()], old_order, "survivors keep their order and come first");
        if generation > 1 {
            match survivors.is_empty() {
                true => assert!(self.settings.reset_limit.is_some(), "a start from nothing without a limit"),
                false => self.n_continued += 1,
            }
        }
        for (rank, member) in members.iter().enumerate() {
            let process = self.processes.get_mut(&member.process).expect("members live");
            assert_eq!((member.rank, &member.host, process.state), (rank, &process.host, State::Waiting));
            (process.state, process.generation) = (State::Running, generation);
        }
        (self.generation, self.members) = (generation, ids);
        self.schedule(self.calm_at.saturating_sub(self.now) + WORK, Event::Complete(generation));
        if self.now >= self.calm_at {
            return;
        }
        if self.rng.one_in(10) {
            // Processes that lose their connection ask again without any death.
            self.interrupt_generation();
        } else if self.rng.one_in(200) {
            let delay = self.rng.below(WORK);
            self.schedule(delay, Event::Complete(generation));
        }
    }
}

#[test]
fn invariants_hold_in_random_trainings() {
    let (mut n_succeeded, mut n_failed, mut n_continued) = (0, 0, 0);
    for seed in 0..1_000 {
        let mut simulation = Simulation::new(seed);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| simulation.run()));
        if let Err(panic) = ended {
            eprintln!("seed {seed} at {} ms", simulation.now);
            std::panic::resume_unwind(panic);
        }
        match simulation.outcome.as_ref().expect("it ended") {
            Outcome::Succeeded => n_succeeded += 1,
            Outcome::Failed { reason } => {
                assert!(!reason.is_empty());
                n_failed += 1;
            }
        }
        n_continued += simulation.n_continued;
    }
    eprintln!("{n_succeeded} succeeded, {n_failed} failed, {n_continued} generations with survivors");
    // The simulation reaches what it is about.
    assert!(n_succeeded > 100 && n_failed > 100 && n_continued > 1_000);
}

#[test]
fn the_same_seed_gives_the_same_training() {
    for seed in [3, 1_000_003] {
        let history = || {
            let mut simulation = Simulation::new(seed);
            simulation.run();
            (simulation.now, simulation.last_process, simulation.generation, simulation.outcome)
        };
        assert_eq!(history(), history());
    }
}
