//! Event log of resource changes. One task turns every commit into events and keeps the latest in a ring buffer. Each
//! reader has its own position and gets the events that its roles allow. A reader that falls behind the buffer gets a
//! `missed` notice and slows nobody down. Event ids contain an epoch of this server start, so ids from before a restart
//! are recognised as unknown and also yield `missed`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::SystemTime;

use corro_model::Timestamp;
use corro_model::batchai::{AllocationState, ProvisioningState};
use corro_model::events::{Change, Event, EventKind};
use corro_model::ids::arm;
use corro_model::rbac::{Right, Scope};
use corro_store::*;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

use crate::app::App;
use crate::app::access::caller::{Caller, scope_of_key};

/// Capacity of the ring buffer, in events.
const BUFFER_CAPACITY: usize = 16 * 1024;
/// Maximum number of events per read.
const MAX_BATCH: usize = 256;

/// Event log. Clones share it.
#[derive(Clone)]
pub struct EventLog(Arc<Inner>);

struct Inner {
    /// Identifies this start of the server.
    epoch: String,
    buffer: Mutex<RingBuffer>,
    /// Sequence number of the last event; dropped when the log ends.
    last: Mutex<Option<watch::Sender<u64>>>,
    last_seen: watch::Receiver<u64>,
}

#[derive(Default)]
struct RingBuffer {
    /// Sequence number of the last event; there are no gaps.
    last: u64,
    events: VecDeque<Arc<BufferedEvent>>,
    revision: u64,
}

/// Event with the scope that a reader must be able to read.
struct BufferedEvent {
    event: Event,
    scope: Scope,
    /// JSON text, serialised once for all readers.
    line: OnceLock<Arc<str>>,
}

/// Position of one reader in the log.
pub struct EventReader {
    stream: EventLog,
    app: App,
    caller: Arc<Caller>,
    position: u64,
    last_seen: watch::Receiver<u64>,
    /// Notice to send before the next events.
    pending_notice: Option<EventKind>,
}

/// Id and JSON text of an event.
pub type EventLine = (String, Arc<str>);

impl Default for EventLog {
    fn default() -> Self {
        let started = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis());
        let (last, last_seen) = watch::channel(0);
        let (buffer, last) = (Mutex::default(), Mutex::new(Some(last)));
        Self(Arc::new(Inner { epoch: format!("{started:x}"), buffer, last, last_seen }))
    }
}

impl EventLog {
    /// Records all commits from this call on until the server stops; readers end then too.
    pub fn watch(self, app: App, stop: watch::Receiver<bool>) -> impl Future<Output = ()> + Send {
        let commits = app.store.commit_events();
        self.run(app, commits, stop)
    }

    async fn run(self, app: App, mut commits: broadcast::Receiver<Arc<CommitEvent>>, mut stop: watch::Receiver<bool>) {
        loop {
            let commit = tokio::select! {
                commit = commits.recv() => commit,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match commit {
                Ok(commit) => self.push(&commit, &app.installation.subscription),
                Err(RecvError::Lagged(commits)) => {
                    tracing::warn!(commits, "events were lost: the server is overloaded");
                    self.discard(app.snapshot().revision);
                }
                Err(RecvError::Closed) => break,
            }
        }
        self.0.last.lock().expect("no one panics while holding the event counter").take();
    }

    fn push(&self, commit: &CommitEvent, subscription: &str) {
        let last = {
            let mut buffer = self.buffer();
            for (kind, key) in &commit.rows {
                let Some((mut event, scope)) = event_of(commit, kind, key, subscription) else { continue };
                buffer.last += 1;
                event.id = self.id(buffer.last);
                buffer.events.push_back(Arc::new(BufferedEvent { event, scope, line: OnceLock::new() }));
                if buffer.events.len() > BUFFER_CAPACITY {
                    buffer.events.pop_front();
                }
            }
            buffer.revision = commit.after.revision;
            buffer.last
        };
        self.notify(last);
    }

    /// Empties the buffer after lost commits.
    fn discard(&self, revision: u64) {
        let last = {
            let mut buffer = self.buffer();
            buffer.events.clear();
            // A number that no reader has seen: all readers find that they missed something.
            buffer.last += 1;
            buffer.revision = revision;
            buffer.last
        };
        self.notify(last);
    }

    fn notify(&self, last: u64) {
        if let Some(bell) = &*self.0.last.lock().expect("no one panics while holding the event counter") {
            bell.send_replace(last);
        }
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.0.epoch)
    }

