//! What a node's processes may use together: the memory and the processors of its VM size, and how many they may be. Memory, time of
//! processors and numbers of processes are held by control groups of the kernel's, made when the agent starts, so that everything its warden forks is born inside,
//! and given a job's limits when the job begins. A machine that has no more than the VM size, or where no group can be made, has
//! none: no job fails for it. What is decided is decided alike for both versions of control groups; `group` acts.

mod cgroup;
mod cgroup_path;
mod controller;
mod cpu_affinity;
pub mod gpus;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use corro_launch::sweep::sweep_group;
use corro_model::node::{Limits, TaskOrder};

use crate::storage::tmp_dir;
use cgroup::Group;
use controller::Control;
use cpu_affinity::Claim;
use gpus::Gpus;

const CONTROLS: [Control; 3] = [Control::Memory, Control::Time, Control::Processes];

/// The groups of one node, or why there are none.
#[derive(Debug)]
pub struct Groups {
    memory: Result<Group, String>,
    time: Result<Group, String>,
    processes: Result<Group, String>,
    /// Whether programs may be bound to processors.
    binds: bool,
}

/// A job's limits while it runs.
#[derive(Debug, Default)]
pub struct Held {
    memory: Option<MemoryLimit>,
    processes: Option<ProcessLimit>,
    claim: Option<Claim>,
    pub gpus: Gpus,
}

#[derive(Debug)]
struct MemoryLimit {
    /// For people.
    words: String,
    kills_before: u64,
}

#[derive(Debug)]
struct ProcessLimit {
    most: u64,
    refused_before: u64,
}

/// What of the limits has an effect on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub memory_bytes: Option<u64>,
    pub cores: Option<u32>,
}

/// What a machine has for everybody on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub memory_bytes: u64,
    pub cores: u32,
}

/// A limit at or above what the machine has is none.
pub fn bounds(limits: Option<&Limits>, machine: Capacity) -> Bounds {
    let memory_bytes = limits.map(|limits| limits.memory_bytes).filter(|bytes| *bytes < machine.memory_bytes);
    Bounds { memory_bytes, cores: limits.map(|limits| limits.cores).filter(|cores| *cores < machine.cores) }
}

impl Capacity {
    /// Of this machine, or of what this process may use of it. Read once: neither changes while a process runs.
    pub fn here() -> Capacity {
        static HERE: LazyLock<Capacity> = LazyLock::new(Capacity::read);
        *HERE
    }

    fn read() -> Capacity {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Capacity { memory_bytes: kib.unwrap_or(u64::MAX >> 10) << 10, cores: u32::try_from(cores).unwrap_or(u32::MAX) }
    }
}

/// What this machine has, in words: `2 cores, 23 GiB of memory and no GPU`.
pub fn machine_in_words() -> String {
    let Capacity { memory_bytes, cores } = Capacity::here();
    let gpus = match gpus::inventory().len() {
        0 => "no GPU".to_owned(),
        1 => "1 GPU".to_owned(),
        n => format!("{n} GPUs"),
    };
    format!("{cores} core{}, {} GiB of memory and {gpus}", if cores == 1 { "" } else { "s" }, memory_bytes >> 30)
}

impl Groups {
    /// Makes the groups of the node whose directory is `root`, or finds those that an earlier agent left.
    pub fn make(root: &Path) -> Groups {
        let name = group_name(&tmp_dir::name(root));
        let [memory, time, processes] = CONTROLS.map(|control| Group::make(&name, control));
        Groups { memory, time, processes, binds: true }
    }

    pub fn none(why: &str) -> Groups {
        let none = || Err(why.to_owned());
        Groups { memory: none(), time: none(), processes: none(), binds: false }
    }

