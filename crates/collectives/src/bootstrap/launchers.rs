//! What each launcher's variables say. Entered by [`super::place`], which knows the order to ask them in. Each answers `None`
//! when it did not start this process. Pure.

use super::place::{Host, Hosted, Meeting, Place};
use super::slurm as lists;
use super::variables::{LaunchError, Variables};

type Found = Result<Option<(Place, Meeting)>, LaunchError>;

/// `corro run`, the agent, `horovodrun`: everything is told, and there is a key-value server.
pub fn horovod(variables: &Variables) -> Found {
    let Some((rank, size)) = variables.pair("HOROVOD_RANK", "HOROVOD_SIZE")? else { return Ok(None) };
    let mut place = Place::of(rank, size);
    set_local(&mut place, variables.pair("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")?);
    if let Some(cross) = variables.pair("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")? {
        (place.cross_rank, place.cross_size) = cross;
        place.cross_known = true;
    }
    set_hostname(&mut place, variables.text("HOROVOD_HOSTNAME"));
    let Some(addr) = variables.text("HOROVOD_GLOO_RENDEZVOUS_ADDR") else {
        return if size == 1 { Ok(Some((place, Meeting::Alone))) } else { Err(LaunchError::NoRendezvous { size }) };
    };
    let port = variables.text("HOROVOD_GLOO_RENDEZVOUS_PORT").unwrap_or_default();
    let port = port.trim().parse().ok().filter(|port| *port != 0).ok_or(LaunchError::BadPort { value: port })?;
    Ok(Some((place, Meeting::KeyValue { addr, port })))
}

pub fn torchrun(variables: &Variables) -> Found {
    let Some((rank, size)) = variables.pair("RANK", "WORLD_SIZE")? else { return Ok(None) };
    let mut place = Place::of(rank, size);
    set_local(&mut place, variables.pair("LOCAL_RANK", "LOCAL_WORLD_SIZE")?);
    let identity = ["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"];
    // `torchrun` without a rendezvous id says "none".
    let names_run = variables.text("TORCHELASTIC_RUN_ID").is_some_and(|id| id.trim() != "none");
    let identity = Identity { text: identity_of(variables, "torchrun", &identity), kin: None, names_run };
    hosted("torchrun", variables, place, identity, Host::Perhaps(Vec::new()))
}