    /// Sequence number in an event id of this server start.
    fn sequence_of(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        (epoch == self.0.epoch).then(|| number.parse().ok())?
    }

    fn buffer(&self) -> MutexGuard<'_, RingBuffer> {
        self.0.buffer.lock().expect("no one panics while holding the events")
    }
}

impl App {
    /// Reader for the caller, starting after the event `after`. `"0"` starts at the oldest buffered event, `None` at
    /// the next.
    pub fn subscribe_events(&self, after: Option<&str>) -> EventReader {
        let stream = self.telemetry.events.clone();
        let (position, first) = {
            let buffer = stream.buffer();
            let oldest = buffer.last - buffer.events.len() as u64;
            match after {
                None => (buffer.last, EventKind::Start),
                Some("0") => (oldest, EventKind::Start),
                Some(id) => match stream.sequence_of(id).filter(|number| (oldest..=buffer.last).contains(number)) {
                    Some(number) => (number, EventKind::Start),
                    None => (buffer.last, EventKind::Missed),
                },
            }
        };
        let last_seen = stream.0.last_seen.clone();
        EventReader {
            stream,
            app: self.clone(),
            caller: self.request.caller.clone(),
            position,
            last_seen,
            pending_notice: Some(first),
        }
    }
}

impl EventReader {
    /// Next events, at most `MAX_BATCH`; empty if there are none.
    pub fn next_batch(&mut self) -> Vec<EventLine> {
        let caller = self.caller_now();
        let mut lines = Vec::new();
        let (found, revision) = {
            let buffer = self.stream.buffer();
            let oldest = buffer.last - buffer.events.len() as u64;
            if self.position < oldest {
                self.pending_notice = Some(EventKind::Missed);
                self.position = buffer.last;
            }
            let skipped = (self.position - oldest) as usize;
            let found: Vec<Arc<BufferedEvent>> = buffer.events.iter().skip(skipped).take(MAX_BATCH).cloned().collect();
            (found, buffer.revision)
        };
        if let Some(kind) = self.pending_notice.take() {
            lines.push(self.notice(kind, revision));
        }
        self.position += found.len() as u64;
        let readable = found.iter().filter(|buffered| caller.may(Right::Read, &buffered.scope));
        lines.extend(readable.map(|buffered| (buffered.event.id.clone(), buffered.line().clone())));
        lines
    }

    /// Whether there are events after the last batch.
    pub fn is_behind(&self) -> bool {
        self.position < self.stream.buffer().last
    }

    /// Waits for more events; `false` if the log has ended.
    pub async fn wait(&mut self) -> bool {
        let position = self.position;
        self.last_seen.wait_for(|last| *last > position).await.is_ok()
    }

    /// The caller with its current roles.
    fn caller_now(&self) -> Caller {
        let snapshot = self.app.snapshot();
        match snapshot.principals.get(&self.caller.id) {
            Some(record) => Caller { assignments: record.assignments.clone(), ..(*self.caller).clone() },
            // The server itself has no principal record.
            None if self.caller.credential.is_empty() => (*self.caller).clone(),
            None => Caller { assignments: Vec::new(), ..(*self.caller).clone() },
        }
    }

    fn notice(&self, kind: EventKind, revision: u64) -> EventLine {
        let (id, time) = (self.stream.id(self.position), Timestamp::from(SystemTime::now()));
        let event = Event { id: id.clone(), revision, ..empty(kind, time) };
        (id, serde_json::to_string(&event).expect("events are plain data").into())
    }
}

