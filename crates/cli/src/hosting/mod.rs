//! Running the server inside this program: what `corro up` and `corro server` share. Takes the data directory, starts the
//! server, tells clients on this machine how to find it, waits for the end.

pub mod address;
pub mod data_dir;
pub mod providers;
mod traces;
pub mod way_back;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corro_agent::incarnation::{self, Validity};
use corro_client::Profile;
use corro_model::Secret;
use corro_server::http::rate_limit::Rates;
use corro_server::tls::Tls;
use corro_server::{AdminCredential, Provider, Quotas, SchedulingConfig, Server, ServerAddress, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::agent::{IsolationArg, IsolationArgs};
use crate::failure::Failure;
use crate::logging::LogArgs;
use address::{AddressArgs, check_way_in, listen_address, local_url, open_tls, public_url};
use data_dir::DataDir;
use providers::joined::JoinedNodes;
use providers::kubernetes;
use providers::local::{self, Apart, LocalNodes};
use providers::slurm::{SlurmNodes, WayIn, Wishes};

pub use address::DEFAULT_LISTEN;

/// What the two commands let the user choose.
#[derive(clap::Args, Debug, Clone)]
pub struct HostingArgs {
    /// Where everything is kept; made on the first start [default: data/ in the configuration directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    #[command(flatten)]
    address: AddressArgs,

    /// A directory of Python wheels that `pip` finds on every node, in job preparation [default: wheels/ in the data directory]
    #[arg(long, value_name = "DIR")]
    wheels: Option<PathBuf>,

    /// Address on which file servers are exported over NFS, with or without a port, or 'off'. NFS knows no login and no
    /// encryption: open it to other machines only in a network that you trust
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    nfs: String,

    /// Run jobs that ask for a container directly on this machine instead
    #[arg(long)]
    no_containers: bool,
    /// Blank the values of secrets (8 bytes or more) in what jobs and setup tasks write; the retired service did not
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = yes_or_no)]
    mask_secrets: bool,

    /// Requests a second that one principal may make, reads and writes each, and that one storage account is asked
    #[arg(long, value_name = "N", default_value_t = Rates::DEFAULT.per_principal, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Requests a second that one address may make without a login
    #[arg(long, value_name = "N", default_value_t = Rates::DEFAULT.per_address, value_parser = clap::value_parser!(u32).range(1..))]
    anonymous_rate: u32,

    /// Seconds of silence after which a node counts as lost
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    lease: f64,
    /// Seconds for which nodes on other machines are admitted to a volume at a time
    #[arg(long, value_name = "SECONDS", default_value_t = corro_server::MOUNT_TOKEN_LIFETIME.as_secs(), value_parser = clap::value_parser!(u64).range(3..=86_400), hide = true)]
    pass_life: u64,
    /// Clusters that one region may have
    #[arg(long, default_value_t = Quotas::default().clusters, value_name = "N")]
    max_clusters: usize,
    /// Cores that the nodes of one region may have together; dedicated clusters may be made for so many, and take back
    /// from low-priority ones what they lack
    #[arg(long, default_value_t = Quotas::default().cores, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    max_cores: i64,
    /// Cores that low-priority clusters of one region may be made for [default: as --max-cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    max_low_priority_cores: Option<i64>,
    /// Seconds after which an idle node that nobody needs leaves a cluster with autoScale
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    scale_down_delay: f64,
    /// Seconds between the warning (SIGTERM) and the end (SIGKILL) of a job's processes when a low-priority node is preempted
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    preemption_grace: f64,
    /// Processes and threads that a job may have on one node, so that one that starts them without end harms no other
    /// [default: 4096, and 1024 more for each core of the VM size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..))]
    max_processes: Option<u64>,

    #[command(flatten)]
    pub isolation: IsolationArgs,

    #[command(flatten)]
    pub log: LogArgs,
}

impl HostingArgs {
    /// Whether there is a name by which other machines know this one.
    pub fn has_name(&self) -> bool {
        self.address.has_name()
    }
}

/// Who makes nodes.
pub enum Nodes {
    /// Processes on this machine.
    Local,
    /// Whoever joins with this token.
    Joining(Secret),
    /// Slurm, asked in this way.
    Slurm(Wishes),
    /// Pods of this cluster.
    Kubernetes(Box<kubernetes::Prepared>),
}

/// A server that runs in this process, and what belongs to it.
pub struct Hosted {
    pub server: Server,
    pub data: DataDir,
    pub access: Access,
    /// Who vouches for the server's certificate, when it serves TLS.
    pub vouched: Option<Vouched>,
    public_url: String,
}

