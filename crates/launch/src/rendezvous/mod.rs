//! Where the ranks of a gang find each other: a key-value store over HTTP with the paths of Horovod's launcher. The first
//! node's agent and `gang` start one per gang; our engine and upstream's both speak to it. Never looks into a value.
//!
//! `PUT`, `GET` and `DELETE` on `/<scope>/<key>`. Beyond upstream: `GET …?wait=SECONDS` answers as soon as the key is
//! there, so that a rank need not ask again and again. In the scopes of our engine (`corro_<round>`) the key `failed` says that the ranks cannot
//! come together: a rank's number, a blank, and why. It is there once a rank's process has ended ([`Rendezvous::report_end`], or a `PUT` of
//! `/corro_ended/<rank>` by the agent of another node), and whoever waits for another key is answered at once.

mod http;
mod report;
mod store;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

pub use report::report_end_to;

use crate::connection_set::{ConnectionSet, Proof};
use crate::exit::Exit;
use crate::place::{Host, RankPlace};
use http::{Connection, NoRequest, Request};
use store::Store;

/// Beyond it the oldest client without a request gives way, and further ones wait to be accepted; a rank uses a handful.
const MOST_CONNECTIONS: usize = 4096;
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Waiters are spread over this many bells, so that a new key wakes few who did not wait for it.
const N_BELLS: usize = 64;
/// Scopes of our engine's rounds begin so.
const ENGINE_SCOPES: &str = "corro_";
/// The key of a round that says why it cannot be completed.
const FAILED: &str = "failed";
/// Where launchers write that a rank has ended.
const ENDED_SCOPE: &str = "corro_ended";