impl BufferedEvent {
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

/// Content of an event before it gets an id.
struct EventSummary {
    kind: EventKind,
    name: String,
    state: Option<String>,
    cluster: Option<String>,
    /// Path of the resource.
    resource: String,
}

/// Event for a changed row and its scope. `None` for records that only the server and owners see.
fn event_of(commit: &CommitEvent, kind: &str, key: &str, subscription: &str) -> Option<(Event, Scope)> {
    let (change, summary) = match kind {
        GroupRecord::KIND => diff_record(commit.records::<GroupRecord>(key), |group| {
            let state = if group.deleting { ProvisioningState::Deleting } else { ProvisioningState::Succeeded };
            summary_of(EventKind::Group, key, &group.name, Some(provisioning(state)))
        }),
        WorkspaceRecord::KIND => diff_record(commit.records::<WorkspaceRecord>(key), |workspace| {
            summary_of(
                EventKind::Workspace,
                key,
                &workspace.name,
                Some(provisioning(workspace.provisioning.provisioning_state)),
            )
        }),
        ExperimentRecord::KIND => diff_record(commit.records::<ExperimentRecord>(key), |experiment| {
            summary_of(
                EventKind::Experiment,
                key,
                &experiment.name,
                Some(provisioning(experiment.provisioning.provisioning_state)),
            )
        }),
        ClusterRecord::KIND => diff_record(commit.records::<ClusterRecord>(key), |cluster| {
            let state = match (cluster.provisioning.is_deleting(), cluster.allocation) {
                (true, _) => "deleting",
                (false, AllocationState::Steady) => "steady",
                (false, AllocationState::Resizing) => "resizing",
            };
            summary_of(EventKind::Cluster, key, &cluster.name, Some(state))
        }),
        FileServerRecord::KIND => diff_record(commit.records::<FileServerRecord>(key), |server| {
            summary_of(
                EventKind::FileServer,
                key,
                &server.name,
                Some(provisioning(server.provisioning.provisioning_state)),
            )
        }),
        NodeRecord::KIND => diff_record(commit.records::<NodeRecord>(key), |node| {
            let resource = format!("{}/{key}", node.cluster);
            let own = summary_of(EventKind::Node, &resource, key, Some(node.state().name()));
            EventSummary { cluster: Some(node.cluster.to_string()), ..own }
        }),
        JobRecord::KIND => diff_record(commit.records::<JobRecord>(key), |job| {
            let own = summary_of(EventKind::Job, key, &job.name, Some(job.state().name()));
            EventSummary { cluster: Some(job.cluster.to_string()), ..own }
        }),
        AccountRecord::KIND => diff_record(commit.records::<AccountRecord>(key), |account| {
            let state = if account.deleting { ProvisioningState::Deleting } else { ProvisioningState::Succeeded };
            summary_of(EventKind::Account, &format!("{}/{key}", account.group), key, Some(provisioning(state)))
        }),
        _ => None,
    }?;
    let EventSummary { kind, name, state, cluster, resource } = summary;
    let scope = match kind {
        EventKind::Account => Scope::Group(resource.split('/').next().unwrap_or_default().to_owned()),
        _ => scope_of_key(&resource),
    };
    let resource_id = resource_id(kind, &resource, subscription);
    let state = state.filter(|_| change != Change::Deleted);
    let (change, revision) = (Some(change), commit.after.revision);
    Some((Event { change, resource, resource_id, name, state, cluster, revision, ..empty(kind, commit.time) }, scope))
}

fn summary_of(kind: EventKind, resource: &str, name: &str, state: Option<&str>) -> EventSummary {
    let (resource, name, state) = (resource.to_owned(), name.to_owned(), state.map(str::to_owned));
    EventSummary { kind, name, state, cluster: None, resource }
}

fn diff_record<R>(
    (before, after): (Option<Arc<R>>, Option<Arc<R>>),
    summary: impl FnOnce(&R) -> EventSummary,
) -> Option<(Change, EventSummary)> {
    match (&before, &after) {
        (None, Some(new)) => Some((Change::Created, summary(new))),
        (Some(_), Some(new)) => Some((Change::Changed, summary(new))),
        (Some(old), None) => Some((Change::Deleted, summary(old))),
        // Created and deleted in one commit.
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
