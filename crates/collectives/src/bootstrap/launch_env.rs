//! Reads from the environment which rank of which job this process is, and how the ranks find each other. Supports `corro run`, Horovod's
//! launchers, `torchrun`, Open MPI, MPICH and Slurm. Pure except for [`Launch::from_environment`]; never uses the network.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::launchers;
use super::rank_info::{RankInfo, UNKNOWN_HOST};
use super::rendezvous_method::RendezvousMethod;
use super::variables::{LaunchError, Variables};
use crate::auth::Secret;

/// The parameters that a launcher passes to a rank in environment variables.
#[derive(Clone, Debug)]
pub struct Launch {
    pub rank_info: RankInfo,
    pub rendezvous: RendezvousMethod,
    /// The job's secret from `CORRO_JOB_SECRET`, with which ranks authenticate each other.
    pub secret: Option<Secret>,
    /// Network interfaces for traffic between ranks, separated by commas, best first. `None`: any.
    pub interface: Option<String>,
    /// Ports on which this rank may listen, from `CORRO_PORTS`. `None`: any.
    pub ports: Option<RangeInclusive<u16>>,
    /// Time limit for connecting, and for every wait on a peer.
    pub timeout: Duration,
}

impl Launch {
    /// Reads the environment of this process. Without variables of any launcher the job has one rank.
    ///
    /// # Errors
    /// When variables are missing, unreadable or contradict each other.
    pub fn from_environment() -> Result<Launch, LaunchError> {
        // A value that is not UTF-8 fails to parse later, and the error names its variable.
        let read = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let mut launch = Launch::from_variables(read)?;
        if launch.rank_info.hostname == UNKNOWN_HOST
            && let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname")
        {
            launch.rank_info.hostname = name.trim().to_owned();
        }
        Ok(launch)
    }

    /// Tries the launchers in turn. Horovod's variables win, because they are meant for this library and other launchers' may be
    /// set beside them. Then torchrun's, which its user may have started under any of the others. `mpirun` comes before `srun`,
    /// since it starts its daemons through Slurm and the ranks inherit the Slurm variables of those daemons.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Launch, LaunchError> {
        let variables = Variables::new(&read);
        let detected = [
            launchers::horovod,
            launchers::torchrun,
            launchers::open_mpi,
            launchers::hydra,
            launchers::slurm,
            launchers::bare_pmi,
        ]
        .into_iter()
        .find_map(|launcher| launcher(&variables).transpose());
        let (rank_info, rendezvous) =
            detected.unwrap_or_else(|| Ok((RankInfo::single(), RendezvousMethod::SingleProcess)))?;
        Ok(Launch {
            rendezvous: if rank_info.size == 1 { RendezvousMethod::SingleProcess } else { rendezvous },
            rank_info: rank_info.complete_if_single(),
            secret: variables.secret()?,
            interface: variables.text("HOROVOD_GLOO_IFACE"),
            ports: variables.ports()?,
            timeout: variables.timeout()?,
        })
    }
}