pub fn open_mpi(variables: &Variables) -> Found {
    let Some((rank, size)) = variables.pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else { return Ok(None) };
    let mut place = Place::of(rank, size);
    set_local(&mut place, variables.pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")?);
    let uri = ["OMPI_MCA_orte_hnp_uri", "PMIX_SERVER_URI2", "PMIX_SERVER_URI"];
    let addresses =
        uri.into_iter().find_map(|name| variables.text(name)).map(|uri| addresses(&uri)).unwrap_or_default();
    // Only what is the same on every host: PMIX_SERVER_URI, for one, is the host's own daemon.
    let identity = ["OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE"];
    let names_run = identity.iter().any(|name| variables.is_set(name));
    let identity = Identity { text: identity_of(variables, "open mpi", &identity), kin: None, names_run };
    hosted("mpirun", variables, place, identity, Host::Perhaps(addresses))
}

/// MPICH's and Intel's `mpirun`. They name no job, but leave a socket to their proxy process behind.
pub fn hydra(variables: &Variables) -> Found {
    if variables.is_set("MPI_LOCALRANKID") || variables.is_set("MPI_LOCALNRANKS") {
        bare_pmi(variables)
    } else {
        Ok(None)
    }
}

/// Any launcher that speaks PMI; also `srun --mpi=pmi2`, which is why it is asked last.
pub fn bare_pmi(variables: &Variables) -> Found {
    let Some((rank, size)) = variables.pair("PMI_RANK", "PMI_SIZE")? else { return Ok(None) };
    let mut place = Place::of(rank, size);
    set_local(&mut place, variables.pair("MPI_LOCALRANKID", "MPI_LOCALNRANKS")?);
    let kin = variables.number("PMI_FD")?.and_then(|descriptor| i32::try_from(descriptor).ok());
    let text = identity_of(variables, "pmi", &["PMI_JOBID", "MASTER_ADDR", "MASTER_PORT"]);
    let identity = Identity { text, kin, names_run: kin.is_some() || variables.is_set("PMI_JOBID") };
    hosted("mpirun", variables, place, identity, Host::Perhaps(Vec::new()))
}

/// A step of `srun`. A batch script or an interactive shell has most of the same variables, but is no rank.
pub fn slurm(variables: &Variables) -> Found {
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
    let mut place = Place::of(rank, size);
    let node_idx = variables.number("SLURM_NODEID")?;
    set_hostname(&mut place, variables.text("SLURMD_NODENAME").or_else(|| hosts.get(node_idx?).cloned()));
    if let (Some(local_rank), Some(node_idx), Some(counts)) =
        (variables.number("SLURM_LOCALID")?, node_idx, tasks_per_node(variables, hosts.len())?)
        && counts.get(node_idx).is_some_and(|count| local_rank < *count)
    {
        let with_this_rank = |counts: &[usize]| counts.iter().filter(|count| **count > local_rank).count();
        set_local(&mut place, Some((local_rank, counts[node_idx])));
        (place.cross_rank, place.cross_size) = (with_this_rank(&counts[..node_idx]), with_this_rank(&counts));
        place.cross_known = true;
    }
    let text = identity_of(variables, "slurm", &["SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID"]);
    let identity = Identity { text, kin: None, names_run: variables.is_set("SLURM_JOB_ID") };
    let host = match hosts.as_slice() {
        [_] => Host::Here,
        // By a list of the user's own: rank 0 is on its first host, but we are told them sorted.
        _ if rank != 0 && variables.text("SLURM_DISTRIBUTION").is_some_and(|how| how.starts_with("arbitrary")) => {
            Host::Perhaps(hosts)
        }
        [first, ..] => Host::At(first.clone()),
        [] => Host::Perhaps(Vec::new()),
    };
    hosted("srun", variables, place, identity, host)
}

/// Step numbers from here on stand for the batch script, an interactive shell and the like.
const FIRST_SPECIAL_STEP: usize = 0xffff_fff0;

fn tasks_per_node(variables: &Variables, n_nodes: usize) -> Result<Option<Vec<usize>>, LaunchError> {
    for variable in ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"] {
        if let Some(value) = variables.text(variable) {
            return lists::counts(&value).map(Some).ok_or(LaunchError::BadCounts { variable, value });
        }
    }
    Ok(variables.number("SLURM_NTASKS_PER_NODE")?.map(|n_tasks| vec![n_tasks; n_nodes]))
}

/// A meeting at rank 0. The user's MASTER_ADDR outranks what the launcher lets us guess.
fn hosted(launcher: &'static str, variables: &Variables, place: Place, identity: Identity, guess: Host) -> Found {
    let on_one_host = place.size == 1 || (place.local_known && place.local_size == place.size);
    let host = match (variables.text("MASTER_ADDR"), guess) {
        _ if on_one_host => Host::Here,
        (Some(addr), _) => Host::At(addr),
        (None, Host::Perhaps(addresses)) if addresses.is_empty() => {
            return Err(LaunchError::NoMaster { launcher, size: place.size });
        }
        (None, guess) => guess,
    };
    let Identity { text, kin, names_run } = identity;
    Ok(Some((place, Meeting::Hosted(Hosted { identity: text, host, kin, names_run }))))
}

/// What tells one run from others, as far as its launcher says.
struct Identity {
    text: String,
    kin: Option<i32>,
    names_run: bool,
}

fn identity_of(variables: &Variables, launcher: &str, names: &[&str]) -> String {
    let values = names.iter().map(|name| format!("{name}={}", variables.text(name).unwrap_or_default()));
    std::iter::once(launcher.to_owned()).chain(values).collect::<Vec<_>>().join("\n")
}

/// Of `jobid.0;tcp://10.0.0.1,172.17.0.1:41234;tcp6://[fd00::2]:49961`, without the ports.
fn addresses(uri: &str) -> Vec<String> {
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

fn set_local(place: &mut Place, local: Option<(usize, usize)>) {
    if let Some((rank, size)) = local {
        (place.local_rank, place.local_size, place.local_known) = (rank, size, true);
    }
}

fn set_hostname(place: &mut Place, name: Option<String>) {
    if let Some(name) = name {
        place.hostname = name;
    }
}

#[cfg(test)]
#[path = "launchers_tests.rs"]
mod tests;
