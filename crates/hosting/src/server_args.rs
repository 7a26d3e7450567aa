//! Options that `corro up` and `corro server` share, and their validation; `corro files` takes some of them too. Creates nothing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corro_server::http::rate_limit::Rates;
use corro_server::{Quotas, SchedulingConfig};

use crate::HostingError;
use crate::isolation::IsolationArgs;
use crate::listen::{ListenArgs, listen_address};
use crate::logging::LogArgs;
use crate::webhook_transport::WebhookArgs;

#[derive(clap::Args, Debug, Clone)]
pub struct EmbeddedServerArgs {
    /// Data directory. Created on the first start [default: ~/.corro/data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) listen: ListenArgs,

    /// Directory of Python wheels for job preparations: pip on every node finds them [default: wheels/ in the data directory]
    #[arg(long, value_name = "DIR")]
    wheels: Option<PathBuf>,

    /// Address on which file servers are exported over NFS, with an optional port, or 'off'. NFS has no login and no
    /// encryption: use addresses other than loopback only in a network that you trust
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    nfs: String,

    /// Ignore the containers of jobs, and run their commands directly on the nodes
    #[arg(long)]
    pub(crate) no_containers: bool,
    /// Replace the values of secrets with *** in the output of jobs and setup tasks. Values shorter than 8 bytes are not
    /// replaced
    #[arg(long, value_name = "yes|no", default_value = "yes", action = clap::ArgAction::Set, value_parser = parse_yes_no)]
    pub(crate) mask_secrets: bool,

    #[command(flatten)]
    pub(crate) rates: RateArgs,

    /// Seconds without a heartbeat after which a node is considered lost
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    lease: f64,
    /// Lifetime in seconds of mount tokens of nodes on other machines
    #[arg(long = "pass-life", value_name = "SECONDS", default_value_t = corro_server::MOUNT_TOKEN_LIFETIME.as_secs(), value_parser = clap::value_parser!(u64).range(3..=86_400), hide = true)]
    mount_token_lifetime_s: u64,
    /// Maximum number of clusters per location
    #[arg(long, default_value_t = Quotas::default().clusters, value_name = "N")]
    max_clusters: usize,
    /// Maximum number of cores of all nodes in a location. Dedicated clusters can use all of them and preempt low-priority
    /// nodes
    #[arg(long, default_value_t = Quotas::default().cores, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    max_cores: i64,
    /// Maximum number of cores of low-priority clusters in a location [default: the value of --max-cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    max_low_priority_cores: Option<i64>,
    /// Seconds after which a cluster with automatic scaling releases an idle node
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    scale_down_delay: f64,
    /// Seconds between SIGTERM and SIGKILL for the processes of a job that is preempted
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    preemption_grace: f64,
    /// Maximum number of processes and threads of a job on one node, as a protection against fork bombs [default: 4096, plus
    /// 1024 for each core of the VM size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..))]
    max_processes: Option<u64>,

    #[command(flatten)]
    pub(crate) webhooks: WebhookArgs,

    #[command(flatten)]
    pub isolation: IsolationArgs,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Limits of the request rate.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct RateArgs {
    /// Maximum number of requests per second for each principal, separately for reads and writes, and for each storage
    /// account
    #[arg(long, value_name = "N", default_value_t = Rates::DEFAULT.per_principal, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Maximum number of requests per second for each client address that is not logged in
    #[arg(long, value_name = "N", default_value_t = Rates::DEFAULT.per_address, value_parser = clap::value_parser!(u32).range(1..))]
    anonymous_rate: u32,
}

impl RateArgs {
    pub fn rates(self) -> Rates {
        Rates { per_principal: self.rate, per_address: self.anonymous_rate }
    }
}

impl EmbeddedServerArgs {
    /// Checks all values that clap cannot check.
    pub fn validate(&self) -> Result<(), HostingError> {
        listen_address(&self.listen)?;
        self.nfs_address()?;
        let (min, max) = (corro_server::MIN_LEASE.as_secs_f64(), 3600.0);
        if !(min..=max).contains(&self.lease) {
            return Err(HostingError::Lease { seconds: self.lease, min, max });
        }
        let durations = [
            ("--scale-down-delay", self.scale_down_delay, 86_400.0),
            ("--preemption-grace", self.preemption_grace, 3600.0),
        ];
        for (flag, seconds, max) in durations {
            if !(0.0..=max).contains(&seconds) {
                return Err(HostingError::Seconds { flag, seconds, max });
            }
        }
        Ok(())
    }

    /// Whether `--name` gives a name by which other machines know this one.
    pub fn has_name(&self) -> bool {
        self.listen.has_name()
    }

    /// Path of the data directory, which need not exist yet.
    pub fn data_path(&self) -> Result<PathBuf, HostingError> {
        match &self.data {
            Some(path) => Ok(path.clone()),
            None => Ok(corro_client::profile::config_dir()?.join("data")),
        }
    }

    /// Directory of the wheels for nodes. One that was given must exist.
    pub(crate) fn wheels_path(&self, data: &Path) -> Result<PathBuf, HostingError> {
        let Some(given) = &self.wheels else { return Ok(data.join("wheels")) };
        let directory = given.canonicalize().and_then(|path| match path.is_dir() {
            true => Ok(path),
            false => Err(std::io::ErrorKind::NotADirectory.into()),
        });
        directory.map_err(|error| HostingError::Wheels { path: given.clone(), error })
    }

    /// `None` for `--nfs off`. Port 0 stands for any free port.
    pub(crate) fn nfs_address(&self) -> Result<Option<SocketAddr>, HostingError> {
        let text = &self.nfs;
        if text == "off" {
            return Ok(None);
        }
        let address = text.parse::<std::net::SocketAddrV4>();
        let address = address.or_else(|_| text.parse().map(|ip| std::net::SocketAddrV4::new(ip, 0)));
        address.map(|address| Some(address.into())).map_err(|_| HostingError::NfsAddress { text: text.clone() })
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs_f64(self.lease)
    }

    pub(crate) fn mount_token_lifetime(&self) -> Duration {
        Duration::from_secs(self.mount_token_lifetime_s)
    }

    pub(crate) fn quotas(&self) -> Quotas {
        Quotas {
            clusters: self.max_clusters,
            cores: self.max_cores,
            low_priority_cores: self.max_low_priority_cores.unwrap_or(self.max_cores),
            ..Quotas::default()
        }
    }

    pub(crate) fn scheduling_config(&self) -> SchedulingConfig {
        let mut config = SchedulingConfig { cores: self.max_cores as u64, ..SchedulingConfig::DEFAULT };
        config.preemption_grace = Duration::from_secs_f64(self.preemption_grace);
        config.processes = self.max_processes;
        config.policy.idle_timeout = Duration::from_secs_f64(self.scale_down_delay);
        config
    }
}

fn parse_yes_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("use 'yes' or 'no'".to_owned()),
    }
}
