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
pub fn measure_syncs(dir: &Path, time: Duration) -> Result<Samples> {
    let mut file = File::create(dir.join("syncs"))?;
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < time {
        let started = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Samples::from_values("floor: a synced write of 4 KiB", "ms", times))
}

/// Rows of `size` bytes per second that `clients` threads get acknowledged by one writer with group commit.
pub fn measure_group_commits(dir: &Path, time: Duration, clients: usize, size: usize) -> Result<f64> {
    let mut connection = Connection::open(dir.join("floor.db"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE rows (key TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID",
    )?;
    let (queue, requests) = mpsc::channel::<(String, mpsc::Sender<()>)>();
    let deadline = Instant::now() + time;
    for client in 0..clients {
        let queue = queue.clone();
        std::thread::spawn(move || {
            let (acknowledge, acknowledged) = mpsc::channel();
            for n in 0.. {
                if Instant::now() > deadline || queue.send((format!("{client}-{n}"), acknowledge.clone())).is_err() {
                    return;
                }
                if acknowledged.recv().is_err() {
                    return;
                }
            }
        });
    }
    drop(queue);
    let body = "x".repeat(size);
    let (began, mut rows) = (Instant::now(), 0usize);
    while let Ok(first) = requests.recv() {
        let group: Vec<_> = std::iter::once(first).chain(requests.try_iter()).collect();
        let transaction = connection.transaction()?;
        for (key, _) in &group {
            transaction.prepare_cached("INSERT INTO rows VALUES (?1, ?2)")?.execute(params![key, body])?;
        }
        transaction.commit()?;
        rows += group.len();
        // A client that has ended needs no acknowledgement.
        group.iter().for_each(|(_, acknowledge)| _ = acknowledge.send(()));
    }
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}
