//! Identity of a process of an elastic job, from the environment. Pure except for [`ElasticProcess::from_environment`].

use crate::bootstrap::launch_env::Launch;
use crate::bootstrap::rank_info::RankInfo;
use crate::bootstrap::rendezvous_method::RendezvousMethod;
use crate::bootstrap::variables::{LaunchError, Variables};

/// A process of an elastic job. Does not hold connections; each request makes its own.
#[derive(Clone, Debug)]
pub struct ElasticProcess {
    /// From 1, never reused.
    pub process: u64,
    pub(super) addr: String,
    pub(super) port: u16,
    /// What is the same in all generations. Its rank information is that of a single process.
    pub(super) launch: Launch,
}

impl ElasticProcess {
    /// Reads the environment. `None` for a process that is not part of an elastic job of ours.
    ///
    /// # Errors
    /// When variables are missing or unreadable.
    pub fn from_environment() -> Result<Option<ElasticProcess>, LaunchError> {
        ElasticProcess::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// As [`ElasticProcess::from_environment`], with a function that reads one variable.
    ///
    /// # Errors
    /// When variables are missing or unreadable.
    pub fn from_variables(read: impl Fn(&str) -> Option<String>) -> Result<Option<ElasticProcess>, LaunchError> {
        let variables = Variables::new(&read);
        let Some(process) = variables.text("CORRO_ELASTIC_PROCESS") else { return Ok(None) };
        if variables.text("HOROVOD_ELASTIC").is_none_or(|value| value.trim() != "1") {
            return Ok(None);
        }
        let number = process.trim().parse().ok().filter(|process| *process > 0);
        let process = number.ok_or(LaunchError::BadProcess { value: process })?;
        let addr = variables.text("HOROVOD_GLOO_RENDEZVOUS_ADDR").ok_or(LaunchError::NoDriver)?;
        let port = variables.rendezvous_port()?;
        let mut rank_info = RankInfo::single();
        if let Some(name) = variables.text("HOROVOD_HOSTNAME") {
            rank_info.hostname = name;
        }
        let launch = Launch {
            rank_info,
            rendezvous: RendezvousMethod::SingleProcess,
            secret: variables.secret()?,
            interface: variables.text("HOROVOD_GLOO_IFACE"),
            ports: variables.ports()?,
            timeout: variables.timeout()?,
        };
        Ok(Some(ElasticProcess { process, addr, port, launch }))
    }

    /// Address of the driver, for messages.
    pub(super) fn server(&self) -> String {
        format!("{}:{}", self.addr, self.port)
    }
}
