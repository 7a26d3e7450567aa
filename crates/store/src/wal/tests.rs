//! Write-ahead logs of SQLite, then truncated, torn, swapped and damaged.

use std::path::PathBuf;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::*;

/// A database with transactions in its write-ahead log, as after `kill -9`.
struct Crashed {
    dir: tempfile::TempDir,
}

impl Crashed {
    fn new(transactions: usize) -> Self {
        let crashed = Self { dir: tempfile::tempdir().expect("a temp dir") };
        let connection = crashed.open();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a TEXT)").expect("made");
        crashed.commit(&connection, transactions);
        crashed
    }

    fn open(&self) -> Connection {
        let connection = Connection::open(self.database()).expect("opens");
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("set");
        connection
    }

    fn commit(&self, connection: &Connection, transactions: usize) {
        for _ in 0..transactions {
            connection.execute("INSERT INTO t VALUES (?1)", ["x".repeat(6000)]).expect("a row");
        }
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("t.db")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.wal()).expect("a log")
    }

    fn wal(&self) -> PathBuf {
        self.dir.path().join("t.db-wal")
    }

    fn read(&self, bytes: &[u8]) -> Wal {
        std::fs::write(self.wal(), bytes).expect("written");
        let open = |path| File::open(path).expect("opens");
        read(&open(self.wal()), &open(self.database())).expect("reads")
    }
}

const FRAME: usize = FRAME_HEADER_BYTES + 4096;

#[test]
fn what_a_crash_leaves_is_sound() {
    let crashed = Crashed::new(5);
    let bytes = crashed.bytes();
    assert!(matches!(crashed.read(&bytes), Wal::Commits(_)));
    // Truncated anywhere: an incomplete header, an incomplete transaction.
    for len in (0..HEADER_BYTES).chain((HEADER_BYTES..bytes.len()).step_by(509)) {
        assert!(!matches!(crashed.read(&bytes[..len]), Wal::Damaged(_)), "{len} bytes");
    }
    assert_eq!(crashed.read(&vec![0; 9000]), Wal::Empty);
    // Blocks of the last transaction that were not written to disk, in any order.
    let mut torn = bytes.clone();
    let last = torn.len() - 2 * FRAME;
    torn[last + 100..last + 600].fill(0);
    assert!(matches!(crashed.read(&torn), Wal::Commits(_)));
}

#[test]
fn a_log_that_was_begun_anew_is_sound_at_every_byte_of_its_header() {
    let crashed = Crashed::new(5);
    let connection = crashed.open();
    connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).expect("copied");
    let old = crashed.bytes();
    crashed.commit(&connection, 1);
    let new = crashed.bytes();
    assert_ne!(old[..HEADER_BYTES], new[..HEADER_BYTES]);
    assert!(matches!(crashed.read(&new), Wal::Commits(_)), "older frames follow");
    for torn in 0..=HEADER_BYTES {
        let header = [&new[..torn], &old[torn..]].concat();
        assert!(!matches!(crashed.read(&header), Wal::Damaged(_)), "{torn} bytes of the new header");
    }
}

#[test]
fn a_log_that_is_damaged_or_none_at_all_is_found() {
    let crashed = Crashed::new(5);
    let bytes = crashed.bytes();
    let check = |expected: WalDamage, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        assert_eq!(crashed.read(&bytes), Wal::Damaged(expected));
    };
    check(WalDamage::NotALog, &|bytes| bytes.fill(0x5a));
    check(WalDamage::NotALog, &|bytes| *bytes = b"garbage".to_vec());
    check(WalDamage::NotALog, &|bytes| bytes[..HEADER_BYTES].fill(0));
    check(WalDamage::NotALog, &|bytes| bytes[8] = 3);
    check(WalDamage::Header, &|bytes| bytes[17] ^= 1);
    check(WalDamage::Frames, &|bytes| bytes[HEADER_BYTES..].fill(0x5a));
    check(WalDamage::Frames, &|bytes| bytes[HEADER_BYTES + FRAME_HEADER_BYTES + 200] ^= 1);
    check(WalDamage::Frames, &|bytes| bytes[HEADER_BYTES + 2 * FRAME..HEADER_BYTES + 3 * FRAME].fill(0x5a));
}
