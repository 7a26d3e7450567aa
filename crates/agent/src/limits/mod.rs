//! Resource limits of a node's processes: memory and CPUs of the VM size, and the number of processes. Enforced by
//! cgroups, which are created when the agent starts, so that everything the fork server starts is inside, and get the
//! job's limits when a job begins. A machine with no more resources than the VM size, or without usable cgroups, has no
//! limits; no job fails for that. Decisions are the same for cgroup v1 and v2.

mod cgroup;
mod cgroup_path;
mod controller;
mod cpu_affinity;
pub mod gpus;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use corro_base::procfs;
use corro_launch::kill_tagged::kill_cgroup;
use corro_model::node::{Limits, TaskOrder};

use crate::storage::tmp_dir;
use cgroup::Cgroup;
use controller::Controller;
use cpu_affinity::ResourceClaim;
use gpus::Gpus;

const CONTROLLERS: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

/// The cgroups of one node, or why there are none.
#[derive(Debug)]
pub struct Cgroups {
    memory: Result<Cgroup, String>,
    cpu: Result<Cgroup, String>,
    pids: Result<Cgroup, String>,
    /// Whether programs may be pinned to CPUs.
    pins_cpus: bool,
}

/// Limits of the running job.
#[derive(Debug, Default)]
pub struct AppliedLimits {
    memory: Option<MemoryLimit>,
    pids: Option<ProcessLimit>,
    claim: Option<ResourceClaim>,
    pub gpus: Gpus,
}

#[derive(Debug)]
struct MemoryLimit {
    /// The limit as text for users.
    text: String,
    oom_kills_before: u64,
}

#[derive(Debug)]
struct ProcessLimit {
    max: u64,
    refused_starts_before: u64,
}

/// Limits that have an effect on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub memory_bytes: Option<u64>,
    pub cores: Option<u32>,
}

/// Resources of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub memory_bytes: u64,
    pub cores: u32,
}

/// Drops limits that are not below what the machine has.
pub fn bounds(limits: Option<&Limits>, machine: Capacity) -> Bounds {
    let memory_bytes = limits.map(|limits| limits.memory_bytes).filter(|bytes| *bytes < machine.memory_bytes);
    Bounds { memory_bytes, cores: limits.map(|limits| limits.cores).filter(|cores| *cores < machine.cores) }
}

impl Capacity {
    /// Capacity of this machine, or of the part that this process may use. Read once: it does not change while a
    /// process runs.
    pub fn detect() -> Capacity {
        static HERE: LazyLock<Capacity> = LazyLock::new(Capacity::read);
        *HERE
    }

    fn read() -> Capacity {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory_bytes = procfs::Memory::read().map_or(u64::MAX, |memory| memory.total);
        Capacity { memory_bytes, cores: u32::try_from(cores).unwrap_or(u32::MAX) }
    }
}

/// Description of this machine: `2 cores, 23 GiB of memory and no GPU`.
pub fn describe_machine() -> String {
    let Capacity { memory_bytes, cores } = Capacity::detect();
    let gpus = match gpus::inventory().len() {
        0 => "no GPU".to_owned(),
        1 => "1 GPU".to_owned(),
        n => format!("{n} GPUs"),
    };
    format!("{cores} core{}, {} GiB of memory and {gpus}", if cores == 1 { "" } else { "s" }, memory_bytes >> 30)
}

impl Cgroups {
    /// Creates the cgroups of the node in `root`, or reuses those of an earlier agent.
    pub fn make(root: &Path) -> Cgroups {
        let name = cgroup_name(&tmp_dir::dir_name(root));
        let [memory, cpu, pids] = CONTROLLERS.map(|controller| Cgroup::make(&name, controller));
        Cgroups { memory, cpu, pids, pins_cpus: true }
    }

    pub fn none(why: &str) -> Cgroups {
        let none = || Err(why.to_owned());
        Cgroups { memory: none(), cpu: none(), pids: none(), pins_cpus: false }
    }

