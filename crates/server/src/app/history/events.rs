//! The stream of what changes. One task turns every commit into events and keeps the last of them in memory; readers, each at
//! its own place, take what their rights let them see. A reader that falls behind what is kept is told so, and costs nobody
//! anything. Places are numbers with a mark of this server's start: after a restart they are unknown, and that is told too.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::SystemTime;

use corro_model::Timestamp;
use corro_model::batchai::{AllocationState, ProvisioningState};
use corro_model::events::{Change, Event, EventKind};
use corro_model::ids::arm;
use corro_model::rights::{Right, Scope};
use corro_store::*;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

use crate::app::App;
use crate::app::access::caller::{Caller, scope_of_key};

/// Events that are remembered.
const KEPT: usize = 16 * 1024;
/// What a reader is handed at once.
const BATCH: usize = 256;

/// Clones share everything.
#[derive(Clone)]
pub struct Feed(Arc<Inner>);

struct Inner {
    /// Tells this start of the server from others.
    mark: String,
    kept: Mutex<Kept>,
    /// The number of the last event; ends with the feed.
    last: Mutex<Option<watch::Sender<u64>>>,
    heard: watch::Receiver<u64>,
}

#[derive(Default)]
struct Kept {
    /// The number of the last one; they have no gaps.
    last: u64,
    events: VecDeque<Arc<Told>>,
    revision: u64,
}

/// An event and who may hear of it.
struct Told {
    event: Event,
    scope: Scope,
    /// Written when somebody wants it first, for all.
    line: OnceLock<Arc<str>>,
}

/// One reader's place in the stream.
pub struct Reader {
    feed: Feed,
    app: App,
    caller: Arc<Caller>,
    place: u64,
    heard: watch::Receiver<u64>,
    /// Something that is to be told before all else.
    first: Option<EventKind>,
}

/// Id and text of an event.
pub type Line = (String, Arc<str>);

impl Default for Feed {
    fn default() -> Self {
        let started = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
        let (last, heard) = watch::channel(0);
        let (kept, last) = (Mutex::default(), Mutex::new(Some(last)));
        Self(Arc::new(Inner { mark: format!("{started:x}"), kept, last, heard }))
    }
}

impl Feed {
    /// Tells what is committed from this call on, until the server stops. Readers end then, too.
    pub fn watch(self, app: App, stop: watch::Receiver<bool>) -> impl Future<Output = ()> + Send {
        let touches = app.store.touches();
        self.tell(app, touches, stop)
    }

    async fn tell(self, app: App, mut touches: broadcast::Receiver<Arc<Touched>>, mut stop: watch::Receiver<bool>) {
        loop {
            let touched = tokio::select! {
                touched = touches.recv() => touched,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match touched {
                Ok(touched) => self.push(&touched, &app.installation.subscription),
                Err(RecvError::Lagged(commits)) => {
                    tracing::warn!(commits, "the stream of events has a gap: the server has too much to do");
                    self.forget(app.snapshot().revision);
                }
                Err(RecvError::Closed) => break,
            }
        }
        self.0.last.lock().expect("no one panics while holding the bell").take();
    }

    fn push(&self, touched: &Touched, subscription: &str) {
        let last = {
            let mut kept = self.kept();
            for (kind, key) in &touched.rows {
                let Some((mut event, scope)) = event_of(touched, kind, key, subscription) else { continue };
                kept.last += 1;
                event.id = self.id(kept.last);
                kept.events.push_back(Arc::new(Told { event, scope, line: OnceLock::new() }));
                if kept.events.len() > KEPT {
                    kept.events.pop_front();
                }
            }
            kept.revision = touched.after.revision;
            kept.last
        };
        self.ring(last);
    }

    /// What came before cannot be told whole any more.
    fn forget(&self, revision: u64) {
        let last = {
            let mut kept = self.kept();
            kept.events.clear();
            // A number that nobody has heard: all who listen find that they have missed something.
            kept.last += 1;
            kept.revision = revision;
            kept.last
        };
        self.ring(last);
    }

    fn ring(&self, last: u64) {
        if let Some(bell) = &*self.0.last.lock().expect("no one panics while holding the bell") {
            bell.send_replace(last);
        }
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.0.mark)
    }

    /// The number in one of our own ids.
    fn number(&self, id: &str) -> Option<u64> {
        let (mark, number) = id.split_once('-')?;
        (mark == self.0.mark).then(|| number.parse().ok())?
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().expect("no one panics while holding the events")
    }
}

