//! What happened, in order: one small row for each change of a job or a node, and for whatever a caller changed. Written
//! in the transaction of the change itself, so that neither is there without the other. Kept in the database alone, never
//! in the snapshot, and bounded in number and age.
//!
//! Entered by `txn`, which notes, by the writer, which keeps it bounded, and by readers through
//! [`Store::history`](crate::Store::history). Never holds a secret, nor text that a user's program wrote.

use std::sync::Arc;
use std::time::Duration;

use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::{AttemptId, Timestamp};
use rusqlite::{Connection, ToSql, Transaction, params};
use serde_json::{Value, json};

use crate::records::*;

/// How much of the past is kept. Whatever is beyond one of these is forgotten, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct HistoryBounds {
    pub rows: u64,
    pub age: Duration,
}

impl HistoryBounds {
    /// About 60 MB on the disk when full.
    pub const USUAL: Self = Self { rows: 300_000, age: Duration::from_secs(180 * 24 * 3600) };
}

/// Who acts when nobody asked: the server's own loops.
pub const SERVER: &str = "corro";

/// On whose behalf a transaction is made, and from where they asked.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub name: Arc<str>,
    from: Option<Arc<str>>,
}

impl From<&str> for Actor {
    fn from(name: &str) -> Self {
        Self::new(name, None)
    }
}

impl Actor {
    pub fn new(name: &str, from: Option<&str>) -> Self {
        Self { name: name.into(), from: from.map(Arc::from) }
    }

    /// The detail of an event, with the address it was asked from.
    pub fn located(&self, detail: Value) -> Value {
        match (&self.from, detail) {
            (None, detail) => detail,
            (Some(from), Value::Object(mut fields)) => {
                fields.insert("from".to_owned(), json!(**from));
                Value::Object(fields)
            }
            (Some(from), Value::Null) => json!({ "from": **from }),
            (Some(from), other) => json!({"from": **from, "detail": other}),
        }
    }
}

/// Something that happened in a transaction; its time is that of the commit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub actor: Arc<str>,
    pub what: String,
    pub resource: String,
    pub detail: Value,
}

/// How the history speaks of a kind of record.
pub trait Subject {
    /// The names that lead to it, from the group down; `None` when its changes are nobody's business.
    fn resource(&self, key: &str) -> Option<String> {
        Some(key.to_owned())
    }

    fn is_deleting(&self) -> bool {
        false
    }

    /// What is worth knowing when it was made or changed: small, and never a secret.
    fn sketch(&self) -> Value {
        Value::Null
    }
}

impl Subject for InstanceRecord {
    fn resource(&self, _key: &str) -> Option<String> {
        None
    }
}

impl Subject for OperationRecord {
    fn resource(&self, _key: &str) -> Option<String> {
        None
    }
}

impl Subject for PrincipalRecord {
    fn sketch(&self) -> Value {
        json!({"name": self.name, "assignments": self.assignments})
    }
}

impl Subject for GroupRecord {
    fn is_deleting(&self) -> bool {
        self.deleting
    }
}

impl Subject for WorkspaceRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }
}

impl Subject for ExperimentRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }
}

impl Subject for ClusterRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }

    fn sketch(&self) -> Value {
        json!({"vmSize": self.spec.vm_size, "scaleSettings": self.spec.scale_settings})
    }
}

impl Subject for FileServerRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }
}

impl Subject for NodeRecord {
    fn resource(&self, key: &str) -> Option<String> {
        Some(format!("{}/{key}", self.cluster))
    }
}

impl Subject for JobRecord {
    fn is_deleting(&self) -> bool {
        self.provisioning.is_deleting()
    }

    fn sketch(&self) -> Value {
        let (priority, nodes) = (self.spec.scheduling_priority, self.spec.node_count);
        json!({"cluster": self.cluster, "priority": priority, "nodeCount": nodes})
    }
}

impl Subject for AccountRecord {
    fn resource(&self, key: &str) -> Option<String> {
        Some(format!("{}/{key}", self.group))
    }

    fn is_deleting(&self) -> bool {
        self.deleting
    }
}

/// Names of nodes that one row may hold; of a larger gang the number is told.
const NAMED_NODES: usize = 16;

pub(crate) fn placement(attempt: &AttemptId, nodes: &[corro_model::NodeId]) -> Value {
    let named = &nodes[..nodes.len().min(NAMED_NODES)];
    json!({"attempt": attempt.number, "nodeCount": nodes.len(), "nodes": named})
}

/// The rows as they lie in the database. Numbers rise by one and rows go only from the oldest end, so that their count is
/// known without counting.
pub(crate) struct History {
    bounds: HistoryBounds,
    /// The oldest row's number; one more than `last` when there is none.
    first: u64,
    last: u64,
    /// The next look at ages, in the time of the rows.
    look: Timestamp,
}

