//! One detector per launcher: reads rank and rendezvous from its variables, or returns `None` when this launcher did not start the process. Pure.

use super::rank_info::RankInfo;
use super::rendezvous_method::{Rank0Host, Rank0Rendezvous, RendezvousMethod};
use super::slurm_lists as lists;
use super::variables::{LaunchError, Variables};

type DetectResult = Result<Option<(RankInfo, RendezvousMethod)>, LaunchError>;

/// `corro run`, the node agent, `horovodrun`: all ranks are set, and there is a key-value server.
pub fn horovod(variables: &Variables) -> DetectResult {
    let Some((rank, size)) = variables.pair("HOROVOD_RANK", "HOROVOD_SIZE")? else { return Ok(None) };
    let mut rank_info = RankInfo::new(rank, size);
    set_local(&mut rank_info, variables.pair("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")?);
    if let Some(cross) = variables.pair("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")? {
        (rank_info.cross_rank, rank_info.cross_size) = cross;
        rank_info.cross_known = true;
    }
    set_hostname(&mut rank_info, variables.text("HOROVOD_HOSTNAME"));
    let Some(addr) = variables.text("HOROVOD_GLOO_RENDEZVOUS_ADDR") else {
        return if size == 1 {
            Ok(Some((rank_info, RendezvousMethod::SingleProcess)))
        } else {
            Err(LaunchError::NoRendezvous { size })
        };
    };
    let port = variables.rendezvous_port()?;
    Ok(Some((rank_info, RendezvousMethod::KeyValue { addr, port })))
}

pub fn torchrun(variables: &Variables) -> DetectResult {
    let Some((rank, size)) = variables.pair("RANK", "WORLD_SIZE")? else { return Ok(None) };
    let mut rank_info = RankInfo::new(rank, size);
    set_local(&mut rank_info, variables.pair("LOCAL_RANK", "LOCAL_WORLD_SIZE")?);
    let variable_names = ["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"];
    // `torchrun` without a rendezvous id sets "none".
    let has_unique_id = variables.text("TORCHELASTIC_RUN_ID").is_some_and(|id| id.trim() != "none");
    let job_id =
        JobId { text: job_id_text(variables, "torchrun", &variable_names), launcher_socket: None, has_unique_id };
    at_rank0("torchrun", variables, rank_info, job_id, Rank0Host::Candidates(Vec::new()))
}