impl App {
    /// A reader on behalf of the caller, from the event `after` on; `0` is the oldest that is remembered, nothing is now.
    pub fn listen(&self, after: Option<&str>) -> Reader {
        let feed = self.telemetry.events.clone();
        let (place, first) = {
            let kept = feed.kept();
            let oldest = kept.last - kept.events.len() as u64;
            match after {
                None => (kept.last, EventKind::Start),
                Some("0") => (oldest, EventKind::Start),
                Some(id) => match feed.number(id).filter(|number| (oldest..=kept.last).contains(number)) {
                    Some(number) => (number, EventKind::Start),
                    None => (kept.last, EventKind::Missed),
                },
            }
        };
        let heard = feed.0.heard.clone();
        Reader { feed, app: self.clone(), caller: self.request.caller.clone(), place, heard, first: Some(first) }
    }
}

impl Reader {
    /// What there is to tell now; empty when that is nothing.
    pub fn take(&mut self) -> Vec<Line> {
        let caller = self.caller_now();
        let mut lines = Vec::new();
        let (found, revision) = {
            let kept = self.feed.kept();
            let oldest = kept.last - kept.events.len() as u64;
            if self.place < oldest {
                self.first = Some(EventKind::Missed);
                self.place = kept.last;
            }
            let skipped = (self.place - oldest) as usize;
            let found: Vec<Arc<Told>> = kept.events.iter().skip(skipped).take(BATCH).cloned().collect();
            (found, kept.revision)
        };
        if let Some(kind) = self.first.take() {
            lines.push(self.notice(kind, revision));
        }
        self.place += found.len() as u64;
        let seen = found.iter().filter(|told| caller.may(Right::Read, &told.scope));
        lines.extend(seen.map(|told| (told.event.id.clone(), told.line().clone())));
        lines
    }

    /// Is there more than what was taken?
    pub fn is_behind(&self) -> bool {
        self.place < self.feed.kept().last
    }

    /// Waits until there may be more; `false` when the feed has ended.
    pub async fn wait(&mut self) -> bool {
        let place = self.place;
        self.heard.wait_for(|last| *last > place).await.is_ok()
    }

    /// With the roles that the caller has by now.
    fn caller_now(&self) -> Caller {
        let snapshot = self.app.snapshot();
        match snapshot.principals.get(&self.caller.id) {
            Some(record) => Caller { assignments: record.assignments.clone(), ..(*self.caller).clone() },
            // The server itself has no record.
            None if self.caller.by.is_empty() => (*self.caller).clone(),
            None => Caller { assignments: Vec::new(), ..(*self.caller).clone() },
        }
    }

    fn notice(&self, kind: EventKind, revision: u64) -> Line {
        let (id, time) = (self.feed.id(self.place), Timestamp::from(SystemTime::now()));
        let event = Event { id: id.clone(), revision, ..empty(kind, time) };
        (id, serde_json::to_string(&event).expect("events are plain data").into())
    }
}

impl Told {
    fn line(&self) -> &Arc<str> {
        self.line.get_or_init(|| serde_json::to_string(&self.event).expect("events are plain data").into())
    }
}

fn empty(kind: EventKind, time: Timestamp) -> Event {
    let text = String::new;
    #[rustfmt::skip]
    let event = Event {
        id: text(), time, kind, change: None, resource: text(), resource_id: text(), name: text(), state: None, cluster: None,
        revision: 0,
    };
    event
}

/// What is worth telling of a record.
struct Sketch {
    kind: EventKind,
    name: String,
    state: Option<String>,
    cluster: Option<String>,
    /// The names that lead to it.
    resource: String,
}