    /// Whoever writes a process's number to all of these puts it into the groups.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let mut entrances: Vec<PathBuf> = self.all().map(Group::entrance).collect();
        entrances.dedup();
        entrances
    }

    /// Holds the node's processes to what the job's VM size has. For the execution log: what was done, of memory,
    /// processors and processes.
    pub fn hold(&self, order: &TaskOrder, limits: Option<&Limits>, machine: Capacity) -> (Held, [String; 3]) {
        let bounds = bounds(limits, machine);
        let (memory, of_memory) = self.hold_memory(limits, bounds.memory_bytes);
        let (claim, of_processors) = self.hold_processors(order, limits, bounds.cores, machine.cores);
        let (processes, of_processes) =
            self.hold_processes(limits.map(|limits| most_processes(limits, kernel_processes())));
        (Held { memory, processes, claim, gpus: Gpus::default() }, [of_memory, of_processors, of_processes])
    }

    fn hold_processes(&self, most: Option<u64>) -> (Option<ProcessLimit>, String) {
        // The node's own guards are in the group too.
        let written = most.map(|most| most + GUARDS);
        let set = self.processes.as_ref().map_err(String::clone).and_then(|group| group.set(written).map(|()| group));
        match (most, set) {
            (None, _) => (None, "no limit".to_owned()),
            (Some(_), Err(why)) => (None, format!("NO limit: {why}")),
            (Some(most), Ok(group)) => {
                let limit = ProcessLimit { most, refused_before: group.refused_starts() };
                (Some(limit), format!("at most {most}, threads included"))
            }
        }
    }

    fn hold_memory(&self, limits: Option<&Limits>, bytes: Option<u64>) -> (Option<MemoryLimit>, String) {
        let set = self.memory.as_ref().map_err(String::clone).and_then(|group| group.set(bytes).map(|()| group));
        match (limits, bytes, set) {
            (None, ..) => (None, "no limit".to_owned()),
            (Some(_), _, Err(why)) if bytes.is_some() => (None, format!("NO limit: {why}")),
            (Some(limits), Some(bytes), Ok(group)) => {
                let words = format!("{} GiB, the memory of {}", gib(bytes), limits.vm_size);
                let told = format!("at most {words}");
                (Some(MemoryLimit { words, kills_before: group.kills() }), told)
            }
            (Some(limits), ..) => (None, format!("no limit, as this machine has no more than {}", limits.vm_size)),
        }
    }

    fn hold_processors(
        &self,
        order: &TaskOrder,
        limits: Option<&Limits>,
        cores: Option<u32>,
        usable: u32,
    ) -> (Option<Claim>, String) {
        let set = self.time.as_ref().map_err(String::clone);
        let set = set.and_then(|group| group.set(cores.map(u64::from)));
        let (Some(limits), Some(cores)) = (limits, cores) else {
            let told = limits.map_or_else(
                || "no limit".to_owned(),
                |limits| format!("no limit, as this machine has no more than {}", limits.vm_size),
            );
            return (None, told);
        };
        let claim = match self.binds && cpu_affinity::fit(order, cores, usable) {
            true => cpu_affinity::claim(cores).map_err(|error| error.to_string()),
            false => Err(format!("the job's nodes here would have more than {usable}")),
        };
        let told = words(&set, claim.as_ref().map(|claim| &claim.numbers[..]), cores, limits);
        (claim.ok(), told)
    }

    /// Whether processes were killed for want of memory since the job began; the limit and what to do, in words.
    pub fn exceeded(&self, held: &Held) -> Option<String> {
        let (limit, group) = held.memory.as_ref().zip(self.memory.as_ref().ok())?;
        (group.kills() > limit.kills_before).then(|| {
            format!(
                "the job's processes on this node may use {} together, and the kernel killed one when they wanted more: \
                 choose a larger vmSize for the cluster, or use less (smaller batches, fewer processes)",
                limit.words
            )
        })
    }

    /// Whether processes or threads were not started since the job began because there were too many; the limit and what to do, in words.
    pub fn out_of_processes(&self, held: &Held) -> Option<String> {
        let (limit, group) = held.processes.as_ref().zip(self.processes.as_ref().ok())?;
        (group.refused_starts() > limit.refused_before).then(|| out_of_processes(limit.most))
    }

    /// Blocks until what was in them has ended. One that cannot be removed now is found by the node's next agent.
    pub fn remove(&self) -> io::Result<()> {
        self.all().try_for_each(Group::remove)
    }

    fn all(&self) -> impl Iterator<Item = &Group> {
        [&self.memory, &self.time, &self.processes].into_iter().filter_map(|group| group.as_ref().ok())
    }
}

