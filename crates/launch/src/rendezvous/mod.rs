//! Rendezvous server of a gang: a key-value store over HTTP with the paths of Horovod's launcher. Used by our engine
//! and by upstream's. Never interprets a value.
//!
//! `PUT`, `GET` and `DELETE` on `/<scope>/<key>`. Extensions: `GET …?wait=SECONDS` is a long poll that returns as soon as the key
//! exists. In the scopes of our engine (`corro_<round>`) the key `failed` says that the rendezvous cannot succeed: a rank, a blank, and the
//! reason. It exists once a rank's process has ended ([`Rendezvous::report_end`], or a `PUT` of
//! `/corro_ended/<rank>` by the agent of another node), and ends all long polls of other keys.
//!
//! The server of an elastic training ([`Rendezvous::start_elastic`]) also has the scope `corro_elastic`, and the end of a process fails only the round
//! of its generation.

mod elastic;
mod http;
mod report;
mod store;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use corro_elastic::{Generation, Member, ProcessId};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

pub use elastic::ElasticScope;
pub use report::{report_end_to, report_failed_generation};

use crate::connection_set::{AuthFlag, ConnectionSet};
use crate::exit::Exit;
use crate::rank_assignment::{Host, RankAssignment};
use http::{Connection, Request, RequestError};
use store::Store;

/// At this limit the oldest connection without a request is closed, and further ones wait to be accepted. A rank uses a few.
const MAX_CONNECTIONS: usize = 4096;
const MAX_LONG_POLL: Duration = Duration::from_secs(30);
/// Long polls are spread over this many notifiers, so that a new key wakes few polls of other keys.
const N_NOTIFIERS: usize = 64;
/// Prefix of the scopes of our engine's rounds.
const ENGINE_SCOPE_PREFIX: &str = "corro_";
/// The key of a round that says why it has failed.
const FAILED_KEY: &str = "failed";
/// The scope in which elastic processes ask for their places.
pub const ELASTIC_SCOPE: &str = "corro_elastic";
/// The scope in which agents report that a rank has ended.
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