pub fn open_mpi(variables: &Variables) -> DetectResult {
    let Some((rank, size)) = variables.pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else { return Ok(None) };
    let mut rank_info = RankInfo::new(rank, size);
    set_local(&mut rank_info, variables.pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")?);
    let uri = ["OMPI_MCA_orte_hnp_uri", "PMIX_SERVER_URI2", "PMIX_SERVER_URI"];
    let addresses =
        uri.into_iter().find_map(|name| variables.text(name)).map(|uri| uri_addresses(&uri)).unwrap_or_default();
    // Only variables with the same value on every host; PMIX_SERVER_URI names the daemon of the host.
    let variable_names = ["OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE"];
    let has_unique_id = variable_names.iter().any(|name| variables.is_set(name));
    let job_id =
        JobId { text: job_id_text(variables, "open mpi", &variable_names), launcher_socket: None, has_unique_id };
    at_rank0("mpirun", variables, rank_info, job_id, Rank0Host::Candidates(addresses))
}

/// MPICH's and Intel's `mpirun`. They do not name jobs, but ranks inherit a socket to their proxy process.
pub fn hydra(variables: &Variables) -> DetectResult {
    if variables.is_set("MPI_LOCALRANKID") || variables.is_set("MPI_LOCALNRANKS") {
        bare_pmi(variables)
    } else {
        Ok(None)
    }
}

/// Any launcher that uses PMI. Tried last, because `srun --mpi=pmi2` sets these variables too.
pub fn bare_pmi(variables: &Variables) -> DetectResult {
    let Some((rank, size)) = variables.pair("PMI_RANK", "PMI_SIZE")? else { return Ok(None) };
    let mut rank_info = RankInfo::new(rank, size);
    set_local(&mut rank_info, variables.pair("MPI_LOCALRANKID", "MPI_LOCALNRANKS")?);
    let launcher_socket = variables.number("PMI_FD")?.and_then(|descriptor| i32::try_from(descriptor).ok());
    let text = job_id_text(variables, "pmi", &["PMI_JOBID", "MASTER_ADDR", "MASTER_PORT"]);
    let job_id =
        JobId { text, launcher_socket, has_unique_id: launcher_socket.is_some() || variables.is_set("PMI_JOBID") };
    at_rank0("mpirun", variables, rank_info, job_id, Rank0Host::Candidates(Vec::new()))
}

/// A step of `srun`. A batch script or an interactive shell has most of the same variables, but is not a rank.
pub fn slurm(variables: &Variables) -> DetectResult {
    let Some(step) = variables.number("SLURM_STEP_ID")? else { return Ok(None) };
    if step >= FIRST_SPECIAL_STEP || !variables.is_set("SLURM_PROCID") {
        return Ok(None);
    }
    let of_step = |step: &'static str, job: &'static str| if variables.is_set(step) { step } else { job };
    let n_tasks = of_step("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
    let Some((rank, size)) = variables.pair("SLURM_PROCID", n_tasks)? else { return Ok(None) };
    let list_name = of_step("SLURM_STEP_NODELIST", "SLURM_NODELIST");
    let hosts = match variables.text(list_name) {
        Some(list) => lists::hosts(&list).ok_or(LaunchError::BadHostList { variable: list_name, value: list })?,
        None => Vec::new(),
    };
    let mut rank_info = RankInfo::new(rank, size);
    let node_idx = variables.number("SLURM_NODEID")?;
    set_hostname(&mut rank_info, variables.text("SLURMD_NODENAME").or_else(|| hosts.get(node_idx?).cloned()));
    if let (Some(local_rank), Some(node_idx), Some(counts)) =
        (variables.number("SLURM_LOCALID")?, node_idx, tasks_per_node(variables, hosts.len())?)
        && counts.get(node_idx).is_some_and(|count| local_rank < *count)
    {
        let with_this_rank = |counts: &[usize]| counts.iter().filter(|count| **count > local_rank).count();
        set_local(&mut rank_info, Some((local_rank, counts[node_idx])));
        (rank_info.cross_rank, rank_info.cross_size) = (with_this_rank(&counts[..node_idx]), with_this_rank(&counts));
        rank_info.cross_known = true;
    }
    let text = job_id_text(variables, "slurm", &["SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID"]);
    let job_id = JobId { text, launcher_socket: None, has_unique_id: variables.is_set("SLURM_JOB_ID") };
    let host = match hosts.as_slice() {
        [_] => Rank0Host::SameHost,
        // With a host list of the user's, rank 0 is on its first host, but Slurm sets the list sorted.
        _ if rank != 0 && variables.text("SLURM_DISTRIBUTION").is_some_and(|how| how.starts_with("arbitrary")) => {
            Rank0Host::Candidates(hosts)
        }
        [first, ..] => Rank0Host::Address(first.clone()),
        [] => Rank0Host::Candidates(Vec::new()),
    };
    at_rank0("srun", variables, rank_info, job_id, host)
}

/// Step numbers from here on are Slurm's for the batch script, an interactive shell and the like.
const FIRST_SPECIAL_STEP: usize = 0xffff_fff0;

fn tasks_per_node(variables: &Variables, n_nodes: usize) -> Result<Option<Vec<usize>>, LaunchError> {
    for variable in ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"] {
        if let Some(value) = variables.text(variable) {
            return lists::counts(&value).map(Some).ok_or(LaunchError::BadCounts { variable, value });
        }
    }
    Ok(variables.number("SLURM_NTASKS_PER_NODE")?.map(|n_tasks| vec![n_tasks; n_nodes]))
}

/// A rendezvous at rank 0. The user's MASTER_ADDR takes precedence over `guess`, which is derived from the launcher's variables.
fn at_rank0(
    launcher: &'static str,
    variables: &Variables,
    rank_info: RankInfo,
    job_id: JobId,
    guess: Rank0Host,
) -> DetectResult {
    let on_one_host = rank_info.size == 1 || (rank_info.local_known && rank_info.local_size == rank_info.size);
    let host = match (variables.text("MASTER_ADDR"), guess) {
        _ if on_one_host => Rank0Host::SameHost,
        (Some(addr), _) => Rank0Host::Address(addr),
        (None, Rank0Host::Candidates(addresses)) if addresses.is_empty() => {
            return Err(LaunchError::NoMaster { launcher, size: rank_info.size });
        }
        (None, guess) => guess,
    };
    let JobId { text, launcher_socket, has_unique_id } = job_id;
    Ok(Some((
        rank_info,
        RendezvousMethod::Rank0(Rank0Rendezvous { job_id: text, host, launcher_socket, has_unique_id }),
    )))
}

/// Identification of a run, as far as its launcher gives one.
struct JobId {
    text: String,
    launcher_socket: Option<i32>,
    has_unique_id: bool,
}

fn job_id_text(variables: &Variables, launcher: &str, names: &[&str]) -> String {
    let values = names.iter().map(|name| format!("{name}={}", variables.text(name).unwrap_or_default()));
    std::iter::once(launcher.to_owned()).chain(values).collect::<Vec<_>>().join("\n")
}

/// The addresses in an Open MPI URI such as `jobid.0;tcp://10.0.0.1,172.17.0.1:41234;tcp6://[fd00::2]:49961`, without the ports.
fn uri_addresses(uri: &str) -> Vec<String> {
    let mut addresses = Vec::new();
    for part in uri.split(';') {
        let part = part
            .strip_prefix("tcp4://")
            .or_else(|| part.strip_prefix("tcp6://"))
            .or_else(|| part.strip_prefix("tcp://"));
        if let Some((list, _port)) = part.and_then(|part| part.rsplit_once(':')) {
            addresses.extend(list.split(',').map(|address| address.trim_matches(['[', ']']).to_owned()));
        }
    }
    addresses
}

fn set_local(rank_info: &mut RankInfo, local: Option<(usize, usize)>) {
    if let Some((rank, size)) = local {
        (rank_info.local_rank, rank_info.local_size, rank_info.local_known) = (rank, size, true);
    }
}

fn set_hostname(rank_info: &mut RankInfo, name: Option<String>) {
    if let Some(name) = name {
        rank_info.hostname = name;
    }
}

#[cfg(test)]
#[path = "launchers_tests.rs"]
mod tests;