/// So many rows go in one commit at most: forgetting must not make a caller wait.
const FORGET: u64 = 2_000;
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl History {
    pub fn load(connection: &Connection, bounds: HistoryBounds) -> rusqlite::Result<Self> {
        let range = "SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM history";
        let (first, last): (i64, i64) = connection.query_row(range, [], |row| row.try_into())?;
        Ok(Self { bounds, first: first as u64, last: last as u64, look: Timestamp::default() })
    }

    /// Adds the rows and forgets what is too much. What this leaves is true only once the transaction is committed.
    pub fn write(&self, transaction: &Transaction<'_>, events: &[Event], now: Timestamp) -> rusqlite::Result<Self> {
        let mut next = Self { ..*self };
        if events.is_empty() {
            return Ok(next);
        }
        let mut insert = transaction.prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        for event in events {
            next.last += 1;
            let detail = if event.detail.is_null() { String::new() } else { event.detail.to_string() };
            let (number, time) = (next.last as i64, now.millis());
            insert.execute(params![number, time, &*event.actor, event.what, event.resource, detail])?;
        }
        let count = next.last + 1 - next.first;
        // A little more than allowed is let be, so that not every commit has something to forget.
        if count > self.bounds.rows + self.bounds.rows / 64 {
            next.first += (count - self.bounds.rows).min(FORGET + events.len() as u64);
        }
        if now >= self.look {
            let bound = now.millis().saturating_sub(self.bounds.age.as_millis() as i64);
            // Clocks may go back: whatever is older than the first young row goes, and no more.
            let young = "SELECT seq FROM history WHERE seq >= ?1 AND seq < ?2 AND time >= ?3 ORDER BY seq LIMIT 1";
            let end = (next.first + FORGET).min(next.last + 1);
            let found: Option<i64> = transaction
                .prepare_cached(young)?
                .query_map(params![next.first as i64, end as i64, bound], |row| row.get(0))?
                .next()
                .transpose()?;
            match found {
                Some(number) => {
                    next.first = number as u64;
                    next.look = now.plus(LOOK_EVERY);
                }
                None => next.first = end,
            }
        }
        if next.first != self.first {
            transaction.prepare_cached("DELETE FROM history WHERE seq < ?1")?.execute([next.first as i64])?;
        }
        Ok(next)
    }
}

/// The newest rows that `filter` lets through, newest first.
pub(crate) fn read(connection: &Connection, filter: &HistoryFilter) -> rusqlite::Result<Vec<HistoryEntry>> {
    let mut conditions = vec!["1"];
    let mut values: Vec<(&str, &dyn ToSql)> = Vec::new();
    let (resource, kind);
    if let Some(name) = &filter.resource {
        resource = name.trim_matches('/').to_lowercase();
        // '0' follows '/': everything inside lies between the two.
        conditions.push("(resource = :resource OR (resource > :resource || '/' AND resource < :resource || '0'))");
        values.push((":resource", &resource));
    }
    if let Some(name) = &filter.kind {
        kind = name.to_lowercase();
        conditions.push("(what = :kind OR (what > :kind || '.' AND what < :kind || '/'))");
        values.push((":kind", &kind));
    }
    if let Some(actor) = &filter.actor {
        conditions.push("actor = :actor");
        values.push((":actor", actor));
    }
    let since = filter.since.map(Timestamp::millis);
    if let Some(since) = &since {
        conditions.push("time >= :since");
        values.push((":since", since));
    }
    let before = filter.before.map(|number| number as i64);
    if let Some(before) = &before {
        conditions.push("seq < :before");
        values.push((":before", before));
    }
    let limit = filter.limit as i64;
    values.push((":limit", &limit));
    let sql = format!(
        "SELECT seq, time, actor, what, resource, detail FROM history WHERE {} ORDER BY seq DESC LIMIT :limit",
        conditions.join(" AND ")
    );
    let mut query = connection.prepare_cached(&sql)?;
    let entries = query.query_map(values.as_slice(), |row| {
        let detail: String = row.get(5)?;
        Ok(HistoryEntry {
            number: row.get::<_, i64>(0)? as u64,
            time: Timestamp::from_millis(row.get(1)?),
            actor: row.get(2)?,
            what: row.get(3)?,
            resource: row.get(4)?,
            detail: serde_json::from_str(&detail).unwrap_or_default(),
        })
    })?;
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `n` rows at `millis` and tells which numbers are there.
    fn write(connection: &mut Connection, history: &mut History, n: usize, millis: i64) -> (u64, u64, i64) {
        let event = Event { actor: SERVER.into(), what: "job.x".into(), resource: "g".into(), detail: Value::Null };
        let transaction = connection.transaction().expect("begins");
        let events = vec![event; n];
        *history = history.write(&transaction, &events, Timestamp::from_millis(millis)).expect("writes");
        transaction.commit().expect("commits");
        let count = connection.query_row("SELECT count(*) FROM history", [], |row| row.get(0)).expect("counts");
        (history.first, history.last, count)
    }

    fn fresh(bounds: HistoryBounds) -> (Connection, History) {
        let connection = Connection::open_in_memory().expect("opens");
        connection.execute_batch(crate::db::MIGRATIONS[1]).expect("a table");
        let history = History::load(&connection, bounds).expect("loads");
        (connection, history)
    }

    #[test]
    fn rows_beyond_the_number_are_forgotten_oldest_first() {
        let bounds = HistoryBounds { rows: 128, age: Duration::from_secs(1000) };
        let (mut connection, mut history) = fresh(bounds);
        assert_eq!(write(&mut connection, &mut history, 130, 0), (1, 130, 130), "a few more are let be");
        assert_eq!(write(&mut connection, &mut history, 10, 1), (13, 140, 128));
        let loaded = History::load(&connection, bounds).expect("loads");
        assert_eq!((loaded.first, loaded.last), (13, 140));
    }

    #[test]
    fn rows_beyond_the_age_are_forgotten_though_the_clock_went_back() {
        let bounds = HistoryBounds { rows: 1000, age: Duration::from_secs(100) };
        let (mut connection, mut history) = fresh(bounds);
        write(&mut connection, &mut history, 3, 1_000_000);
        write(&mut connection, &mut history, 2, 900_000);
        assert_eq!(write(&mut connection, &mut history, 1, 1_070_000), (1, 6, 6), "none is too old yet");
        assert_eq!(write(&mut connection, &mut history, 1, 1_150_000), (6, 7, 2));
        assert_eq!(write(&mut connection, &mut history, 1, 9_000_000), (8, 8, 1));
    }
}