/// What somebody on another machine needs to believe the server.
pub struct Vouched {
    pub file: PathBuf,
    pub fingerprint: String,
}

impl fmt::Display for Vouched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  trust    {} (SHA-256 {})", self.file.display(), self.fingerprint)
    }
}

/// How commands on this machine get to the server.
pub enum Access {
    /// By themselves, through this profile.
    Default { profile: PathBuf },
    /// Only when told to use this profile, as the usual one leads to another server.
    OnRequest { profile: PathBuf, other: String },
}

impl Hosted {
    /// The lines that every start shows.
    pub fn describe(&self) -> String {
        let data = self.data.path().display();
        let vouched = self.vouched.as_ref().map_or_else(String::new, |vouched| format!("\n{vouched}"));
        match &self.access {
            Access::Default { profile } => {
                format!(
                    "  data     {data}\n  profile  {} (commands on this machine use it){vouched}",
                    profile.display()
                )
            }
            Access::OnRequest { profile, other } => format!(
                "  data     {data}\n  profile  {}{vouched}\n\nCommands on this machine go on using {other}. To use this server: export CORRO_CONFIG_DIR={data}",
                profile.display()
            ),
        }
    }

    /// How others reach the server.
    pub fn url(&self) -> &str {
        &self.public_url
    }
}

/// The operator's choice holds whoever uses the server; one that is weaker than what they would have had is a warning.
fn log_isolation(chosen: Option<IsolationArg>, several: bool) {
    match chosen.map(IsolationArg::word) {
        Some(mode @ ("off" | "auto")) if several => {
            tracing::warn!(
                mode,
                "jobs are isolated as --isolation says, though the server has more than one principal"
            );
        }
        Some(mode) => tracing::info!(mode, "jobs are isolated as --isolation says, however many principals there are"),
        None => {}
    }
}

/// Where the data directory of `args` lies.
pub fn data_path(args: &HostingArgs) -> Result<PathBuf, Failure> {
    match &args.data {
        Some(path) => Ok(path.clone()),
        None => Ok(corro_client::profile::config_dir()?.join("data")),
    }
}

/// Where the wheels for nodes lie. One that was named must be there.
fn wheels_path(args: &HostingArgs, data: &Path) -> Result<PathBuf, Failure> {
    let Some(named) = &args.wheels else { return Ok(data.join("wheels")) };
    let directory = named.canonicalize().and_then(|path| match path.is_dir() {
        true => Ok(path),
        false => Err(std::io::ErrorKind::NotADirectory.into()),
    });
    directory.map_err(|error| {
        Failure::usage(format!("--wheels {}: {error}", named.display()))
            .hint("name the directory that scripts/wheel wrote, or leave it out")
    })
}

fn nfs_address(text: &str) -> Result<Option<SocketAddr>, Failure> {
    let wrong = || {
        Failure::usage(format!("--nfs {text}: it is not an address to serve NFS on"))
            .hint("write it as 10.0.0.4 or 10.0.0.4:2049, or 'off'")
    };
    if text == "off" {
        return Ok(None);
    }
    let address = text.parse::<std::net::SocketAddrV4>();
    let address = address.or_else(|_| text.parse().map(|ip| std::net::SocketAddrV4::new(ip, 0)));
    address.map(|address| Some(address.into())).map_err(|_| wrong())
}

/// Refuses what cannot work before anything is made.
pub fn check(args: &HostingArgs) -> Result<(), Failure> {
    listen_address(&args.address)?;
    nfs_address(&args.nfs)?;
    let least = corro_server::MIN_LEASE.as_secs_f64();
    if !(least..=3600.0).contains(&args.lease) {
        return Err(Failure::usage(format!("--lease is {}: use {least} to 3600 seconds", args.lease)));
    }
    let spans = [
        ("--scale-down-delay", args.scale_down_delay, 86_400.0),
        ("--preemption-grace", args.preemption_grace, 3600.0),
    ];
    for (flag, given, most) in spans {
        if !(0.0..=most).contains(&given) {
            return Err(Failure::usage(format!("{flag} is {given}: use 0 to {most} seconds")));
        }
    }
    Ok(())
}

