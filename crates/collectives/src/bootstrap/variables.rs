//! Typed access to environment variables of launchers. Every error names the variable, its value and the fix.

use std::ops::RangeInclusive;
use std::time::Duration;

use thiserror::Error;

use crate::auth::Secret;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum LaunchError {
    #[error("{variable} is `{value}`, which is not a whole number: set it to one, or unset it")]
    NotANumber { variable: String, value: String },
    #[error("{present} is set but {missing} is not: set both, or neither to run a single process")]
    HalfSet { present: String, missing: String },
    #[error("{variable} is {rank}, but {size_variable} is {size}: ranks count from 0 to {size_variable} - 1")]
    RankBeyondSize { variable: String, rank: usize, size_variable: String, size: usize },
    #[error("{variable} is 0: set it to the number of processes")]
    NoRanks { variable: String },
    #[error(
        "HOROVOD_SIZE is {size}, but HOROVOD_GLOO_RENDEZVOUS_ADDR is not set: set it and HOROVOD_GLOO_RENDEZVOUS_PORT to \
         the launcher's key-value server"
    )]
    NoRendezvous { size: usize },
    #[error("HOROVOD_GLOO_RENDEZVOUS_PORT is `{value}`: set it to the port of the launcher's key-value server")]
    BadPort { value: String },
    #[error(
        "{launcher} started {size} ranks on several hosts and does not say on which rank 0 runs: set MASTER_ADDR to that host"
    )]
    NoMaster { launcher: &'static str, size: usize },
    #[error("{variable} is `{value}`, which is not a list of hosts as Slurm writes it, such as n[1-3,7],m2")]
    BadHostList { variable: &'static str, value: String },
    #[error("{variable} is `{value}`, which is not a list of counts as Slurm writes it, such as 2(x3),1")]
    BadCounts { variable: &'static str, value: String },
    #[error("HOROVOD_GLOO_TIMEOUT_SECONDS is `{value}`: set it to a number of seconds above 0")]
    BadTimeout { value: String },
    #[error("CORRO_PORTS is `{value}`: set it to the first and the last port, such as 20000-20100")]
    BadPorts { value: String },
    #[error("CORRO_ELASTIC_PROCESS is `{value}`: elastic launchers set it to the number of the process, from 1")]
    BadProcess { value: String },
    #[error(
        "CORRO_ELASTIC_PROCESS is set, but HOROVOD_GLOO_RENDEZVOUS_ADDR is not: set it and HOROVOD_GLOO_RENDEZVOUS_PORT to \
         the elastic launcher's server"
    )]
    NoDriver,
    #[error("CORRO_JOB_SECRET is empty: unset it, or pass the same secret to every rank of the job")]
    EmptySecret,
}

/// The environment, through a function that reads one variable.
pub struct Variables<'a> {
    read: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Variables<'a> {
    pub fn new(read: &'a dyn Fn(&str) -> Option<String>) -> Variables<'a> {
        Variables { read }
    }

    /// The value; `None` when unset or empty, because wrapper scripts of launchers set empty variables.
    pub fn text(&self, name: &str) -> Option<String> {
        (self.read)(name).filter(|value| !value.trim().is_empty())
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.text(name).is_some()
    }

    pub fn number(&self, name: &str) -> Result<Option<usize>, LaunchError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let number = value.trim().parse();
        number.map(Some).map_err(|_| LaunchError::NotANumber { variable: name.to_owned(), value })
    }

    /// A rank and the number of ranks. It is an error if only one of the variables is set.
    pub fn pair(&self, rank_name: &str, size_name: &str) -> Result<Option<(usize, usize)>, LaunchError> {
        let half = |present: &str, missing: &str| {
            Err(LaunchError::HalfSet { present: present.to_owned(), missing: missing.to_owned() })
        };
        match (self.number(rank_name)?, self.number(size_name)?) {
            (None, None) => Ok(None),
            (Some(_), None) => half(rank_name, size_name),
            (None, Some(_)) => half(size_name, rank_name),
            (Some(_), Some(0)) => Err(LaunchError::NoRanks { variable: size_name.to_owned() }),
            (Some(rank), Some(size)) if rank >= size => Err(LaunchError::RankBeyondSize {
                variable: rank_name.to_owned(),
                rank,
                size_variable: size_name.to_owned(),
                size,
            }),
            (Some(rank), Some(size)) => Ok(Some((rank, size))),
        }
    }

    /// The port of the launcher's key-value server.
    pub fn rendezvous_port(&self) -> Result<u16, LaunchError> {
        let port = self.text("HOROVOD_GLOO_RENDEZVOUS_PORT").unwrap_or_default();
        port.trim().parse().ok().filter(|port| *port != 0).ok_or(LaunchError::BadPort { value: port })
    }

    pub fn secret(&self) -> Result<Option<Secret>, LaunchError> {
        match (self.read)("CORRO_JOB_SECRET") {
            None => Ok(None),
            // An error instead of no secret: the user meant to protect the job.
            Some(secret) if secret.is_empty() => Err(LaunchError::EmptySecret),
            Some(secret) => Ok(Some(Secret::new(secret))),
        }
    }

    /// Parses `20000-20100`, both ends included.
    pub fn ports(&self) -> Result<Option<RangeInclusive<u16>>, LaunchError> {
        let Some(value) = self.text("CORRO_PORTS") else { return Ok(None) };
        let ends =
            value.trim().split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let ends = ends.filter(|(first, last)| 0 < *first && first <= last);
        ends.map(|(first, last)| Some(first..=last)).ok_or(LaunchError::BadPorts { value })
    }

    pub fn timeout(&self) -> Result<Duration, LaunchError> {
        let Some(value) = self.text("HOROVOD_GLOO_TIMEOUT_SECONDS") else { return Ok(Duration::from_secs(30)) };
        let seconds = value.trim().parse().ok().filter(|seconds: &f64| *seconds > 0.0);
        let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.min(MAX_SECONDS)).ok());
        timeout.ok_or(LaunchError::BadTimeout { value })
    }
}

/// One year. Adding it to a clock reading does not overflow.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;