#[derive(Debug, Error)]
pub enum RendezvousError {
    #[error("cannot listen on {bind} for the ranks' rendezvous")]
    Listen {
        bind: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// A running server; dropping it closes every connection.
#[derive(Debug)]
pub struct Rendezvous {
    addr: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Rendezvous {
    /// Starts a server. `known_scopes` says how many ranks use each scope that is known in advance.
    pub async fn start(bind: SocketAddr, known_scopes: BTreeMap<String, usize>) -> Result<Rendezvous, RendezvousError> {
        let failed = |source| RendezvousError::Listen { bind, source };
        let listener = TcpListener::bind(bind).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            store: Mutex::new(Store::new(known_scopes)),
            bells: std::array::from_fn(|_| Notify::new()),
            hasher: RandomState::new(),
            ended: OnceLock::new(),
        });
        Ok(Rendezvous { addr, server: tokio::spawn(accept(listener, Arc::clone(&shared))), shared })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The process of a rank has ended. Ranks that are still waiting for each other are told so at once: without it they cannot meet. Ranks
    /// that have met are not concerned.
    pub fn report_end(&self, rank: usize, host: &str, exit: Exit) {
        self.shared.note_end(rank, &report::describe(rank, host, exit));
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The scopes upstream's ranks use, and by how many ranks each: all, those of one host, those with one local rank.
pub fn known_scopes(hosts: &[Host], places: &[RankPlace]) -> BTreeMap<String, usize> {
    let mut scopes = BTreeMap::new();
    for place in places {
        let host = &hosts[place.host_idx].name;
        for scope in ["global".to_owned(), format!("local_{host}"), format!("cross_{}", place.local_rank)] {
            *scopes.entry(scope).or_insert(0) += 1;
        }
    }
    scopes
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    bells: [Notify; N_BELLS],
    hasher: RandomState,
    /// The first rank that ended, and how: the value of [`FAILED`] in every round that is not complete.
    ended: OnceLock<Arc<[u8]>>,
}

impl Shared {
    fn note_end(&self, rank: usize, reason: &str) {
        if self.ended.set(format!("{rank} {reason}").into_bytes().into()).is_ok() {
            self.bells.iter().for_each(Notify::notify_waiters);
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bell(&self, scope: &str, key: &str) -> &Notify {
        &self.bells[self.hasher.hash_one((scope, key)) as usize % N_BELLS]
    }

    async fn get(&self, scope: &str, key: &str, wait: Duration) -> Option<Arc<[u8]>> {
        let deadline = Instant::now() + wait;
        loop {
            // Listening begins before looking, so that a key put in between is not missed.
            let rung = self.bell(scope, key).notified();
            let mut value = self.store().get(scope, key);
            let ended = self.ended.get().filter(|_| scope.starts_with(ENGINE_SCOPES));
            if key == FAILED {
                value = value.or_else(|| ended.cloned());
            }
            if value.is_some() || ended.is_some() || timeout_at(deadline, rung).await.is_err() {
                return value;
            }
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Owned by this task: aborting it ends every connection.
    let mut connections = ConnectionSet::new(MOST_CONNECTIONS);
    loop {
        let has_space = connections.has_space();
        let accepted = tokio::select! {
            accepted = listener.accept(), if has_space => accepted,
            () = connections.ended() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely; some come back as clients leave.
                tracing::warn!(%error, "cannot accept a rendezvous connection");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Small replies must not wait for an acknowledgement; if this fails they are merely slower.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        connections.spawn(|proof| async move {
            // An error means that the client is gone.
            let _ = serve(Connection::new(stream), &shared, &proof).await;
        });
    }
}

async fn serve(mut connection: Connection, shared: &Shared, proof: &Proof) -> io::Result<()> {
    loop {
        let request = match connection.request().await {
            Ok(request) => request,
            Err(NoRequest::Ended) => return Ok(()),
            Err(NoRequest::Refuse(status)) => return connection.reply(status, b"", false).await,
        };
        proof.give();
        let keep_alive = request.keep_alive;
        let (status, body) = answer(shared, request).await;
        connection.reply(status, body.as_deref().unwrap_or_default(), keep_alive).await?;
        if !keep_alive {
            return Ok(());
        }
    }
}

async fn answer(shared: &Shared, request: Request) -> (u16, Option<Arc<[u8]>>) {
    let Some(Target { scope, key, wait }) = parse_target(&request.target) else {
        return (400, None);
    };
    match request.method.as_str() {
        "GET" => match shared.get(scope, key, wait).await {
            Some(value) => (200, Some(value)),
            None => (404, None),
        },
        "PUT" if scope == ENDED_SCOPE => {
            let Ok(rank) = key.parse() else { return (400, None) };
            shared.note_end(rank, &report::printable(&request.body));
            (200, None)
        }
        "PUT" => {
            let stored = shared.store().put(scope, key, request.body);
            shared.bell(scope, key).notify_waiters();
            (if stored.is_ok() { 200 } else { 507 }, None)
        }
        "DELETE" => {
            shared.store().delete(scope, key);
            (200, None)
        }
        _ => (405, None),
    }
}

#[derive(Debug, PartialEq)]
struct Target<'a> {
    scope: &'a str,
    key: &'a str,
    wait: Duration,
}

fn parse_target(target: &str) -> Option<Target<'_>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (scope, key) = path.strip_prefix('/')?.split_once('/')?;
    if scope.is_empty() || key.is_empty() {
        return None;
    }
    let mut wait = Duration::ZERO;
    if let Some(seconds) = query.split('&').find_map(|pair| pair.strip_prefix("wait=")) {
        wait = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?.min(LONGEST_WAIT);
    }
    Some(Target { scope, key, wait })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::place;

    #[test]
    fn targets_have_two_parts() {
        let target = |scope, key, ms| Some(Target { scope, key, wait: Duration::from_millis(ms) });
        for (text, expected) in [
            ("/global/0", target("global", "0", 0)),
            ("/local_h-1.x/rank_0?wait=0.5", target("local_h-1.x", "rank_0", 500)),
            ("/a/b?x=1&wait=900", target("a", "b", 30_000)),
            ("/a/b/c", target("a", "b/c", 0)),
            ("/a/b?wait=-1", None),
            ("/a/b?wait=soon", None),
            ("/global", None),
            ("/global/", None),
            ("//0", None),
            ("/", None),
            ("a/b", None),
        ] {
            assert_eq!(parse_target(text), expected, "{text}");
        }
    }

    #[test]
    fn scopes_follow_from_the_placement() {
        let hosts = [Host { name: "a".into(), slots: 2 }, Host { name: "b".into(), slots: 1 }];
        let scopes: Vec<_> = known_scopes(&hosts, &place(&hosts)).into_iter().collect();
        let expected = [("cross_0", 2), ("cross_1", 1), ("global", 3), ("local_a", 2), ("local_b", 1)];
        assert_eq!(scopes, expected.map(|(scope, count)| (scope.to_owned(), count)));
    }
}
