//! The agents' door: joining, one WebSocket per node, what each node last observed, and what it is told. Entered by
//! `http` with upgraded connections and by `reconcile`, which reads observations and publishes desired states. Decides
//! nothing about jobs.

mod connection;
mod join;

use std::collections::{BTreeMap, HashMap};
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
}

struct Links {
    /// Silence is counted from here for nodes that have not been heard since the start.
    started: Instant,
    nodes: HashMap<NodeId, Link>,
    /// Digest of a join token to the node it is for.
    tokens: HashMap<String, NodeId>,
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
    orders: watch::Sender<Orders>,
    connected: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Orders {
    /// Nothing was decided yet.
    None,
    Desired(Box<DesiredNode>),
    Fenced(String),
}

/// One node as seen from here at one moment.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub epoch: u64,
    pub connected: bool,
    pub silent_for: Duration,
    pub observed: ObservedNode,
}

impl Gateway {
    pub fn new(app: App, open_token: Option<&corro_model::Secret>, stop: watch::Receiver<bool>) -> Self {
        let open_token = open_token.map(|token| corro_store::seal::digest(token.expose()));
        let links = Links { started: Instant::now(), nodes: HashMap::new(), tokens: HashMap::new(), open_token };
        Self { app, links: Arc::new(Mutex::new(links)), news: Arc::new(Notify::new()), stop }
    }

    /// What every node that was ever heard last said.
    pub fn sightings(&self) -> BTreeMap<NodeId, Sighting> {
        let links = self.lock();
        let sighting = |link: &Link| Sighting {
            epoch: link.epoch,
            connected: link.connected,
            silent_for: link.heard.elapsed(),
            observed: link.observed.clone(),
        };
        links.nodes.iter().map(|(id, link)| (id.clone(), sighting(link))).collect()
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

    /// Cuts off a node that is no longer ours, and forgets it.
    pub fn fence(&self, node: &NodeId, reason: &str) {
        self.app.doors.set(node, None);
        if let Some(link) = self.lock().nodes.remove(node) {
            link.orders.send_replace(Orders::Fenced(reason.to_owned()));
        }
    }

    /// Counts everybody's silence from now on.
    pub fn forgive(&self) {
        let mut links = self.lock();
        links.started = Instant::now();
        links.nodes.values_mut().for_each(|link| link.heard = Instant::now());
    }

    /// Tokens for nodes that are no more.
    pub fn forget_tokens(&self, is_known: impl Fn(&NodeId) -> bool) {
        self.lock().tokens.retain(|_, node| is_known(node));
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().expect("no one panics while holding the links")
    }
}

fn not_a_node() -> ApiError {
    ApiError::unauthorized("The node's credential is not valid: it was removed or declared lost")
}