    /// The `cgroup.procs` files: a process that is written to all of them is in the cgroups.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        let mut procs_files: Vec<PathBuf> = self.all().map(Cgroup::procs_file).collect();
        procs_files.dedup();
        procs_files
    }

    /// Applies the limits of the job's VM size. The texts describe memory, CPUs and processes for the execution log.
    pub fn apply(&self, order: &TaskOrder, limits: Option<&Limits>, machine: Capacity) -> (AppliedLimits, [String; 3]) {
        let bounds = bounds(limits, machine);
        let (memory, memory_note) = self.apply_memory(limits, bounds.memory_bytes);
        let (claim, cpu_note) = self.apply_cpu(order, limits, bounds.cores, machine.cores);
        let (pids, pids_note) = self.apply_pids(limits.map(|limits| max_processes(limits, kernel_max_processes())));
        (AppliedLimits { memory, pids, claim, gpus: Gpus::default() }, [memory_note, cpu_note, pids_note])
    }

    fn apply_pids(&self, max: Option<u64>) -> (Option<ProcessLimit>, String) {
        // The node's own guards are in the cgroup too.
        let written = max.map(|max| max + GUARD_ALLOWANCE);
        let set = self.pids.as_ref().map_err(String::clone).and_then(|cgroup| cgroup.set(written).map(|()| cgroup));
        match (max, set) {
            (None, _) => (None, "no limit".to_owned()),
            (Some(_), Err(why)) => (None, format!("NO limit: {why}")),
            (Some(max), Ok(cgroup)) => {
                let limit = ProcessLimit { max, refused_starts_before: cgroup.refused_starts() };
                (Some(limit), format!("at most {max}, threads included"))
            }
        }
    }

    fn apply_memory(&self, limits: Option<&Limits>, bytes: Option<u64>) -> (Option<MemoryLimit>, String) {
        let set = self.memory.as_ref().map_err(String::clone).and_then(|cgroup| cgroup.set(bytes).map(|()| cgroup));
        match (limits, bytes, set) {
            (None, ..) => (None, "no limit".to_owned()),
            (Some(_), _, Err(why)) if bytes.is_some() => (None, format!("NO limit: {why}")),
            (Some(limits), Some(bytes), Ok(cgroup)) => {
                let text = format!("{} GiB, the memory of {}", gib(bytes), limits.vm_size);
                let description = format!("at most {text}");
                (Some(MemoryLimit { text, oom_kills_before: cgroup.oom_kills() }), description)
            }
            (Some(limits), ..) => (None, format!("no limit, as this machine has no more than {}", limits.vm_size)),
        }
    }

    fn apply_cpu(
        &self,
        order: &TaskOrder,
        limits: Option<&Limits>,
        cores: Option<u32>,
        usable: u32,
    ) -> (Option<ResourceClaim>, String) {
        let set = self.cpu.as_ref().map_err(String::clone);
        let set = set.and_then(|cgroup| cgroup.set(cores.map(u64::from)));
        let (Some(limits), Some(cores)) = (limits, cores) else {
            let description = limits.map_or_else(
                || "no limit".to_owned(),
                |limits| format!("no limit, as this machine has no more than {}", limits.vm_size),
            );
            return (None, description);
        };
        let claim = match self.pins_cpus && cpu_affinity::all_nodes_fit(order, cores, usable) {
            true => cpu_affinity::claim(cores).map_err(|error| error.to_string()),
            false => Err(format!("the job's nodes here would have more than {usable}")),
        };
        let description = describe_cpu_limit(&set, claim.as_ref().map(|claim| &claim.numbers[..]), cores, limits);
        (claim.ok(), description)
    }

    /// Message with the limit and advice if the OOM killer killed a process since the job began.
    pub fn out_of_memory(&self, applied: &AppliedLimits) -> Option<String> {
        let (limit, cgroup) = applied.memory.as_ref().zip(self.memory.as_ref().ok())?;
        (cgroup.oom_kills() > limit.oom_kills_before).then(|| {
            format!(
                "the job's processes on this node may use {} together, and the kernel killed one when they wanted more: \
                 choose a larger vmSize for the cluster, or use less (smaller batches, fewer processes)",
                limit.text
            )
        })
    }

    /// Message with the limit and advice if forks were refused since the job began.
    pub fn out_of_processes(&self, applied: &AppliedLimits) -> Option<String> {
        let (limit, cgroup) = applied.pids.as_ref().zip(self.pids.as_ref().ok())?;
        (cgroup.refused_starts() > limit.refused_starts_before).then(|| out_of_processes(limit.max))
    }

    /// Removes the cgroups. Blocks until their processes have ended. A cgroup that cannot be removed is found by the
    /// node's next agent.
    pub fn remove(&self) -> io::Result<()> {
        self.all().try_for_each(Cgroup::remove)
    }

    fn all(&self) -> impl Iterator<Item = &Cgroup> {
        [&self.memory, &self.cpu, &self.pids].into_iter().filter_map(|cgroup| cgroup.as_ref().ok())
    }
}

