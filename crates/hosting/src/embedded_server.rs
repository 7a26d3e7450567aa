//! Starts the server inside this process: opens TLS, builds the node provider, starts [`corro_server::Server`] and writes the
//! profile by which clients on this machine find it. `corro up` and `corro server` differ only in the [`NodeSource`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corro_agent::incarnation::{self, Validity};
use corro_client::Profile;
use corro_model::Secret;
use corro_server::tls::Tls;
use corro_server::{AdminCredential, Provider, Server, ServerAddress, ServerConfig};

use crate::HostingError;
use crate::data_dir::DataDir;
use crate::error::StartError;
use crate::isolation::IsolationArg;
use crate::listen::{check_reachable_by_agents, listen_address, local_url, open_tls, public_url};
use crate::local_admin_login;
use crate::providers::joined::JoinedNodes;
use crate::providers::kubernetes;
use crate::providers::local::{self, LocalNodes, LocalNodesConfig};
use crate::providers::slurm::{JoinInfo, SlurmNodes, SlurmOptions};
use crate::server_args::EmbeddedServerArgs;
use crate::server_record::ServerRecord;
use crate::trace_export;

/// The provider that makes the server's nodes, and its settings.
pub enum NodeSource {
    /// Agent processes on this machine.
    Local,
    /// Machines that join with this token.
    Joined(Secret),
    /// Slurm allocations.
    Slurm(SlurmOptions),
    /// Kubernetes pods.
    Kubernetes(Box<kubernetes::PreparedProvider>),
}

/// A server that runs in this process, with its data directory locked.
pub struct EmbeddedServer {
    pub server: Server,
    pub data: DataDir,
    pub profile_use: ProfileUse,
    /// `None` without TLS.
    pub tls_trust: Option<TlsTrust>,
    public_url: String,
}

/// The certificate authority of the server's certificate, as clients on other machines need it.
pub struct TlsTrust {
    pub ca_file: PathBuf,
    /// SHA-256.
    pub fingerprint: String,
}

impl From<Tls> for TlsTrust {
    fn from(tls: Tls) -> Self {
        Self { ca_file: tls.trusted_file, fingerprint: tls.fingerprint }
    }
}

/// One line of the summary that a start prints.
impl fmt::Display for TlsTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  trust    {} (SHA-256 {})", self.ca_file.display(), self.fingerprint)
    }
}

/// Whether commands on this machine use the new server by default.
pub enum ProfileUse {
    /// The user's profile names this server.
    Default { profile: PathBuf },
    /// The user's profile names another server that is up. The profile of this one lies in its data directory.
    OnRequest { profile: PathBuf, other: String },
}

impl EmbeddedServer {
    /// Starts a server on a data directory that the caller has locked. Nothing outlives a failed start.
    pub async fn start(
        args: &EmbeddedServerArgs,
        node_source: NodeSource,
        data: DataDir,
    ) -> Result<EmbeddedServer, HostingError> {
        if let NodeSource::Slurm(_) = node_source {
            check_reachable_by_agents(&args.listen)?;
        }
        let listen = listen_address(&args.listen)?;
        let tls = open_tls(&args.listen, data.path())?;
        let config_dir = corro_client::profile::config_dir()?;
        let open_join_token = match &node_source {
            NodeSource::Joined(token) => Some(token.clone()),
            NodeSource::Local | NodeSource::Slurm(_) | NodeSource::Kubernetes(_) => None,
        };
        let accepts_hosts = open_join_token.is_some();
        let config = ServerConfig {
            data: data.path().to_owned(),
            listen,
            tls: tls.clone(),
            rates: args.rates.rates(),
            lease: args.lease(),
            mount_token_lifetime: args.mount_token_lifetime(),
            containers_on_host: args.no_containers,
            masks_secrets: args.mask_secrets,
            strict_isolation: args.isolation.isolation.map(|mode| mode == IsolationArg::Strict),
            known_admin: load_admin_credential(&[data.path(), config_dir.as_path()]),
            open_join_token,
            nfs: args.nfs_address()?,
            wheels: args.wheels_path(data.path())?,
            quotas: args.quotas(),
            scheduling: args.scheduling_config(),
            traces: trace_export::exporter_from_env(),
            webhooks: args.webhooks.config(),
        };
        let incarnation = ensure_incarnation(data.path())?;
        let environment =
            ProviderEnvironment { args, data: &data, config_dir: &config_dir, tls: tls.as_ref(), incarnation };
        let server = Server::start(config, |address| environment.build_provider(node_source, address))
            .await
            .map_err(|error| HostingError::Start(StartError::new(listen, error)))?;
        log_isolation_override(args.isolation.isolation, server.has_several_principals());
        let profile = Profile {
            server: local_url(server.address, tls.is_some()),
            subscription: server.subscription.clone(),
            tenant: server.tenant.clone(),
            client_id: server.admin.client_id.clone(),
            client_secret: server.admin.client_secret.clone(),
            certificate_authority: tls.as_ref().map(|tls| tls.trusted.clone()),
            data_directory: data.path().to_str().map(str::to_owned),
        };
        match write_profiles(&profile, &config_dir, &data) {
            Ok(profile_use) => {
                local::remove_stray_directories(&data.path().join("nodes"), || server.nodes());
                let public_url = public_url(&args.listen, server.address, tls.is_some());
                if accepts_hosts {
                    server.enable_host_join(&public_url, tls.as_ref().map(|tls| tls.fingerprint.as_str()));
                }
                Ok(EmbeddedServer { server, data, profile_use, tls_trust: tls.map(TlsTrust::from), public_url })
            }
            Err(error) => {
                // No client could find this server, so its nodes must not go on.
                let _ = server.stop_with_nodes().await;
                Err(error)
            }
        }
    }