impl Held {
    /// Those that the job's programs are bound to; empty means all.
    pub fn processors(&self) -> Vec<u16> {
        self.claim.as_ref().map(|claim| claim.numbers.clone()).unwrap_or_default()
    }
}

/// What a job is told whose processes met the limit.
pub fn out_of_processes(most: u64) -> String {
    format!(
        "the job may have {most} processes and threads on this node, and the kernel refused to start more: start fewer (data loader \
         workers, OMP_NUM_THREADS), choose a larger vmSize for the cluster, or have --max-processes of the server raised"
    )
}

/// How many processes and threads a job may have on a node: what the operator says, else enough for every program that is not
/// mistaken, and never so many that the machine (`kernel`) has none left for others.
pub fn most_processes(limits: &Limits, kernel: u64) -> u64 {
    let by_size = 4096 + 1024 * u64::from(limits.cores);
    limits.processes.unwrap_or_else(|| by_size.min(kernel / 2)).max(1)
}

/// How many the kernel has for everybody, when this was first asked.
pub fn kernel_processes() -> u64 {
    static KNOWN: LazyLock<u64> = LazyLock::new(read_kernel_processes);
    *KNOWN
}

fn read_kernel_processes() -> u64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok();
    let known: [Option<u64>; 2] = [read("pid_max"), read("threads-max")];
    known.into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// A warden, its guards that rest, and those of a job's processes, beyond which a node starts no ranks.
const GUARDS: u64 = 64;

/// What became of a limit of processors: whether the kernel holds to it, and which ones the programs are bound to.
fn words(set: &Result<(), String>, bound: Result<&[u16], &String>, cores: u32, limits: &Limits) -> String {
    let size = format!("as {} has", limits.vm_size);
    let list = |numbers: &[u16]| numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match (set, bound) {
        (Ok(()), Ok(numbers)) => format!("at most {cores}, {size}: number {}", list(numbers)),
        (Ok(()), Err(_)) => format!("at most the time of {cores}, {size}, on any of the machine's"),
        (Err(why), Ok(numbers)) => {
            format!("{cores}, {size}: number {}, unless a program binds itself to others, as {why}", list(numbers))
        }
        (Err(why), Err(not_bound)) => format!("NO limit: {why}; bound to none, as {not_bound}"),
    }
}

/// Kills every process in the groups of a node whose agent is dead, and gives their ids. Blocks until none is left or can be killed.
pub fn end_processes(node: &str) -> Vec<u32> {
    let mut groups: Vec<PathBuf> =
        CONTROLS.into_iter().filter_map(|control| cgroup::path(&group_name(node), control)).collect();
    groups.dedup();
    let mut killed: Vec<u32> = groups.iter().flat_map(|group| sweep_group(group)).collect();
    killed.sort_unstable();
    killed.dedup();
    killed
}

/// Removes the groups of a node whose agent is dead; none is none. Blocks as [`Groups::remove`] does.
pub fn remove(root: &Path) -> io::Result<()> {
    remove_named(&tmp_dir::name(root))
}

/// The same for a node of which only its short name is known.
pub fn remove_named(node: &str) -> io::Result<()> {
    CONTROLS.into_iter().try_for_each(|control| cgroup::remove(&group_name(node), control))
}

/// Tries every control on this machine: makes a group, gives it a limit and removes it. The kernel's name of each control, and why it
/// cannot be had.
pub fn try_out() -> Vec<(&'static str, Result<(), String>)> {
    let name = group_name(&format!("trial-{}", std::process::id()));
    let tried = CONTROLS.map(|control| {
        let limited = Group::make(&name, control).and_then(|group| group.set(Some(TRIAL_LIMIT)));
        (control.name(), limited)
    });
    CONTROLS.into_iter().for_each(|control| drop(cgroup::remove(&name, control)));
    tried.into()
}

/// Of bytes, of processors: a number that every control takes.
const TRIAL_LIMIT: u64 = 4096;

fn group_name(node: &str) -> String {
    format!("corro-{node}")
}

fn gib(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests;
