//! Storage of history rows: inserted in the transaction of the change, pruned a few at a time, read newest first.
//! Sequence numbers are shared by all tables; each table is pruned from its oldest row.

use std::time::Duration;

use corro_model::Timestamp;
use corro_model::history::{HistoryEntry, HistoryFilter};
use rusqlite::{Connection, ToSql, Transaction, params};
use serde_json::{Value, json};

use super::{CLOCK_JUMPED, Event, HistoryBounds, HistoryTable, SERVER};
use crate::clock::ClockJump;

pub(crate) struct History {
    bounds: HistoryBounds,
    last: u64,
    /// Rows in each table, in the order of [`HistoryTable::ALL`].
    counts: [u64; HistoryTable::ALL.len()],
    /// Next check of row ages, in wall-clock time.
    next_age_check: Timestamp,
    /// Time of the last row at load.
    newest: Option<Timestamp>,
    /// Clock jumps in order: sequence number of the row that records the jump, and milliseconds.
    jumps: Vec<(u64, i64)>,
}

/// Rows pruned per commit at most, so that pruning does not delay callers.
const MAX_PRUNED_ROWS: u64 = 2_000;
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

impl History {
    pub fn load(connection: &Connection, bounds: HistoryBounds) -> rusqlite::Result<Self> {
        let (counts, next_age_check, jumps) = (Default::default(), Timestamp::default(), load_jumps(connection)?);
        let mut loaded = Self { bounds, last: 0, counts, next_age_check, newest: None, jumps };
        for (table, count) in HistoryTable::ALL.into_iter().zip(&mut loaded.counts) {
            // SQLite returns the time of the row with the largest number.
            let sql = format!("SELECT count(*), coalesce(max(seq), 0), coalesce(time, 0) FROM {}", table.sql_name());
            let (rows, last, time): (i64, i64, i64) = connection.query_row(&sql, [], |row| row.try_into())?;
            *count = rows as u64;
            if last as u64 > loaded.last {
                (loaded.last, loaded.newest) = (last as u64, Some(Timestamp::from_millis(time)));
            }
        }
        Ok(loaded)
    }

    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// Inserts rows, clock jumps first, and prunes. Returns the new counters, which are valid once the transaction is
    /// committed.
    pub fn write(
        &self,
        transaction: &Transaction<'_>,
        jumps: &[ClockJump],
        events: &[Event],
        now: Timestamp,
    ) -> rusqlite::Result<Self> {
        let mut next = Self { jumps: self.jumps.clone(), ..*self };
        if events.is_empty() {
            return Ok(next);
        }
        for jump in jumps {
            next.add(transaction, &event_of(jump), now)?;
            next.jumps.push((next.last, jump.millis()));
        }
        for event in events {
            next.add(transaction, event, now)?;
        }
        // Also if the clock was set back; otherwise the next check would be far away.
        let checks_ages = now >= self.next_age_check || self.next_age_check > now.plus(PRUNE_INTERVAL);
        let mut young = true;
        let next_age = Ages { bound: self.bounds.age, jumps: &next.jumps };
        for (table, count) in HistoryTable::ALL.into_iter().zip(&mut next.counts) {
            let bound = if table == HistoryTable::Work { self.bounds.rows } else { self.bounds.rows_per_other_table };
            // Allows a small excess, so that not every commit prunes.
            if *count > bound + bound / 64 {
                let many = (*count - bound).min(MAX_PRUNED_ROWS + events.len() as u64);
                let oldest = format!(
                    "DELETE FROM {0} WHERE seq IN (SELECT seq FROM {0} ORDER BY seq LIMIT ?1)",
                    table.sql_name()
                );
                *count -= transaction.prepare_cached(&oldest)?.execute([many as i64])? as u64;
            }
            if checks_ages {
                let gone = next_age.prune_old(transaction, table, now)?;
                *count -= gone;
                young &= gone < MAX_PRUNED_ROWS;
            }
        }
        if checks_ages && young {
            next.next_age_check = now.plus(PRUNE_INTERVAL);
        }
        Ok(next)
    }

    fn add(&mut self, transaction: &Transaction<'_>, event: &Event, now: Timestamp) -> rusqlite::Result<()> {
        let table = HistoryTable::for_event(&event.what);
        let sql = format!("INSERT INTO {} VALUES (?1, ?2, ?3, ?4, ?5, ?6)", table.sql_name());
        self.last += 1;
        let detail = if event.detail.is_null() { String::new() } else { event.detail.to_string() };
        let (number, time) = (self.last as i64, now.millis());
        let row = params![number, time, &*event.actor, event.what, event.resource, detail];
        transaction.prepare_cached(&sql)?.execute(row)?;
        self.counts[table as usize] += 1;
        Ok(())
    }
}