    /// Summary for the terminal: data directory, profile and certificate authority.
    pub fn describe(&self) -> String {
        let data = self.data.path().display();
        let trust = self.tls_trust.as_ref().map_or_else(String::new, |trust| format!("\n{trust}"));
        match &self.profile_use {
            ProfileUse::Default { profile } => {
                format!("  data     {data}\n  profile  {} (commands on this machine use it){trust}", profile.display())
            }
            ProfileUse::OnRequest { profile, other } => format!(
                "  data     {data}\n  profile  {}{trust}\n\nCommands on this machine go on using {other}. To use this server: export CORRO_CONFIG_DIR={data}",
                profile.display()
            ),
        }
    }

    /// Records in the data directory that this process serves it. Without the record the server is only described less, so an error is logged.
    pub fn write_record(&self, log: Option<&Path>) -> Option<ServerRecord> {
        let url = local_url(self.server.address, self.tls_trust.is_some());
        match ServerRecord::write_own(self.data.path(), &url, log) {
            Ok(record) => Some(record),
            Err(error) => {
                tracing::warn!(%error, "cannot write the server's record to its data directory");
                None
            }
        }
    }

    /// URL under which clients on other machines reach the server.
    pub fn public_url(&self) -> &str {
        &self.public_url
    }
}

/// Everything that providers are built from, apart from the address that the server got.
struct ProviderEnvironment<'a> {
    args: &'a EmbeddedServerArgs,
    data: &'a DataDir,
    config_dir: &'a Path,
    tls: Option<&'a Tls>,
    /// See [`ensure_incarnation`].
    incarnation: Option<String>,
}

impl ProviderEnvironment<'_> {
    fn build_provider(self, node_source: NodeSource, server: ServerAddress) -> Arc<dyn Provider> {
        let ProviderEnvironment { args, data, config_dir, tls, incarnation } = self;
        // The profile holds the administrator's login, so jobs see neither directory.
        let hidden_dirs = vec![data.path().to_owned(), config_dir.to_owned()];
        let public_url = public_url(&args.listen, server.address, tls.is_some());
        match node_source {
            NodeSource::Local => {
                let ca = tls.map(|tls| ["--ca".into(), tls.trusted_file.clone().into_os_string()]);
                Arc::new(LocalNodes::new(LocalNodesConfig {
                    nodes_dir: data.path().join("nodes"),
                    server_url: local_url(server.address, tls.is_some()),
                    server_url_file: data.url_file(),
                    extra_agent_args: ca.into_iter().flatten().collect(),
                    isolation: args.isolation.isolation,
                    hidden_dirs,
                    log: args.log,
                    containers_on_host: args.no_containers,
                    visible_gpus: None,
                }))
            }
            NodeSource::Joined(_) => Arc::new(JoinedNodes),
            NodeSource::Slurm(options) => {
                let join = JoinInfo { url: public_url, ca_pem: tls.map(|tls| tls.trusted.clone()), hidden_dirs };
                let instance = incarnation.as_deref().unwrap_or(&server.instance);
                Arc::new(SlurmNodes::new(options, join, instance))
            }
            NodeSource::Kubernetes(prepared) => {
                Arc::new(
                    prepared.start(kubernetes::ServerIdentity {
                        instance: incarnation.unwrap_or(server.instance),
                        // A pod runs one node and so isolates its jobs from others. Most clusters allow no user namespaces inside a pod.
                        isolation: args.isolation.isolation.unwrap_or(IsolationArg::Auto),
                        url: public_url,
                        ca_fingerprint: tls.map(|tls| tls.fingerprint.clone()),
                        shared_disk_probe: std::fs::read_to_string(
                            data.path().join(kubernetes::SHARED_DISK_PROBE_FILE),
                        )
                        .unwrap_or_default(),
                        data: data.path().to_owned(),
                    }),
                )
            }
        }
    }
}

