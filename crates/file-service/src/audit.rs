//! Audit events of the file service. Operations on shares and containers are one event each. Operations on files and
//! directories, of which there can be thousands a second, are summed for a minute by account, share, caller and
//! address. Pure except for a lock: time is an argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::protocol::operation::Operation;

/// Receives the audit events. Implemented by the embedding server.
pub trait AuditSink: Send + Sync + 'static {
    fn record(&self, event: AuditEvent);
    /// A caller with a SAS is about to read a file from some offset to its end, as a client does that follows a growing
    /// log.
    fn on_tail_read(&self, actor: &str, address: &str, path: &str);
    /// A request was rejected with 401 or 403. `actor` is `None` for an unauthenticated caller.
    fn record_refusal(&self, actor: Option<&str>, address: &str, method: &str, path: &str, status: u16, code: &str);
}

/// One event of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEvent {
    /// `key:ACCOUNT/key1`, or `link:` and the first digits of the SHA-256 of the SAS signature.
    pub actor: String,
    pub address: String,
    pub account: String,
    pub share: String,
    /// For example `share.created`.
    pub action: &'static str,
    pub detail: Value,
}

/// Operations with the same key are summed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SumKey {
    pub account: String,
    pub share: String,
    pub actor: String,
    pub address: String,
}

#[derive(Default)]
pub(crate) struct EventSums(Mutex<HashMap<SumKey, EventSum>>);

struct EventSum {
    since: Instant,
    counts: BTreeMap<&'static str, u64>,
    paths: Vec<String>,
}

const SUM_INTERVAL: Duration = Duration::from_secs(60);
const MAX_PATHS: usize = 8;
/// Longer paths are cut.
const MAX_PATH_CHARS: usize = 200;
/// Sums held at once. When one more is needed, all are reported early.
const MAX_SUMS: usize = 1000;