pub async fn start(args: &HostingArgs, nodes: Nodes, data: DataDir) -> Result<Hosted, Failure> {
    if let Nodes::Slurm(_) = nodes {
        check_way_in(&args.address)?;
    }
    let listen = listen_address(&args.address)?;
    let tls = open_tls(&args.address, data.path())?;
    let config_dir = corro_client::profile::config_dir()?;
    let takes_hosts = matches!(nodes, Nodes::Joining(_));
    let open_join_token = match &nodes {
        Nodes::Joining(token) => Some(token.clone()),
        Nodes::Local | Nodes::Slurm(_) | Nodes::Kubernetes(_) => None,
    };
    let config = ServerConfig {
        data: data.path().to_owned(),
        listen,
        tls: tls.clone(),
        rates: Rates { per_principal: args.rate, per_address: args.anonymous_rate },
        lease: Duration::from_secs_f64(args.lease),
        mount_token_lifetime: Duration::from_secs(args.pass_life),
        containers_on_host: args.no_containers,
        masks_secrets: args.mask_secrets,
        strict_isolation: args.isolation.isolation.map(|mode| mode == IsolationArg::Strict),
        known_admin: known_admin(&[data.path(), config_dir.as_path()]),
        open_join_token,
        nfs: nfs_address(&args.nfs)?,
        wheels: wheels_path(args, data.path())?,
        quotas: Quotas {
            clusters: args.max_clusters,
            cores: args.max_cores,
            low_priority_cores: args.max_low_priority_cores.unwrap_or(args.max_cores),
            ..Quotas::default()
        },
        scheduling: scheduling(args),
        traces: traces::wanted(),
    };
    let log = args.log;
    let nodes_dir = data.path().join("nodes");
    let url_file = data.url_file();
    let incarnation = own_incarnation(data.path())?;
    let make_provider = |site: ServerAddress| -> Arc<dyn Provider> {
        match nodes {
            Nodes::Local => {
                let isolation = args.isolation.isolation;
                let url = local_url(site.address, tls.is_some());
                let ca = tls.as_ref().map(|tls| ["--ca".into(), tls.trusted_file.clone().into_os_string()]);
                let words = ca.into_iter().flatten().collect();
                // With the profile one could ask the server for everything, so no job sees it.
                let hidden = vec![data.path().to_owned(), config_dir.clone()];
                Arc::new(
                    LocalNodes::new(nodes_dir.clone(), url, url_file.clone(), words, Apart { isolation, hidden })
                        .writing(log)
                        .with_containers_on_host(args.no_containers),
                )
            }
            Nodes::Joining(_) => Arc::new(JoinedNodes),
            Nodes::Slurm(wishes) => {
                let url = public_url(&args.address, site.address, tls.is_some());
                let authority = tls.as_ref().map(|tls| tls.trusted.clone());
                let hidden = vec![data.path().to_owned(), config_dir.clone()];
                let instance = incarnation.as_deref().unwrap_or(&site.instance);
                Arc::new(SlurmNodes::new(wishes, WayIn { url, authority, hidden }, instance))
            }
            Nodes::Kubernetes(prepared) => Arc::new(prepared.begin(kubernetes::Home {
                instance: incarnation.unwrap_or(site.instance),
                // A pod runs one node, so it keeps jobs apart by itself, and most clusters allow no name spaces in it.
                isolation: args.isolation.isolation.unwrap_or(IsolationArg::Auto),
                url: public_url(&args.address, site.address, tls.is_some()),
                fingerprint: tls.as_ref().map(|tls| tls.fingerprint.clone()),
                landmark: std::fs::read_to_string(data.path().join(kubernetes::LANDMARK)).unwrap_or_default(),
                data: data.path().to_owned(),
            })),
        }
    };
    let server = Server::start(config, make_provider).await.map_err(|error| start_failure(listen, &error))?;
    log_isolation(args.isolation.isolation, server.has_several_principals());
    let profile = Profile {
        server: local_url(server.address, tls.is_some()),
        subscription: server.subscription.clone(),
        tenant: server.tenant.clone(),
        client_id: server.admin.client_id.clone(),
        client_secret: server.admin.client_secret.clone(),
        certificate_authority: tls.as_ref().map(|tls| tls.trusted.clone()),
    };
    match tell_clients(&profile, &config_dir, &data) {
        Ok(access) => {
            local::remove_strays(&data.path().join("nodes"), || server.nodes());
            let public_url = public_url(&args.address, server.address, tls.is_some());
            if takes_hosts {
                server.enable_host_join(&public_url, tls.as_ref().map(|tls| tls.fingerprint.as_str()));
            }
            Ok(Hosted { server, data, access, vouched: tls.map(vouched), public_url })
        }
        Err(failure) => {
            // A server that nobody can find must not leave nodes behind.
            let _ = server.stop_with_nodes().await;
            Err(failure)
        }
    }
}

