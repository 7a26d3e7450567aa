//! Tests of opening and writing databases, full disks and damaged files.

use super::*;
use crate::sqlite_header::next_commit_number;
use crate::{GroupRecord, Txn};
use corro_model::GroupKey;

fn open(path: &Path) -> (Db, State) {
    Db::open(path, HistoryBounds::DEFAULT, |_| Ok::<_, StoreError>(())).expect("opens")
}

fn changes(state: &State, names: std::ops::Range<usize>) -> (State, Changes) {
    let mut txn = Txn::new(state, "test".into());
    for i in names {
        let (name, location) = (format!("g{i}"), "x".repeat(1000));
        let record = GroupRecord { name, location, tags: None, created: Timestamp::default(), deleting: false };
        txn.put(GroupKey::new(&format!("g{i}")), record);
    }
    txn.finish()
}

#[test]
fn a_history_from_before_the_shelves_is_sorted_onto_them() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let path = dir.path().join("corro.db");
    let old = Connection::open(&path).expect("opens");
    MIGRATIONS[..SPLIT_HISTORY_MIGRATION].iter().for_each(|sql| old.execute_batch(sql).expect("an older schema"));
    old.pragma_update(None, "user_version", SPLIT_HISTORY_MIGRATION as i64).expect("a number");
    for (seq, what) in ["group.created", "principal.created", "request.refused", "job.x"].iter().enumerate() {
        let row = params![seq as i64 + 1, i64::MAX / 2, "ada", what, "g", ""];
        old.execute("INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row).expect("a row");
    }
    drop(old);
    let (db, _) = open(&path);
    let counts = crate::history::HistoryTable::ALL.map(|table| {
        let sql = format!("SELECT count(*) FROM {}", table.sql_name());
        db.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("a number")
    });
    assert_eq!(counts, [2, 1, 1, 0]);
    let all = crate::history::read(&db.connection, &corro_model::history::HistoryFilter::newest(9)).expect("reads");
    assert_eq!(all.iter().map(|entry| entry.number).collect::<Vec<_>>(), [4, 3, 2, 1]);
}

fn batch(changes: &Changes) -> Batch<'_> {
    Batch { changes, jumps: &[], now: Timestamp::default() }
}

/// Forbids the database to grow, as on a full disk.
fn forbid_growth(db: &mut Db) {
    let pages: i64 = db.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("a number");
    db.connection.pragma_update(None, "max_page_count", pages).expect("a limit");
}

#[test]
fn a_full_database_takes_no_growth_but_what_ends_something_from_its_reserve() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let path = dir.path().join("corro.db");
    let (mut db, state) = open(&path);
    let (state, first) = changes(&state, 0..10);
    db.write(batch(&first), Space::Ample).expect("there is space");
    assert!(db.ensure_reserve());
    let (_, more) = changes(&state, 10..60);
    forbid_growth(&mut db);
    let error = db.try_write(batch(&more), false).expect_err("no space");
    let answer = corro_model::ApiError::from(StoreError::Write(Arc::new(error)));
    assert_eq!(answer.status, 507, "{answer:?}");
    let groups = |db: &Db| load(&db.connection).expect("loads").groups.len();
    assert_eq!(groups(&db), 10, "nothing of it is there");
    db.try_write(batch(&more), true).expect("the reserve has the pages");
    assert_eq!(groups(&db), 60);
    db.has_reserve = false;
    assert!(db.ensure_reserve(), "there is space to make it again");
    let rows = "SELECT count(*) FROM records WHERE kind = 'reserve'";
    assert_eq!(db.connection.query_row(rows, [], |row| row.get::<_, i64>(0)), Ok(1));
    assert!(db.close().expect("closes"));
    assert_eq!(open(&path).1.groups.len(), 60);
}

#[test]
fn a_large_group_of_changes_gets_the_pages_it_needs() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let (mut db, state) = open(&dir.path().join("corro.db"));
    let (_, large) = changes(&state, 0..12_000);
    db.write(batch(&large), Space::Ample).expect("there is space");
    assert_eq!(load(&db.connection).expect("loads").groups.len(), 12_000);
}

#[test]
fn commit_numbers_go_on_and_are_drawn_anew_once() {
    let mut numbers = CommitNumbers::new(7);
    assert_eq!(numbers.next(), 8);
    assert!(!numbers.record(8), "the log may not be begun anew yet");
    let drawn = numbers.next();
    assert!(numbers.record(drawn));
    assert_eq!(numbers.next(), next_commit_number(drawn));
}
