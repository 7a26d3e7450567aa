//! The agents' door: joining, one WebSocket per node, what each node last observed, and what it is told. Entered by
//! `http` with upgraded connections and by `reconcile`, which reads observations and publishes desired states. Decides
//! nothing about jobs.

mod connection;
mod hosts;
mod join;
mod wheels;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corro_model::node::{DesiredNode, ObservedNode};
use corro_model::{ApiError, NodeId};
use tokio::sync::{Notify, watch};

use crate::app::App;

pub use connection::{MAX_MESSAGE, is_living};
pub use join::take_place;

#[derive(Clone)]
pub struct Gateway {
    app: App,
    links: Arc<Mutex<Links>>,
    /// Rung when an observation changed.
    pub news: Arc<Notify>,
    /// Connections end when it turns true.
    stop: watch::Receiver<bool>,
    /// Where the wheels lie that nodes may fetch.
    wheels: Option<Arc<Path>>,
}

struct Links {
    /// Silence is counted from here for nodes that have not been heard since the start.
    started: Instant,
    nodes: HashMap<NodeId, Link>,
    /// What is new since somebody last looked.
    news: News,
    /// Digest of the token with which any machine may take up a wanted node.
    open_token: Option<String>,
}

/// What is known of one node's agent.
struct Link {
    epoch: u64,
    /// Tells a connection from its successor.
    serial: u64,
    heard: Instant,
    observed: ObservedNode,
    /// How long its task had run by its own clock, and when it said so.
    run_time: Option<(Duration, Instant)>,
    orders: watch::Sender<Orders>,
    connected: bool,
}

impl Link {
    fn sighting(&self) -> Sighting {
        Sighting {
            epoch: self.epoch,
            connected: self.connected,
            silent_for: self.heard.elapsed(),
            observed: self.observed.clone(),
            run_time: self.run_time(),
        }
    }

    fn run_time(&self) -> Option<Duration> {
        self.run_time.map(|(told, at)| told + at.elapsed())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Orders {
    /// Nothing was decided yet.
    None,
    Desired(Box<DesiredNode>),
    Fenced(String),
}

/// Which nodes have something new about them. A heartbeat is nothing new.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// They came, went, or observed something else than before.
    pub nodes: BTreeSet<NodeId>,
    /// Of those, the ones with a new connection, which have been told nothing yet.
    pub attached: BTreeSet<NodeId>,
}

/// One node as seen from here at one moment.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub epoch: u64,
    pub connected: bool,
    pub silent_for: Duration,
    pub observed: ObservedNode,
    /// How long the task it observes has run, by monotonic clocks alone: the node's until it last said so, this machine's since. `None`
    /// for agents that do not say it.
    pub run_time: Option<Duration>,
}

impl Sighting {
    /// Is somebody there who will still be there for the next order?
    pub fn is_there(&self) -> bool {
        self.connected && !self.observed.ending
    }
}

impl Gateway {
    pub fn new(app: App, open_token: Option<&corro_model::Secret>, stop: watch::Receiver<bool>) -> Self {
        let open_token = open_token.map(|token| corro_store::seal::digest(token.expose()));
        let (nodes, news) = (HashMap::new(), News::default());
        let links = Links { started: Instant::now(), nodes, news, open_token };
        Self { app, links: Arc::new(Mutex::new(links)), news: Arc::new(Notify::new()), stop, wheels: None }
    }

    /// The same door, with the wheels in `directory` for every node.
    pub fn offering(self, directory: &Path) -> Self {
        Self { wheels: Some(Arc::from(directory)), ..self }
    }

    /// Brings what was seen up to date, and says where something is new since the last time. How long nodes have been
    /// silent, and their tasks run, is looked up for those, and for all others only with `silence`: that is all that changes
    /// without news.
    pub fn refresh(&self, sightings: &mut BTreeMap<NodeId, Sighting>, silence: bool) -> News {
        let mut links = self.lock();
        let news = std::mem::take(&mut links.news);
        for node in &news.nodes {
            match links.nodes.get(node) {
                Some(link) => _ = sightings.insert(node.clone(), link.sighting()),
                None => _ = sightings.remove(node),
            }
        }
        if silence {
            for (node, sighting) in sightings {
                if let Some(link) = links.nodes.get(node) {
                    (sighting.silent_for, sighting.run_time) = (link.heard.elapsed(), link.run_time());
                }
            }
        }
        news
    }

    /// How long a node that was never heard has had the chance to speak.
    pub fn uptime(&self) -> Duration {
        self.lock().started.elapsed()
    }

    /// Tells a connected node what it should be; sent only when it differs from what it was told last.
    pub fn publish(&self, node: &NodeId, desired: DesiredNode) {
        if let Some(link) = self.lock().nodes.get(node) {
            let orders = Orders::Desired(Box::new(desired));
            link.orders.send_if_modified(|current| {
                let changed = *current != orders;
                *current = orders;
                changed
            });
        }
    }

    /// Cuts off a node of this epoch that is no longer ours, and forgets it.
    pub fn fence(&self, node: &NodeId, epoch: u64, reason: &str) {
        let mut links = self.lock();
        // One with a newer epoch may have come since somebody looked.
        if links.nodes.get(node).is_some_and(|link| link.epoch == epoch)
            && let Some(link) = links.nodes.remove(node)
        {
            self.app.doors.set(node, None);
            self.app.expected_ends.set(node, None);
            links.news.nodes.insert(node.clone());
            link.orders.send_replace(Orders::Fenced(reason.to_owned()));
        }
    }

    /// Counts everybody's silence from now on.
    pub fn forgive(&self) {
        let mut links = self.lock();
        links.started = Instant::now();
        links.nodes.values_mut().for_each(|link| link.heard = Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().expect("no one panics while holding the links")
    }
}

fn not_a_node() -> ApiError {
    ApiError::unauthorized("The node's credential is not valid: it was removed or declared lost")
}