/// What is told of a row, and who may hear it; nothing of what only the server and owners see.
fn event_of(touched: &Touched, kind: &str, key: &str, subscription: &str) -> Option<(Event, Scope)> {
    let (change, sketch) = match kind {
        GroupRecord::KIND => told(touched.records::<GroupRecord>(key), |group| {
            let state = if group.deleting { ProvisioningState::Deleting } else { ProvisioningState::Succeeded };
            plain(EventKind::Group, key, &group.name, Some(provisioning(state)))
        }),
        WorkspaceRecord::KIND => told(touched.records::<WorkspaceRecord>(key), |workspace| {
            plain(
                EventKind::Workspace,
                key,
                &workspace.name,
                Some(provisioning(workspace.provisioning.provisioning_state)),
            )
        }),
        ExperimentRecord::KIND => told(touched.records::<ExperimentRecord>(key), |experiment| {
            plain(
                EventKind::Experiment,
                key,
                &experiment.name,
                Some(provisioning(experiment.provisioning.provisioning_state)),
            )
        }),
        ClusterRecord::KIND => told(touched.records::<ClusterRecord>(key), |cluster| {
            let state = match (cluster.provisioning.is_deleting(), cluster.allocation) {
                (true, _) => "deleting",
                (false, AllocationState::Steady) => "steady",
                (false, AllocationState::Resizing) => "resizing",
            };
            plain(EventKind::Cluster, key, &cluster.name, Some(state))
        }),
        FileServerRecord::KIND => told(touched.records::<FileServerRecord>(key), |server| {
            plain(EventKind::FileServer, key, &server.name, Some(provisioning(server.provisioning.provisioning_state)))
        }),
        NodeRecord::KIND => told(touched.records::<NodeRecord>(key), |node| {
            let resource = format!("{}/{key}", node.cluster);
            let own = plain(EventKind::Node, &resource, key, Some(node.state().name()));
            Sketch { cluster: Some(node.cluster.to_string()), ..own }
        }),
        JobRecord::KIND => told(touched.records::<JobRecord>(key), |job| {
            let own = plain(EventKind::Job, key, &job.name, Some(job.state().name()));
            Sketch { cluster: Some(job.cluster.to_string()), ..own }
        }),
        AccountRecord::KIND => told(touched.records::<AccountRecord>(key), |account| {
            let state = if account.deleting { ProvisioningState::Deleting } else { ProvisioningState::Succeeded };
            plain(EventKind::Account, &format!("{}/{key}", account.group), key, Some(provisioning(state)))
        }),
        _ => None,
    }?;
    let Sketch { kind, name, state, cluster, resource } = sketch;
    let scope = match kind {
        EventKind::Account => Scope::Group(resource.split('/').next().unwrap_or_default().to_owned()),
        _ => scope_of_key(&resource),
    };
    let resource_id = resource_id(kind, &resource, subscription);
    let state = state.filter(|_| change != Change::Deleted);
    let (change, revision) = (Some(change), touched.after.revision);
    Some((Event { change, resource, resource_id, name, state, cluster, revision, ..empty(kind, touched.time) }, scope))
}

fn plain(kind: EventKind, resource: &str, name: &str, state: Option<&str>) -> Sketch {
    let (resource, name, state) = (resource.to_owned(), name.to_owned(), state.map(str::to_owned));
    Sketch { kind, name, state, cluster: None, resource }
}

fn told<R>(
    (before, after): (Option<Arc<R>>, Option<Arc<R>>),
    sketch: impl FnOnce(&R) -> Sketch,
) -> Option<(Change, Sketch)> {
    match (&before, &after) {
        (None, Some(new)) => Some((Change::Created, sketch(new))),
        (Some(_), Some(new)) => Some((Change::Changed, sketch(new))),
        (Some(old), None) => Some((Change::Deleted, sketch(old))),
        // It came and went in one commit.
        (None, None) => None,
    }
}

fn provisioning(state: ProvisioningState) -> &'static str {
    match state {
        ProvisioningState::Creating => "creating",
        ProvisioningState::Updating => "updating",
        ProvisioningState::Succeeded => "succeeded",
        ProvisioningState::Failed => "failed",
        ProvisioningState::Deleting => "deleting",
    }
}

fn resource_id(kind: EventKind, resource: &str, subscription: &str) -> String {
    let names: Vec<&str> = resource.split('/').collect();
    let name = |at: usize| names.get(at).copied().unwrap_or_default();
    let workspace = || arm::workspace(subscription, name(0), name(1));
    match kind {
        EventKind::Start | EventKind::Missed => String::new(),
        EventKind::Group => arm::group(subscription, name(0)),
        EventKind::Account => arm::storage_account(subscription, name(0), name(1)),
        EventKind::Workspace => workspace(),
        EventKind::Experiment => format!("{}/experiments/{}", workspace(), name(2)),
        EventKind::Cluster => format!("{}/clusters/{}", workspace(), name(2)),
        EventKind::FileServer => format!("{}/fileServers/{}", workspace(), name(2)),
        EventKind::Node => format!("{}/clusters/{}/nodes/{}", workspace(), name(2), name(3)),
        EventKind::Job => format!("{}/experiments/{}/jobs/{}", workspace(), name(2), name(3)),
    }
}
