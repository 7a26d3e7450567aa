//! Parallel load of all records at start. One thread reads rows from SQLite, others decode them, and the first inserts
//! them into the state. Most of the time is decoding.
//!
//! Never skips a record: one that cannot be decoded fails the start with its kind and key.

use std::sync::{Arc, Mutex, mpsc};

use rusqlite::Connection;

use crate::StoreError;
use crate::state::State;
use crate::state::kinds::{InsertRecord, decode_row};

/// Rows per batch.
const BATCH_ROWS: usize = 256;
/// Batches that wait for a decoder; bounds memory.
const MAX_QUEUED_BATCHES: usize = 16;
const MAX_DECODERS: usize = 8;

struct Row {
    kind: String,
    key: String,
    body: String,
}

type DecodedBatch = Result<Vec<InsertRecord>, StoreError>;

pub(crate) fn load_records(connection: &Connection, state: &mut State) -> Result<(), StoreError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, MAX_DECODERS);
    std::thread::scope(|scope| {
        let (rows, waiting) = mpsc::sync_channel::<Vec<Row>>(MAX_QUEUED_BATCHES);
        let (done, decoded) = mpsc::channel::<DecodedBatch>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads {
            let (waiting, done) = (waiting.clone(), done.clone());
            scope.spawn(move || decode_batches(&waiting, &done));
        }
        // Only the decoders keep their channel ends, so that each side notices when the other ends.
        drop((waiting, done));
        let mut batch = Vec::with_capacity(BATCH_ROWS);
        let failed = |error| StoreError::cannot_open(connection, error);
        let mut query =
            connection.prepare("SELECT kind, key, body FROM records WHERE kind <> 'reserve'").map_err(failed)?;
        let mut found = query.query([]).map_err(failed)?;
        while let Some(row) = found.next().map_err(failed)? {
            let (kind, key, body) = row.try_into().map_err(failed)?;
            batch.push(Row { kind, key, body });
            if batch.len() == BATCH_ROWS {
                // Decoders end early only after a failure, which is reported below.
                let _ = rows.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH_ROWS)));
                decoded.try_iter().try_for_each(|places| insert_batch(state, places))?;
            }
        }
        let _ = rows.send(batch);
        drop(rows);
        decoded.iter().try_for_each(|places| insert_batch(state, places))
    })
}

fn insert_batch(state: &mut State, inserts: DecodedBatch) -> Result<(), StoreError> {
    inserts?.into_iter().for_each(|insert| insert(state));
    Ok(())
}

fn decode_batches(waiting: &Mutex<mpsc::Receiver<Vec<Row>>>, done: &mpsc::Sender<DecodedBatch>) {
    loop {
        let next = waiting.lock().expect("no one panics while waiting for rows").recv();
        let Ok(batch) = next else { return };
        if done.send(batch.into_iter().filter_map(|row| decode(row).transpose()).collect()).is_err() {
            return;
        }
    }
}

fn decode(row: Row) -> Result<Option<InsertRecord>, StoreError> {
    let Row { kind, key, body } = row;
    match decode_row(&kind, &key, &body) {
        Ok(None) => {
            tracing::warn!(kind, key, "ignoring a record of a kind that this version does not know");
            Ok(None)
        }
        Ok(insert) => Ok(insert),
        Err(source) => Err(StoreError::Record { kind, key, source: Arc::new(source) }),
    }
}
