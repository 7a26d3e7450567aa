//! Floors of durable storage: synced writes of the disk itself, and plain SQLite in the mode that the server uses.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::{Connection, params};

use crate::stats::Samples;

/// Synced appends of 4 KiB, one after another.
pub fn syncs(dir: &Path, time: Duration) -> Result<Samples> {
    let mut file = File::create(dir.join("syncs"))?;
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < time {
        let one = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(one.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Samples::of("floor: a synced write of 4 KiB", "ms", times))
}

/// Rows of `size` bytes per second that `clients` threads get acknowledged by one writer with group commit.
pub fn grouped_rows(dir: &Path, time: Duration, clients: usize, size: usize) -> Result<f64> {
    let mut connection = Connection::open(dir.join("floor.db"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE rows (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
    )?;
    let (inbox, waiting) = mpsc::channel::<(String, mpsc::Sender<()>)>();
    let deadline = Instant::now() + time;
    for client in 0..clients {
        let inbox = inbox.clone();
        std::thread::spawn(move || {
            let (reply, answer) = mpsc::channel();
            for n in 0.. {
                if Instant::now() > deadline || inbox.send((format!("{client}-{n}"), reply.clone())).is_err() {
                    return;
                }
                if answer.recv().is_err() {
                    return;
                }
            }
        });
    }
    drop(inbox);
    let body = "x".repeat(size);
    let (began, mut rows) = (Instant::now(), 0usize);
    while let Ok(first) = waiting.recv() {
        let group: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
        let transaction = connection.transaction()?;
        for (key, _) in &group {
            transaction.prepare_cached("INSERT INTO rows VALUES (?1, ?2)")?.execute(params![key, body])?;
        }
        transaction.commit()?;
        rows += group.len();
        // A client that has ended needs no reply.
        group.iter().for_each(|(_, reply)| _ = reply.send(()));
    }
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}