/// What marks this server's nodes on other machines: a restored backup or a copy of the directory has the same identity as the server it
/// comes from, and must not take that one's nodes for its own. `None` for a server from before there were incarnations, whose nodes are marked
/// by its identity.
fn own_incarnation(data: &Path) -> Result<Option<String>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write down which directory {} is: {error}", data.display()))
            .hint("see whether the disk is full and the directory is yours")
    };
    if !incarnation::is_recorded(data) && data.join(corro_server::backup::DATABASE).exists() {
        incarnation::adopt(data, NO_INCARNATION).map_err(failed)?;
    }
    let incarnation = incarnation::ensure(data, Validity::Lasting).map_err(failed)?;
    Ok(Some(incarnation.id.to_string()).filter(|id| id != NO_INCARNATION))
}

/// Written down by a server that had nodes before.
const NO_INCARNATION: &str = "";

fn scheduling(args: &HostingArgs) -> SchedulingConfig {
    let mut rules = SchedulingConfig { cores: args.max_cores as u64, ..SchedulingConfig::DEFAULT };
    rules.preemption_grace = Duration::from_secs_f64(args.preemption_grace);
    rules.processes = args.max_processes;
    rules.policy.idle_before_leaving = Duration::from_secs_f64(args.scale_down_delay);
    rules
}

/// Writes down how commands on this machine and the nodes find the server. A profile that leads to another server that
/// answers is left alone: whoever works with that one must not find themselves elsewhere.
fn tell_clients(profile: &Profile, config_dir: &Path, data: &DataDir) -> Result<Access, Failure> {
    let other = Profile::load(config_dir).ok().map(|old| old.server);
    let other = other.filter(|old| !is_same_address(old, &profile.server));
    way_back::keep(profile, data.path())?;
    let access = match other.filter(|server| way_back::answers(server)) {
        Some(other) => Access::OnRequest { profile: profile.save(data.path())?, other },
        None => Access::Default { profile: profile.save(config_dir)? },
    };
    data.announce(&profile.server).map_err(|error| {
        let what = data.url_file();
        Failure::new(format!("cannot write {}: {error}", what.display()))
    })?;
    Ok(access)
}

/// Whether two URLs lead to the same port of this machine, with TLS or without: a server that was started again with `--tls` is no other one.
fn is_same_address(one: &str, other: &str) -> bool {
    let address = |url: &str| url.split_once("://").map(|(_, rest)| rest.trim_end_matches('/').to_owned());
    address(one) == address(other)
}

pub fn vouched(tls: Tls) -> Vouched {
    Vouched { file: tls.trusted_file, fingerprint: tls.fingerprint }
}

/// Returns when the user or the system asks for the end.
pub async fn stop_asked() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::of(&error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// The credential in the first profile there is; the server says whether it is still good.
fn known_admin(places: &[&Path]) -> Option<AdminCredential> {
    let profile = places.iter().find_map(|place| Profile::load(place).ok())?;
    Some(AdminCredential { client_id: profile.client_id, client_secret: profile.client_secret })
}

pub fn start_failure(listen: SocketAddr, error: &anyhow::Error) -> Failure {
    let failure = Failure::of(error.as_ref());
    let in_use = error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::AddrInUse));
    if in_use {
        return failure.hint(format!(
            "another program listens on {listen}; stop it, or choose another port with --listen {}:{}",
            listen.ip(),
            listen.port().wrapping_add(1).max(1024)
        ));
    }
    failure
}
fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("use 'yes' or 'no'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_started_again_with_tls_keeps_its_profile() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = DataDir::hold(&dir.path().join("data")).expect("held");
        corro_store::Vault::open(&data.path().join("master.key")).expect("a key");
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [ours, other] = listeners.each_ref().map(|listener| listener.local_addr().expect("bound"));
        let profile = |server: String| Profile {
            server,
            subscription: "s".into(),
            tenant: "t".into(),
            client_id: "c".into(),
            client_secret: Secret::new("hush"),
            certificate_authority: None,
        };
        let https = profile(format!("https://{ours}"));
        profile(format!("http://{ours}")).save(dir.path()).expect("saved");
        assert!(matches!(tell_clients(&https, dir.path(), &data), Ok(Access::Default { .. })));
        assert_eq!(Profile::read(dir.path()).expect("written").server, https.server);
        assert!(!is_same_address(&https.server, &format!("https://{other}")));
    }
}