fn event_of(jump: &ClockJump) -> Event {
    let detail = json!({"from": jump.from, "to": jump.to});
    Event { actor: SERVER.into(), what: CLOCK_JUMPED.to_owned(), resource: "clock".to_owned(), detail }
}

/// Clock jumps that earlier processes recorded.
fn load_jumps(connection: &Connection) -> rusqlite::Result<Vec<(u64, i64)>> {
    let sql = format!(
        "SELECT seq, detail FROM {} WHERE what = ?1 ORDER BY seq",
        HistoryTable::for_event(CLOCK_JUMPED).sql_name()
    );
    let mut query = connection.prepare(&sql)?;
    let rows = query.query_map([CLOCK_JUMPED], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))?;
    let jump = |(number, detail): (i64, String)| {
        let detail: Value = serde_json::from_str(&detail).ok()?;
        let time = |field: &str| detail[field].as_str().and_then(Timestamp::parse);
        Some((number as u64, ClockJump { from: time("from")?, to: time("to")? }.millis()))
    };
    rows.filter_map(|row| row.map(jump).transpose()).collect()
}

/// Computes row ages. Clock jumps after a row do not count towards its age.
struct Ages<'a> {
    bound: Duration,
    jumps: &'a [(u64, i64)],
}

impl Ages<'_> {
    fn is_old(&self, number: i64, time: i64, now: Timestamp) -> bool {
        let later = self.jumps.iter().rev().take_while(|(row, _)| *row as i64 > number);
        let jumped: i64 = later.map(|(_, millis)| millis).sum();
        now.millis().saturating_sub(time).saturating_sub(jumped) > self.bound.as_millis() as i64
    }

    /// Clocks may go back, so pruning stops at the first row that is young enough.
    fn prune_old(&self, transaction: &Transaction<'_>, table: HistoryTable, now: Timestamp) -> rusqlite::Result<u64> {
        let first = format!("SELECT seq, time FROM {} ORDER BY seq LIMIT ?1", table.sql_name());
        let mut query = transaction.prepare_cached(&first)?;
        let mut rows = query.query([MAX_PRUNED_ROWS as i64])?;
        let mut end = None;
        while let Some(row) = rows.next()? {
            let (number, time) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?);
            if !self.is_old(number, time, now) {
                break;
            }
            end = Some(number);
        }
        let Some(end) = end else { return Ok(0) };
        let old = format!("DELETE FROM {} WHERE seq <= ?1", table.sql_name());
        Ok(transaction.prepare_cached(&old)?.execute([end])? as u64)
    }
}