/// A running server; dropping it closes all connections.
#[derive(Debug)]
pub struct Rendezvous {
    addr: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Rendezvous {
    /// Starts a server. `known_scopes`: number of ranks that use each scope that is known in advance.
    pub async fn start(bind: SocketAddr, known_scopes: BTreeMap<String, usize>) -> Result<Rendezvous, RendezvousError> {
        Rendezvous::serve(bind, known_scopes, None).await
    }

    /// Starts the server of an elastic training.
    pub async fn start_elastic(bind: SocketAddr) -> Result<Rendezvous, RendezvousError> {
        Rendezvous::serve(bind, BTreeMap::new(), Some(ElasticScope::default())).await
    }

    async fn serve(
        bind: SocketAddr,
        known_scopes: BTreeMap<String, usize>,
        elastic: Option<ElasticScope>,
    ) -> Result<Rendezvous, RendezvousError> {
        let failed = |source| RendezvousError::Listen { bind, source };
        let listener = TcpListener::bind(bind).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            store: Mutex::new(Store::new(known_scopes)),
            notifiers: std::array::from_fn(|_| Notify::new()),
            hasher: RandomState::new(),
            ended: OnceLock::new(),
            elastic,
            elastic_requests: OnceLock::new(),
        });
        Ok(Rendezvous { addr, server: tokio::spawn(accept(listener, Arc::clone(&shared))), shared })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Keys of [`ELASTIC_SCOPE`] that are asked for and do not exist, once for each request. The caller answers with
    /// [`Rendezvous::set`]. May be called once.
    pub fn elastic_requests(&self) -> mpsc::UnboundedReceiver<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let _ = self.shared.elastic_requests.set(sender);
        receiver
    }

    /// Sets the value of a key, or deletes the key.
    pub fn set(&self, scope: &str, key: &str, value: Option<Vec<u8>>) {
        match value {
            // The store has room for the few bytes of its own launcher; without it the request is repeated.
            Some(value) => drop(self.shared.store().put(scope, key, value)),
            None => self.shared.store().delete(scope, key),
        }
        self.shared.notifier(scope, key).notify_waiters();
    }

    /// Reports that the process of a rank has ended. Ranks that still wait in a rendezvous fail at once. Ranks
    /// that have completed it are not affected.
    pub fn report_end(&self, rank: usize, host: &str, exit: Exit) {
        self.shared.record_end(rank, &report::describe(rank, host, exit));
    }

    /// The places of an elastic training; `None` for another server.
    pub fn elastic(&self) -> Option<&ElasticScope> {
        self.shared.elastic.as_ref()
    }

    /// Answers the members of an elastic training's next generation. The keys of earlier ones are removed.
    pub fn begin_generation(&self, generation: Generation, members: &[Member]) {
        if let Some(elastic) = self.elastic() {
            let is_earlier = |scope: &str| round_of(scope).is_some_and(|round| round < generation);
            self.shared.store().remove_scopes(is_earlier);
            elastic.begin(generation, members);
            self.shared.notify_all();
        }
    }

    /// Reports that a process of an elastic training has ended. Members of its generation that still connect fail at once. Returns its rank if it
    /// was a member of the current generation.
    pub fn report_process_end(&self, process: ProcessId, host: &str, exit: Exit) -> Option<usize> {
        let rank = self.elastic()?.record_exit(process, |rank| report::describe(rank, host, exit));
        self.shared.notify_all();
        rank
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The scopes of upstream's ranks, and the number of ranks of each: all ranks, those of one host, those with one local rank.
pub fn known_scopes(hosts: &[Host], assignments: &[RankAssignment]) -> BTreeMap<String, usize> {
    let mut scopes = BTreeMap::new();
    for assignment in assignments {
        let host = &hosts[assignment.host_idx].name;
        for scope in ["global".to_owned(), format!("local_{host}"), format!("cross_{}", assignment.local_rank)] {
            *scopes.entry(scope).or_insert(0) += 1;
        }
    }
    scopes
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    notifiers: [Notify; N_NOTIFIERS],
    hasher: RandomState,
    /// The first rank that ended, and how: the value of [`FAILED_KEY`] in every round that is not complete.
    ended: OnceLock<Arc<[u8]>>,
    elastic: Option<ElasticScope>,
    /// Receives requests for places in elastic generations that another server decides.
    elastic_requests: OnceLock<mpsc::UnboundedSender<String>>,
}

impl Shared {
    fn record_end(&self, rank: usize, reason: &str) {
        if self.ended.set(format!("{rank} {reason}").into_bytes().into()).is_ok() {
            self.notify_all();
        }
    }

    /// Wakes all long polls of keys.
    fn notify_all(&self) {
        self.notifiers.iter().for_each(Notify::notify_waiters);
    }

    /// Why the rendezvous of a scope of our engine cannot succeed any more.
    fn failure(&self, scope: &str) -> Option<Arc<[u8]>> {
        match &self.elastic {
            Some(elastic) => elastic.failed(round_of(scope)?),
            None => {
                let is_round = scope.starts_with(ENGINE_SCOPE_PREFIX) && scope != ELASTIC_SCOPE;
                if !is_round {
                    return None;
                }
                self.ended.get().cloned().or_else(|| self.store().get(scope, FAILED_KEY))
            }
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notifier(&self, scope: &str, key: &str) -> &Notify {
        &self.notifiers[self.hasher.hash_one((scope, key)) as usize % N_NOTIFIERS]
    }

    async fn get(&self, scope: &str, key: &str, wait: Duration) -> Option<Arc<[u8]>> {
        let deadline = Instant::now() + wait;
        loop {
            // Subscribed before the lookup, so that a key that is put in between is not missed.
            let notified = self.notifier(scope, key).notified();
            let mut value = self.store().get(scope, key);
            if scope == ELASTIC_SCOPE && value.is_none() {
                // Without a receiver nobody will answer; the client asks again.
                self.elastic_requests.get().map(|requests| requests.send(key.to_owned()));
            }
            let failure = self.failure(scope);
            let has_failed = failure.is_some();
            if key == FAILED_KEY {
                value = value.or(failure);
            }
            if value.is_some() || has_failed || timeout_at(deadline, notified).await.is_err() {
                return value;
            }
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Owned by this task: aborting the task aborts all connections.
    let mut connections = ConnectionSet::new(MAX_CONNECTIONS);
    loop {
        let has_space = connections.has_space();
        let accepted = tokio::select! {
            accepted = listener.accept(), if has_space => accepted,
            () = connections.ended() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely out of descriptors; some are released as clients disconnect.
                tracing::warn!(%error, "cannot accept a rendezvous connection");
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Without Nagle's delay for small replies. A failure only makes them slower.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        connections.spawn(|auth_flag| async move {
            // An error means that the client has disconnected.
            let _ = serve(Connection::new(stream), &shared, &auth_flag).await;
        });
    }
}

async fn serve(mut connection: Connection, shared: &Shared, auth_flag: &AuthFlag) -> io::Result<()> {
    loop {
        let request = match connection.request().await {
            Ok(request) => request,
            Err(RequestError::Disconnected) => return Ok(()),
            Err(RequestError::Invalid(status)) => return connection.reply(status, b"", false).await,
        };
        auth_flag.set();
        let keep_alive = request.keep_alive;
        let (status, body) = respond(shared, request).await;
        connection.reply(status, body.as_deref().unwrap_or_default(), keep_alive).await?;
        if !keep_alive {
            return Ok(());
        }
    }
}

async fn respond(shared: &Shared, request: Request) -> (u16, Option<Arc<[u8]>>) {
    let Some(Target { scope, key, wait }) = parse_target(&request.target) else {
        return (400, None);
    };
    match (request.method.as_str(), &shared.elastic) {
        ("GET", Some(elastic)) if scope == ELASTIC_SCOPE => return elastic.get(key, wait).await,
        // Only the driver decides.
        (_, Some(_)) if scope == ELASTIC_SCOPE => return (405, None),
        _ => {}
    }
    match request.method.as_str() {
        "GET" => match shared.get(scope, key, wait).await {
            Some(value) => (200, Some(value)),
            None => (404, None),
        },
        "PUT" if scope == ENDED_SCOPE => {
            let Ok(rank) = key.parse() else { return (400, None) };
            shared.record_end(rank, &report::printable(&request.body));
            (200, None)
        }
        "PUT" => {
            let stored = shared.store().put(scope, key, request.body);
            match key {
                // It ends the long polls of all keys of its scope.
                FAILED_KEY => shared.notify_all(),
                _ => shared.notifier(scope, key).notify_waiters(),
            }
            (if stored.is_ok() { 200 } else { 507 }, None)
        }
        "DELETE" => {
            shared.store().delete(scope, key);
            (200, None)
        }
        _ => (405, None),
    }
}

/// The round, or generation, of a scope of our engine.
fn round_of(scope: &str) -> Option<Generation> {
    scope.strip_prefix(ENGINE_SCOPE_PREFIX)?.parse().ok()
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
        wait = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?.min(MAX_LONG_POLL);
    }
    Some(Target { scope, key, wait })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_assignment::assign_ranks;

    #[test]
    fn targets_have_a_scope_and_a_key() {
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
    fn scopes_follow_from_the_assignments() {
        let hosts = [Host { name: "a".into(), slots: 2 }, Host { name: "b".into(), slots: 1 }];
        let scopes: Vec<_> = known_scopes(&hosts, &assign_ranks(&hosts)).into_iter().collect();
        let expected = [("cross_0", 2), ("cross_1", 1), ("global", 3), ("local_a", 2), ("local_b", 1)];
        assert_eq!(scopes, expected.map(|(scope, count)| (scope.to_owned(), count)));
    }
}
