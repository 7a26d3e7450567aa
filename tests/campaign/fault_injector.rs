//! Fault injection: kills and freezes processes, silences nodes, sets the clock, fills the disk, starts restored copies. Only a
//! killed server is restarted here, in the same directory; Corro must recover from everything else by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use corro_launch::kill_tagged::processes_with_tag;
use rustix::process::Signal;

use super::client::CampaignClient;
use super::control_job::ControlJob;
use super::harness::fake_clock::FakeClock;
use super::harness::{Site, signal};
use super::history::History;
use super::restored_copy::{self, CopyOutcome};
use super::rng_for;
use corro_test_support::rng::SplitMix64;

/// Fault kinds with their percentages. The rest are kills of ranks and guards.
const FAULTS: [(Fault, u64); 8] = [
    (Fault::KillServer, 12),
    (Fault::KillAgent, 16),
    (Fault::SilenceAgent, 4),
    (Fault::FreezeServer, 4),
    (Fault::Freeze, 14),
    (Fault::SetClock, 3),
    (Fault::FillDisk, 2),
    (Fault::StartRestoredCopy, 1),
];

#[derive(Clone, Copy)]
enum Fault {
    KillServer,
    KillAgent,
    /// Frozen, and never thawed: its lease runs out.
    SilenceAgent,
    FreezeServer,
    /// An agent, a guard or a rank.
    Freeze,
    SetClock,
    FillDisk,
    StartRestoredCopy,
    Kill,
}

/// Number of injected faults of each kind.
#[derive(Default)]
pub struct FaultCounts {
    kills: BTreeMap<&'static str, usize>,
    freezes: BTreeMap<&'static str, usize>,
    others: BTreeMap<&'static str, usize>,
}

impl FaultCounts {
    pub fn total(&self) -> usize {
        [&self.kills, &self.freezes, &self.others].into_iter().flat_map(BTreeMap::values).sum()
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, counts) in [("kills", &self.kills), ("\nfreezes", &self.freezes)] {
            write!(f, "{name}: {}", counts.values().sum::<usize>())?;
            counts.iter().try_for_each(|(what, count)| write!(f, ", {what} {count}"))?;
        }
        f.write_str("\nalso")?;
        self.others.iter().try_for_each(|(what, count)| write!(f, ", {what} {count}"))
    }
}

pub struct FaultInjector<'a> {
    pub site: &'a mut Site,
    pub client: &'a CampaignClient,
    pub history: &'a History,
    /// No fault targets its node.
    pub control_job: &'a ControlJob,
    pub clock: Option<&'a FakeClock>,
    pub counts: FaultCounts,
    /// Frozen processes and the time at which each continues.
    frozen: Vec<(Instant, u32)>,
    clock_reset_at: Option<Instant>,
    rng: SplitMix64,
}

impl<'a> FaultInjector<'a> {
    pub fn new(
        site: &'a mut Site,
        client: &'a CampaignClient,
        history: &'a History,
        control_job: &'a ControlJob,
        clock: Option<&'a FakeClock>,
        seed: u64,
    ) -> Self {
        let (counts, frozen, clock_reset_at, rng) = (FaultCounts::default(), Vec::new(), None, rng_for(0, seed));
        Self { site, client, history, control_job, clock, counts, frozen, clock_reset_at, rng }
    }