/// The id that tags this server's nodes on other machines. A restored backup or a copy of the data directory has the same server identity
/// as its original, and must not treat the original's nodes as its own; an incarnation belongs to one directory only.
/// `None` for a data directory that is older than incarnations: its nodes are tagged with the server's identity.
fn ensure_incarnation(data: &Path) -> Result<Option<String>, HostingError> {
    let failed = |error| HostingError::Incarnation { path: data.to_owned(), error };
    if !incarnation::is_recorded(data) && data.join(corro_server::data_dir::DATABASE).exists() {
        incarnation::adopt(data, LEGACY_INCARNATION).map_err(failed)?;
    }
    let incarnation = incarnation::ensure(data, Validity::Lasting).map_err(failed)?;
    Ok(Some(incarnation.id.to_string()).filter(|id| id != LEGACY_INCARNATION))
}

/// Recorded for a data directory that had nodes before there were incarnations.
const LEGACY_INCARNATION: &str = "";

/// Writes the administrator's login, the profile and the URL file. A profile that names another server which is up stays as it is, so that
/// the commands of a user do not switch servers unasked.
fn write_profiles(profile: &Profile, config_dir: &Path, data: &DataDir) -> Result<ProfileUse, HostingError> {
    let other = Profile::load(config_dir).ok().map(|old| old.server);
    let other = other.filter(|old| !is_same_endpoint(old, &profile.server));
    local_admin_login::save(profile, data.path())?;
    let profile_use = match other.filter(|server| local_admin_login::is_listening(server)) {
        Some(other) => ProfileUse::OnRequest { profile: profile.save(data.path())?, other },
        None => ProfileUse::Default { profile: profile.save(config_dir)? },
    };
    data.write_url(&profile.server).map_err(|error| HostingError::UrlFile { path: data.url_file(), error })?;
    Ok(profile_use)
}

/// Whether two URLs name the same host and port. The scheme is ignored: a server that is restarted with `--tls` is the same server.
fn is_same_endpoint(one: &str, other: &str) -> bool {
    let endpoint = |url: &str| url.split_once("://").map(|(_, rest)| rest.trim_end_matches('/').to_owned());
    endpoint(one) == endpoint(other)
}

/// The login in the first profile that can be read. The server decides whether it is still valid.
fn load_admin_credential(dirs: &[&Path]) -> Option<AdminCredential> {
    let profile = dirs.iter().find_map(|dir| Profile::load(dir).ok())?;
    Some(AdminCredential { client_id: profile.client_id, client_secret: profile.client_secret })
}

/// Logs that `--isolation` overrides the server's choice; a warning where the override is weaker than the default would be.
fn log_isolation_override(chosen: Option<IsolationArg>, has_several_principals: bool) {
    match chosen.map(IsolationArg::as_str) {
        Some(mode @ ("off" | "auto")) if has_several_principals => {
            tracing::warn!(
                mode,
                "jobs are isolated as --isolation says, though the server has more than one principal"
            );
        }
        Some(mode) => tracing::info!(mode, "jobs are isolated as --isolation says, however many principals there are"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_restarted_with_tls_keeps_its_profile() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = DataDir::lock(&dir.path().join("data")).expect("locked");
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
            data_directory: None,
        };
        let https = profile(format!("https://{ours}"));
        profile(format!("http://{ours}")).save(dir.path()).expect("saved");
        assert!(matches!(write_profiles(&https, dir.path(), &data), Ok(ProfileUse::Default { .. })));
        assert_eq!(Profile::read(dir.path()).expect("written").server, https.server);
        assert!(!is_same_endpoint(&https.server, &format!("https://{other}")));
    }
}
