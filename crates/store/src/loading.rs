//! Reading every record at start. One thread takes rows out of SQLite, others turn them into records, and the first puts those
//! into the state: most of the time goes into decoding, which needs nobody else.
//!
//! Entered by `db` alone. Never leaves a record out: what cannot be read stops the start and is named.

use std::sync::{Arc, Mutex, mpsc};

use rusqlite::Connection;

use crate::StoreError;
use crate::db::open_failed;
use crate::records::decode_row;
use crate::state::State;

/// Rows that are handed over at a time.
const BATCH: usize = 256;
/// Batches that wait for a decoder, so that a large database is not in memory twice.
const WAITING: usize = 16;
const MOST_THREADS: usize = 8;

struct Row {
    kind: String,
    key: String,
    body: String,
}

/// A record on its way into the state.
pub(crate) type Place = Box<dyn FnOnce(&mut State) + Send>;
type Decoded = Result<Vec<Place>, StoreError>;

pub(crate) fn load(connection: &Connection, state: &mut State) -> Result<(), StoreError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, MOST_THREADS);
    std::thread::scope(|scope| {
        let (rows, waiting) = mpsc::sync_channel::<Vec<Row>>(WAITING);
        let (done, decoded) = mpsc::channel::<Decoded>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads {
            let (waiting, done) = (waiting.clone(), done.clone());
            scope.spawn(move || decode_batches(&waiting, &done));
        }
        // Only the decoders hold on to their ends, so that everything ends when one side does.
        drop((waiting, done));
        let mut batch = Vec::with_capacity(BATCH);
        let failed = |error| open_failed(connection, error);
        let mut query =
            connection.prepare("SELECT kind, key, body FROM records WHERE kind <> 'reserve'").map_err(failed)?;
        let mut found = query.query([]).map_err(failed)?;
        while let Some(row) = found.next().map_err(failed)? {
            let (kind, key, body) = row.try_into().map_err(failed)?;
            batch.push(Row { kind, key, body });
            if batch.len() == BATCH {
                // Decoders end early only when one has failed, which is seen below.
                let _ = rows.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
                decoded.try_iter().try_for_each(|places| put(state, places))?;
            }
        }
        let _ = rows.send(batch);
        drop(rows);
        decoded.iter().try_for_each(|places| put(state, places))
    })
}

fn put(state: &mut State, places: Decoded) -> Result<(), StoreError> {
    places?.into_iter().for_each(|place| place(state));
    Ok(())
}

fn decode_batches(waiting: &Mutex<mpsc::Receiver<Vec<Row>>>, done: &mpsc::Sender<Decoded>) {
    loop {
        let next = waiting.lock().expect("no one panics while waiting for rows").recv();
        let Ok(batch) = next else { return };
        if done.send(batch.into_iter().filter_map(|row| decode(row).transpose()).collect()).is_err() {
            return;
        }
    }
}

fn decode(row: Row) -> Result<Option<Place>, StoreError> {
    let Row { kind, key, body } = row;
    match decode_row(&kind, &key, &body) {
        Ok(None) => {
            tracing::warn!(kind, key, "a record of a kind this version does not know was left alone");
            Ok(None)
        }
        Ok(place) => Ok(place),
        Err(source) => Err(StoreError::Record { kind, key, source: Arc::new(source) }),
    }
}