/// Newest rows that match `filter`, newest first; or those after a number, oldest first.
pub(crate) fn read(connection: &Connection, filter: &HistoryFilter) -> rusqlite::Result<Vec<HistoryEntry>> {
    let mut conditions = vec!["1"];
    let mut values: Vec<(&str, &dyn ToSql)> = Vec::new();
    let (resource, kind);
    if let Some(name) = &filter.resource {
        resource = name.trim_matches('/').to_lowercase();
        // '0' follows '/' in ASCII, so all resources inside lie between the two.
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
    let after = filter.after.map(|number| number as i64);
    if let Some(after) = &after {
        conditions.push("seq > :after");
        values.push((":after", after));
    }
    let order = if filter.after.is_some() { "ASC" } else { "DESC" };
    let limit = filter.limit as i64;
    values.push((":limit", &limit));
    let conditions = conditions.join(" AND ");
    let of_shelf = |table: HistoryTable| {
        format!("SELECT seq, time, actor, what, resource, detail FROM {} WHERE {conditions}", table.sql_name())
    };
    // Sequence numbers are shared by all tables, so the union is ordered.
    let sql = format!("{} ORDER BY seq {order} LIMIT :limit", HistoryTable::ALL.map(of_shelf).join(" UNION ALL "));
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

    fn write_as(connection: &mut Connection, history: &mut History, what: &str, n: usize, millis: i64) {
        let event = Event { actor: SERVER.into(), what: what.into(), resource: "g".into(), detail: Value::Null };
        let transaction = connection.transaction().expect("begins");
        let events = vec![event; n];
        *history = history.write(&transaction, &[], &events, Timestamp::from_millis(millis)).expect("writes");
        transaction.commit().expect("commits");
    }

    /// Writes `n` rows at `millis`; returns which numbers exist.
    fn write(connection: &mut Connection, history: &mut History, n: usize, millis: i64) -> (i64, i64, i64) {
        write_as(connection, history, "job.x", n, millis);
        let there = "SELECT min(seq), max(seq), count(*) FROM history";
        let there: (i64, i64, i64) = connection.query_row(there, [], |row| row.try_into()).expect("counts");
        assert_eq!((history.last as i64, history.counts[0] as i64), (there.1, there.2));
        there
    }

    fn fresh(bounds: HistoryBounds) -> (Connection, History) {
        let connection = Connection::open_in_memory().expect("opens");
        for migration in [1, crate::db::SPLIT_HISTORY_MIGRATION] {
            connection.execute_batch(crate::db::MIGRATIONS[migration]).expect("tables");
        }
        let history = History::load(&connection, bounds).expect("loads");
        (connection, history)
    }

    #[test]
    fn rows_beyond_the_number_are_forgotten_oldest_first() {
        let bounds = HistoryBounds { rows: 128, rows_per_other_table: 128, age: Duration::from_secs(1000) };
        let (mut connection, mut history) = fresh(bounds);
        assert_eq!(write(&mut connection, &mut history, 130, 0), (1, 130, 130), "a few more are let be");
        assert_eq!(write(&mut connection, &mut history, 10, 1), (13, 140, 128));
        let loaded = History::load(&connection, bounds).expect("loads");
        assert_eq!((loaded.counts, loaded.last), ([128, 0, 0, 0], 140));
    }

    #[test]
    fn rows_beyond_the_age_are_forgotten_though_the_clock_went_back() {
        let bounds = HistoryBounds { rows: 1000, rows_per_other_table: 1000, age: Duration::from_secs(100) };
        let (mut connection, mut history) = fresh(bounds);
        write(&mut connection, &mut history, 3, 1_000_000);
        write(&mut connection, &mut history, 2, 900_000);
        assert_eq!(write(&mut connection, &mut history, 1, 1_070_000), (1, 6, 6), "none is too old yet");
        assert_eq!(write(&mut connection, &mut history, 1, 1_150_000), (6, 7, 2));
        assert_eq!(write(&mut connection, &mut history, 1, 9_000_000), (8, 8, 1));
    }

    #[test]
    fn rows_from_before_a_jump_of_the_clock_are_as_old_as_they_are() {
        let bounds = HistoryBounds { rows: 1000, rows_per_other_table: 1000, age: Duration::from_secs(100) };
        let (mut connection, mut history) = fresh(bounds);
        write(&mut connection, &mut history, 3, 1_000_000);
        // From the 50th second on, the clock is wrong by a day.
        let day = 86_400_000;
        let (from, to) = (Timestamp::from_millis(1_050_000), Timestamp::from_millis(1_050_000 + day));
        let event = Event { actor: SERVER.into(), what: "job.x".into(), resource: "g".into(), detail: Value::Null };
        let transaction = connection.transaction().expect("begins");
        history = history.write(&transaction, &[ClockJump { from, to }], &[event], to).expect("writes");
        transaction.commit().expect("commits");
        assert_eq!(history.counts, [4, 1, 0, 0], "nothing went, and the jump is written down");
        // Also after a restart, which has not seen the jump itself.
        let loaded = History::load(&connection, bounds).expect("loads");
        assert_eq!((&loaded.jumps, loaded.newest()), (&history.jumps, Some(to)));
        let mut history = loaded;
        assert_eq!(write(&mut connection, &mut history, 1, 1_090_000 + day), (1, 6, 5));
        assert_eq!(write(&mut connection, &mut history, 1, 1_160_000 + day).0, 6, "old by the time that really passed");
    }

    #[test]
    fn no_shelf_pushes_out_what_is_on_another() {
        let bounds = HistoryBounds { rows: 64, rows_per_other_table: 16, age: Duration::from_secs(1000) };
        let (mut connection, mut history) = fresh(bounds);
        write_as(&mut connection, &mut history, "principal.created", 3, 0);
        for what in ["workspace.changed", "request.refused", "share.written", "job.x"] {
            write_as(&mut connection, &mut history, what, 500, 1);
        }
        write_as(&mut connection, &mut history, "key.regenerated", 2, 1);
        assert_eq!(history.counts, [64, 5, 16, 16]);
        let read = |kind: Option<&str>| {
            let filter = HistoryFilter { kind: kind.map(str::to_owned), ..HistoryFilter::newest(1000) };
            read(&connection, &filter).expect("reads")
        };
        assert_eq!(read(Some("principal")).iter().map(|entry| entry.number).collect::<Vec<_>>(), [3, 2, 1]);
        let all: Vec<u64> = read(None).iter().map(|entry| entry.number).collect();
        assert_eq!(all.len(), 64 + 5 + 16 + 16);
        assert!(all.is_sorted_by(|one, next| one > next), "newest first over all tables: {all:?}");
    }
}