    pub fn run_until(mut self, until: Instant) -> FaultCounts {
        while Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(20 + self.rng.between(0, 400)));
            self.undo_expired(Instant::now());
            self.history.record_nodes(self.site.agents().into_iter().map(|(node, _)| node));
            let fault = self.choose();
            self.inject(fault);
        }
        self.undo_all();
        self.counts
    }

    fn choose(&mut self) -> Fault {
        let mut number = self.rng.between(0, 100);
        for (fault, share) in FAULTS {
            match number.checked_sub(share) {
                Some(rest) => number = rest,
                None => return fault,
            }
        }
        Fault::Kill
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::KillServer => {
                self.site.crash_and_restart();
                count(&mut self.counts.kills, "servers");
            }
            Fault::KillAgent => self.kill(Self::agents),
            Fault::Kill => self.kill(Self::processes),
            Fault::SilenceAgent => {
                if let Some(pid) = self.rng.pick(self.agents()) {
                    signal(pid, Signal::STOP);
                    count(&mut self.counts.freezes, "agents for good");
                }
            }
            Fault::FreezeServer => self.freeze(self.site.up_pid(), "servers"),
            Fault::Freeze => {
                let all = self.agents().into_iter().chain(self.processes());
                if let Some(pid) = self.rng.pick(all) {
                    self.freeze(pid, kind_of(pid));
                }
            }
            Fault::SetClock => self.set_clock(),
            Fault::FillDisk => self.fill_disk(),
            Fault::StartRestoredCopy => self.start_restored_copy(),
        }
    }

    fn kill(&mut self, victims: fn(&Self) -> Vec<u32>) {
        if let Some(pid) = self.rng.pick(victims(self)) {
            count(&mut self.counts.kills, kind_of(pid));
            signal(pid, Signal::KILL);
        }
    }

    fn freeze(&mut self, pid: u32, what: &'static str) {
        signal(pid, Signal::STOP);
        self.frozen.push((Instant::now() + Duration::from_millis(50 + self.rng.between(0, 1_500)), pid));
        count(&mut self.counts.freezes, what);
    }

    fn set_clock(&mut self) {
        let Some(clock) = self.clock else { return };
        let (sign, days) = (if self.rng.one_in(2) { '+' } else { '-' }, 1 + self.rng.between(0, 400));
        clock.set(&format!("{sign}{days}d"));
        self.clock_reset_at = Some(Instant::now() + Duration::from_millis(200 + self.rng.between(0, 1_500)));
        count(&mut self.counts.others, "clocks set");
    }

    /// Fills the disk for a while. Terminating a job must work meanwhile.
    fn fill_disk(&mut self) {
        self.undo_all();
        let Some(disk) = &self.site.disk else { return };
        disk.fill();
        std::thread::park_timeout(Duration::from_millis(self.rng.between(0, 800)));
        if let Some(job) = self.rng.pick(self.history.unfinished())
            && let Some(status @ 500..) = self.client.terminate(&job)
        {
            self.history
                .report_violation(format!("the server answered {status} to the termination of {job} on a full disk"));
        }
        disk.empty();
        count(&mut self.counts.others, "full disks");
    }

    fn start_restored_copy(&mut self) {
        self.undo_all();
        let beside = Duration::from_millis(500 + self.rng.between(0, 2_000));
        match restored_copy::run(self.site, self.site.path(), beside) {
            CopyOutcome::Ran => count(&mut self.counts.others, "restored copies"),
            CopyOutcome::NoBackup => count(&mut self.counts.others, "failed backups"),
        }
    }

    fn undo_all(&mut self) {
        self.undo_expired(Instant::now() + Duration::from_secs(3600));
    }

    fn undo_expired(&mut self, now: Instant) {
        let is_over = |(until, _): &mut (Instant, u32)| *until <= now;
        self.frozen.extract_if(.., is_over).for_each(|(_, pid)| signal(pid, Signal::CONT));
        if let Some(clock) = self.clock
            && self.clock_reset_at.take_if(|until| *until <= now).is_some()
        {
            clock.set("+0");
        }
    }

    fn agents(&self) -> Vec<u32> {
        let agents = self.site.agents().into_iter();
        agents.filter(|(node, _)| *node != self.control_job.node).map(|(_, pid)| pid).collect()
    }

    /// Ranks and guards.
    fn processes(&self) -> Vec<u32> {
        let nodes = self.history.nodes().into_iter().filter(|node| *node != self.control_job.node);
        nodes.flat_map(|node| processes_with_tag(&format!("{node}/"))).collect()
    }
}

fn count(counts: &mut BTreeMap<&'static str, usize>, what: &'static str) {
    *counts.entry(what).or_default() += 1;
}

fn kind_of(pid: u32) -> &'static str {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let is_ours = std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("corro"));
    match is_ours {
        true if read("cmdline").split(|byte| *byte == 0).any(|word| word == b"agent") => "agents",
        true => "guards",
        false => "ranks",
    }
}
