//! The file service on a port of its own, for `corro files`: no ARM API, no nodes, no database. Accounts and keys are
//! given; shares are in `DATA/shares`, as in a full server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_file_service::{AccountKeys, AuditEvent, AuditSink, FileService};
use corro_model::Secret;
use corro_store::encryption::random;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::http::rate_limit::{RateLimits, Rates};
use crate::http::{FileServiceOnly, serve};
use crate::tls::Tls;
use crate::{flush_file_audit, open_shares, unix_now};

pub struct FileServerConfig {
    /// Data directory; shares are in `shares/ACCOUNT/SHARE`. The caller holds its lock.
    pub data: PathBuf,
    pub listen: SocketAddr,
    /// Without TLS the server listens on loopback addresses only.
    pub tls: Option<Tls>,
    pub rates: Rates,
    /// Base64 keys of each account.
    pub accounts: BTreeMap<String, Vec<Secret>>,
}

/// A running file server.
pub struct FileServer {
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl FileServer {
    pub async fn start(config: FileServerConfig) -> anyhow::Result<FileServer> {
        let reachable = config.listen.ip().is_loopback() || config.tls.is_some();
        ensure!(reachable, "{} is not a loopback address, and TLS is off", config.listen);
        let keys = StaticAccountKeys::decode(&config.accounts)?;
        let listener =
            TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
        let address = listener.local_addr()?;
        let shares = Arc::new(open_shares(&config.data, std::time::SystemTime::now().into()).await?);
        let limits = Arc::new(RateLimits::new(config.rates));
        let files = FileService::new(shares, Arc::new(keys), limits, unix_now).with_audit(Arc::new(LogAudit));
        let (stop, stopping) = watch::channel(false);
        let tasks = vec![
            tokio::spawn(serve(listener, config.tls, FileServiceOnly(files.clone()), stopping.clone())),
            tokio::spawn(flush_file_audit(files, stopping)),
        ];
        Ok(FileServer { address, stop, tasks })
    }

    /// Stops accepting requests and gives those in flight a short time.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// Random account key in Azure's format: 64 bytes in base64.
pub fn new_account_key() -> Secret {
    Secret::new(STANDARD.encode(random::<64>()))
}

struct StaticAccountKeys(BTreeMap<String, Arc<[Vec<u8>]>>);

impl StaticAccountKeys {
    fn decode(accounts: &BTreeMap<String, Vec<Secret>>) -> anyhow::Result<StaticAccountKeys> {
        let decode = |(name, keys): (&String, &Vec<Secret>)| {
            let keys: Result<Vec<_>, _> = keys.iter().map(|key| STANDARD.decode(key.expose())).collect();
            let keys = keys.ok().filter(|keys| keys.iter().all(|key| !key.is_empty()));
            keys.map(|keys| (name.clone(), keys.into())).with_context(|| format!("a key of '{name}' is not base64"))
        };
        accounts.iter().map(decode).collect::<anyhow::Result<_>>().map(StaticAccountKeys)
    }
}

impl AccountKeys for StaticAccountKeys {
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>> {
        self.0.get(account).filter(|keys| !keys.is_empty()).cloned()
    }
}

/// Audit to the log, since there is no history.
struct LogAudit;

impl AuditSink for LogAudit {
    fn record(&self, event: AuditEvent) {
        let AuditEvent { actor, address, account, share, action, detail } = event;
        tracing::info!(%actor, %address, %account, %share, %detail, "{action}");
    }

    /// There are no jobs whose end would be delayed.
    fn on_tail_read(&self, _: &str, _: &str, _: &str) {}

    fn record_refusal(&self, actor: Option<&str>, address: &str, method: &str, path: &str, status: u16, code: &str) {
        tracing::info!(actor, %address, %method, %path, status, %code, "refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_base64_and_an_account_has_at_least_one() {
        let with = |keys: &[&str]| {
            let keys = keys.iter().map(|key| Secret::new(*key)).collect();
            StaticAccountKeys::decode(&BTreeMap::from([("acc".to_owned(), keys)]))
        };
        let fresh = new_account_key();
        let keys = with(&[fresh.expose(), "a2V5"]).expect("keys");
        assert_eq!(keys.keys("acc").map(|keys| (keys[0].len(), keys[1].clone())), Some((64, b"key".to_vec())));
        assert_eq!((keys.keys("other"), keys.keys("")), (None, None));
        assert_eq!(with(&[]).expect("an account").keys("acc"), None, "without a key nobody gets in");
        assert!(with(&["not base64"]).is_err() && with(&[""]).is_err());
    }
}
