//! What is told about work done through the file service: shares and containers line by line; files and directories, of
//! which there may be thousands a second, summed for a minute by account, share, caller and address. Pure but for its
//! lock: time is an argument. Entered by [`super::FileService`]; whoever keeps the lines implements [`AuditSink`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::protocol::operation::Operation;

/// Keeps what is told.
pub trait AuditSink: Send + Sync + 'static {
    fn record(&self, event: AuditEvent);
    /// Somebody with a link is about to read a file from some byte to its end, as one does who follows what is written.
    fn on_tail_read(&self, actor: &str, address: &str, path: &str);
    /// A caller was turned away; `actor` is `None` for one that nobody knows.
    fn record_refusal(&self, actor: Option<&str>, address: &str, method: &str, path: &str, status: u16, code: &str);
}

/// One line for the history.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEvent {
    /// `key:ACCOUNT/key1`, or `link:` and the beginning of a digest of the link's signature.
    pub actor: String,
    pub address: String,
    pub account: String,
    pub share: String,
    /// `share.created`
    pub action: &'static str,
    pub detail: Value,
}

/// What is summed under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Who {
    pub account: String,
    pub share: String,
    pub actor: String,
    pub address: String,
}

#[derive(Default)]
pub(crate) struct Sums(Mutex<HashMap<Who, Sum>>);

struct Sum {
    since: Instant,
    counts: BTreeMap<&'static str, u64>,
    paths: Vec<String>,
}

const SPAN: Duration = Duration::from_secs(60);
const MAX_PATHS: usize = 8;
/// Longer ones are cut.
const MAX_PATH: usize = 200;
/// Sums that are kept at once; with more, all are told early.
const MAX_SUMS: usize = 1000;

/// How an operation that changed something is told.
pub(crate) enum Telling {
    Line(&'static str),
    Counted(&'static str),
}

/// `None` for one that only looks.
pub(crate) fn telling(operation: Operation, of_snapshot: bool) -> Option<Telling> {
    use Operation as O;
    Some(match operation {
        O::CreateShare => Telling::Line("share.created"),
        O::SetShare => Telling::Line("share.changed"),
        O::DeleteShare if of_snapshot => Telling::Line("share.snapshotDeleted"),
        O::DeleteShare => Telling::Line("share.deleted"),
        O::CreateSnapshot => Telling::Line("share.snapshot"),
        O::SetShareAcl => Telling::Line("share.policiesChanged"),
        O::LeaseShare => Telling::Line("share.leaseChanged"),
        O::SetServiceProperties => Telling::Line("account.fileSettingsChanged"),
        O::CreateContainer => Telling::Line("container.created"),
        O::SetContainer => Telling::Line("container.changed"),
        O::DeleteContainer => Telling::Line("container.deleted"),
        O::PutBlob | O::PutBlockList => Telling::Counted("blobsWritten"),
        O::PutBlock => Telling::Counted("blocksWritten"),
        O::CreateDirectory => Telling::Counted("directoriesCreated"),
        O::SetDirectory | O::RenameDirectory => Telling::Counted("directoriesChanged"),
        O::DeleteDirectory => Telling::Counted("directoriesDeleted"),
        O::CreateFile | O::CreateLink => Telling::Counted("filesCreated"),
        O::CopyFile => Telling::Counted("filesCopied"),
        O::SetFile | O::LeaseFile | O::RenameFile | O::SetModified => Telling::Counted("filesChanged"),
        O::WriteRange | O::WriteRangeFromUrl | O::WriteRanges | O::Append => Telling::Counted("rangesWritten"),
        O::DeleteFile => Telling::Counted("filesDeleted"),
        O::ListShares | O::ShareProperties | O::ShareStats | O::ListContainers | O::ContainerProperties => return None,
        O::DirectoryProperties | O::ListDirectory | O::FileProperties | O::ListRanges | O::ReadFile => return None,
        O::ListBlobs | O::BlockList | O::AccountInformation => return None,
        O::AbortCopy | O::UndeleteShare | O::ShareAcl | O::ServiceProperties => return None,
        O::About | O::ListBriefly | O::Room | O::Sync | O::ReadLink => return None,
        O::Permission | O::CreatePermission | O::ListHandles | O::CloseHandles => return None,
    })
}

impl Sums {
    /// Counts one change; gives what is due to be told.
    pub fn add(&self, who: Who, what: &'static str, path: &str, now: Instant) -> Vec<AuditEvent> {
        let mut sums = self.0.lock().expect("no one panics while holding the sums");
        let mut due = Vec::new();
        if sums.len() >= MAX_SUMS && !sums.contains_key(&who) {
            due.extend(sums.drain().map(|(who, sum)| sum.line(who)));
        }
        let sum = sums.entry(who).or_insert_with(|| Sum { since: now, counts: BTreeMap::new(), paths: Vec::new() });
        *sum.counts.entry(what).or_default() += 1;
        let path: String = path.chars().take(MAX_PATH).collect();
        if sum.paths.len() < MAX_PATHS && !sum.paths.contains(&path) {
            sum.paths.push(path);
        }
        due
    }

    /// What has been summed for a minute; all of it when the service ends.
    pub fn due(&self, now: Option<Instant>) -> Vec<AuditEvent> {
        let mut sums = self.0.lock().expect("no one panics while holding the sums");
        let is_due = |sum: &Sum| now.is_none_or(|now| now.saturating_duration_since(sum.since) >= SPAN);
        let names: Vec<Who> = sums.iter().filter(|(_, sum)| is_due(sum)).map(|(who, _)| who.clone()).collect();
        names.into_iter().filter_map(|who| Some(sums.remove(&who)?.line(who))).collect()
    }
}

impl Sum {
    fn line(self, who: Who) -> AuditEvent {
        let Who { account, share, actor, address } = who;
        let mut detail = json!(self.counts);
        detail["paths"] = json!(self.paths);
        AuditEvent { actor, address, account, share, action: "share.written", detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Who {
        let text = |word: &str| word.to_owned();
        Who { account: text("acc"), share: text("share"), actor: text(name), address: text("127.0.0.1") }
    }

    #[test]
    fn a_minute_of_work_is_one_line_for_each_caller() {
        let (sums, start) = (Sums::default(), Instant::now());
        for number in 0..100 {
            assert_eq!(sums.add(who("a"), "filesCreated", &format!("f{number}"), start), []);
            sums.add(who("a"), "rangesWritten", &format!("f{number}"), start);
        }
        sums.add(who("b"), "filesDeleted", &"x".repeat(1000), start + SPAN / 2);
        assert_eq!(sums.due(Some(start + SPAN / 2)), []);
        let due = sums.due(Some(start + SPAN));
        let [line] = &due[..] else { panic!("{due:?}") };
        let paths: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
        assert_eq!(line.detail, json!({"filesCreated": 100, "rangesWritten": 100, "paths": paths}));
        assert_eq!((line.actor.as_str(), line.action), ("a", "share.written"));
        let rest = sums.due(None);
        assert_eq!((rest.len(), rest[0].detail["paths"][0].as_str().map(str::len)), (1, Some(MAX_PATH)));
        assert_eq!(sums.due(None), []);
    }

    #[test]
    fn many_callers_do_not_fill_the_memory_and_none_is_lost() {
        let (sums, start) = (Sums::default(), Instant::now());
        let mut told = 0;
        for number in 0..3 * MAX_SUMS {
            told += sums.add(who(&number.to_string()), "filesCreated", "f", start).len();
            assert!(sums.0.lock().expect("free").len() <= MAX_SUMS);
        }
        assert_eq!(told + sums.due(None).len(), 3 * MAX_SUMS);
    }
}