impl AppliedLimits {
    /// CPUs that the job's programs are pinned to; empty means all.
    pub fn pinned_cpus(&self) -> Vec<u16> {
        self.claim.as_ref().map(|claim| claim.numbers.clone()).unwrap_or_default()
    }
}

/// Message for a job that reached its limit on processes.
pub fn out_of_processes(max: u64) -> String {
    format!(
        "the job may have {max} processes and threads on this node, and the kernel refused to start more: start fewer (data loader \
         workers, OMP_NUM_THREADS), choose a larger vmSize for the cluster, or have --max-processes of the server raised"
    )
}

/// Limit on the processes and threads of a job on a node: the operator's, else a number that correct programs do not
/// reach, and at most half of what the kernel (`kernel`) allows, so that others can still fork.
pub fn max_processes(limits: &Limits, kernel: u64) -> u64 {
    let by_size = 4096 + 1024 * u64::from(limits.cores);
    limits.processes.unwrap_or_else(|| by_size.min(kernel / 2)).max(1)
}

/// The kernel's system-wide limit on processes and threads. Read once.
pub fn kernel_max_processes() -> u64 {
    static MAX: LazyLock<u64> = LazyLock::new(read_kernel_processes);
    *MAX
}

fn read_kernel_processes() -> u64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok();
    let known: [Option<u64>; 2] = [read("pid_max"), read("threads-max")];
    known.into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// Extra processes for the fork server, idle guards and the guards of a job's processes.
const GUARD_ALLOWANCE: u64 = 64;

/// Describes the CPU limit: whether a quota is set, and which CPUs the programs are pinned to.
fn describe_cpu_limit(set: &Result<(), String>, bound: Result<&[u16], &String>, cores: u32, limits: &Limits) -> String {
    let size = format!("as {} has", limits.vm_size);
    let list = |numbers: &[u16]| numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match (set, bound) {
        (Ok(()), Ok(numbers)) => format!("at most {cores}, {size}: number {}", list(numbers)),
        (Ok(()), Err(_)) => format!("at most the time of {cores}, {size}, on any of the machine's"),
        (Err(why), Ok(numbers)) => {
            format!("{cores}, {size}: number {}, unless a program pins itself to others, as {why}", list(numbers))
        }
        (Err(why), Err(not_bound)) => format!("NO limit: {why}; not pinned, as {not_bound}"),
    }
}

/// Kills every process in the cgroups of a node whose agent is dead and returns the ids. Blocks until none is left or
/// the rest cannot be killed.
pub fn kill_processes(node: &str) -> Vec<u32> {
    let mut cgroups: Vec<PathBuf> =
        CONTROLLERS.into_iter().filter_map(|controller| cgroup::path(&cgroup_name(node), controller)).collect();
    cgroups.dedup();
    let mut killed: Vec<u32> = cgroups.iter().flat_map(|cgroup| kill_cgroup(cgroup)).collect();
    killed.sort_unstable();
    killed.dedup();
    killed
}

/// Removes the cgroups of a node whose agent is dead. No error if there are none. Blocks like [`Cgroups::remove`].
pub fn remove(root: &Path) -> io::Result<()> {
    remove_named(&tmp_dir::dir_name(root))
}

/// Like [`remove`], by the node's short name.
pub fn remove_named(node: &str) -> io::Result<()> {
    CONTROLLERS.into_iter().try_for_each(|controller| cgroup::remove(&cgroup_name(node), controller))
}

/// Probes each controller: creates a cgroup, sets a limit and removes it. Returns the controller's name and why it
/// cannot be used.
pub fn probe_controllers() -> Vec<(&'static str, Result<(), String>)> {
    let name = cgroup_name(&format!("trial-{}", std::process::id()));
    let tried = CONTROLLERS.map(|controller| {
        let limited = Cgroup::make(&name, controller).and_then(|cgroup| cgroup.set(Some(PROBE_LIMIT)));
        (controller.name(), limited)
    });
    CONTROLLERS.into_iter().for_each(|controller| drop(cgroup::remove(&name, controller)));
    tried.into()
}

/// A value that every controller accepts, in bytes, CPUs or processes.
const PROBE_LIMIT: u64 = 4096;

fn cgroup_name(node: &str) -> String {
    format!("corro-{node}")
}

fn gib(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(1 << 30) * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests;