/// How a successful operation is reported.
pub(crate) enum EventKind {
    Single(&'static str),
    Counted(&'static str),
}

/// `None` for operations that change nothing.
pub(crate) fn event_kind(operation: Operation, of_snapshot: bool) -> Option<EventKind> {
    use Operation as O;
    Some(match operation {
        O::CreateShare => EventKind::Single("share.created"),
        O::SetShare => EventKind::Single("share.changed"),
        O::DeleteShare if of_snapshot => EventKind::Single("share.snapshotDeleted"),
        O::DeleteShare => EventKind::Single("share.deleted"),
        O::CreateSnapshot => EventKind::Single("share.snapshot"),
        O::SetShareAcl => EventKind::Single("share.policiesChanged"),
        O::LeaseShare => EventKind::Single("share.leaseChanged"),
        O::SetServiceProperties => EventKind::Single("account.fileSettingsChanged"),
        O::CreateContainer => EventKind::Single("container.created"),
        O::SetContainer => EventKind::Single("container.changed"),
        O::DeleteContainer => EventKind::Single("container.deleted"),
        O::PutBlob | O::PutBlockList => EventKind::Counted("blobsWritten"),
        O::PutBlock => EventKind::Counted("blocksWritten"),
        O::CreateDirectory => EventKind::Counted("directoriesCreated"),
        O::SetDirectory | O::RenameDirectory => EventKind::Counted("directoriesChanged"),
        O::DeleteDirectory => EventKind::Counted("directoriesDeleted"),
        O::CreateFile | O::CreateLink => EventKind::Counted("filesCreated"),
        O::CopyFile => EventKind::Counted("filesCopied"),
        O::SetFile | O::LeaseFile | O::RenameFile | O::SetModified => EventKind::Counted("filesChanged"),
        O::WriteRange | O::WriteRangeFromUrl | O::WriteRanges | O::Append => EventKind::Counted("rangesWritten"),
        O::DeleteFile => EventKind::Counted("filesDeleted"),
        O::ListShares | O::ShareProperties | O::ShareStats | O::ListContainers | O::ContainerProperties => return None,
        O::DirectoryProperties | O::ListDirectory | O::FileProperties | O::ListRanges | O::ReadFile => return None,
        O::ListBlobs | O::BlockList | O::AccountInformation => return None,
        O::AbortCopy | O::UndeleteShare | O::ShareAcl | O::ServiceProperties => return None,
        O::Stat | O::ListCompact | O::SpaceUsage | O::Sync | O::ReadLink => return None,
        O::Permission | O::CreatePermission | O::ListHandles | O::CloseHandles => return None,
    })
}

impl EventSums {
    /// Counts one operation. Returns events that became due because there were too many sums.
    pub fn add(&self, key: SumKey, counter: &'static str, path: &str, now: Instant) -> Vec<AuditEvent> {
        let mut sums = self.0.lock().expect("no one panics while holding the sums");
        let mut due = Vec::new();
        if sums.len() >= MAX_SUMS && !sums.contains_key(&key) {
            due.extend(sums.drain().map(|(key, sum)| sum.into_event(key)));
        }
        let sum =
            sums.entry(key).or_insert_with(|| EventSum { since: now, counts: BTreeMap::new(), paths: Vec::new() });
        *sum.counts.entry(counter).or_default() += 1;
        let path: String = path.chars().take(MAX_PATH_CHARS).collect();
        if sum.paths.len() < MAX_PATHS && !sum.paths.contains(&path) {
            sum.paths.push(path);
        }
        due
    }

    /// Removes and returns the sums that are a minute old, or all sums when `now` is `None`.
    pub fn take_due(&self, now: Option<Instant>) -> Vec<AuditEvent> {
        let mut sums = self.0.lock().expect("no one panics while holding the sums");
        let is_due = |sum: &EventSum| now.is_none_or(|now| now.saturating_duration_since(sum.since) >= SUM_INTERVAL);
        let names: Vec<SumKey> = sums.iter().filter(|(_, sum)| is_due(sum)).map(|(key, _)| key.clone()).collect();
        names.into_iter().filter_map(|key| Some(sums.remove(&key)?.into_event(key))).collect()
    }
}

impl EventSum {
    fn into_event(self, key: SumKey) -> AuditEvent {
        let SumKey { account, share, actor, address } = key;
        let mut detail = json!(self.counts);
        detail["paths"] = json!(self.paths);
        AuditEvent { actor, address, account, share, action: "share.written", detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SumKey {
        let text = |word: &str| word.to_owned();
        SumKey { account: text("acc"), share: text("share"), actor: text(name), address: text("127.0.0.1") }
    }

    #[test]
    fn a_minute_of_work_is_one_event_per_caller() {
        let (sums, start) = (EventSums::default(), Instant::now());
        for number in 0..100 {
            assert_eq!(sums.add(key("a"), "filesCreated", &format!("f{number}"), start), []);
            sums.add(key("a"), "rangesWritten", &format!("f{number}"), start);
        }
        sums.add(key("b"), "filesDeleted", &"x".repeat(1000), start + SUM_INTERVAL / 2);
        assert_eq!(sums.take_due(Some(start + SUM_INTERVAL / 2)), []);
        let due = sums.take_due(Some(start + SUM_INTERVAL));
        let [line] = &due[..] else { panic!("{due:?}") };
        let paths: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
        assert_eq!(line.detail, json!({"filesCreated": 100, "rangesWritten": 100, "paths": paths}));
        assert_eq!((line.actor.as_str(), line.action), ("a", "share.written"));
        let rest = sums.take_due(None);
        assert_eq!((rest.len(), rest[0].detail["paths"][0].as_str().map(str::len)), (1, Some(MAX_PATH_CHARS)));
        assert_eq!(sums.take_due(None), []);
    }

    #[test]
    fn the_number_of_sums_is_bounded_and_no_event_is_lost() {
        let (sums, start) = (EventSums::default(), Instant::now());
        let mut reported = 0;
        for number in 0..3 * MAX_SUMS {
            reported += sums.add(key(&number.to_string()), "filesCreated", "f", start).len();
            assert!(sums.0.lock().expect("free").len() <= MAX_SUMS);
        }
        assert_eq!(reported + sums.take_due(None).len(), 3 * MAX_SUMS);
    }
}
