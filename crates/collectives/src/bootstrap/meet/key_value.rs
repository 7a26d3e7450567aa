//! The meeting at a launcher's key-value server. Every rank leaves its blob under its number; rank 0 collects them and leaves
//! all of them in one value, so that a job of n ranks makes some 3n requests instead of n². Relies on no more than Horovod's
//! contract (an unknown scope loses the key that is deleted), and uses our server's `?wait=` where it is understood.

use std::thread;
use std::time::{Duration, Instant};

use super::client::Client;
use super::envelope::{pack, unpack};
use super::http::HttpError;
use super::{MeetError, Ranks};
use crate::bootstrap::place::Place;

const ALL: &str = "all";
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// Shorter than what our server grants, and than what proxies tolerate.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// After the deadline, to find out who is missing.
const GRACE: Duration = Duration::from_secs(2);

pub fn exchange(
    addr: &str,
    port: u16,
    place: &Place,
    round: u64,
    sealed: &[u8],
    deadline: Instant,
) -> Result<Vec<Vec<u8>>, MeetError> {
    let mut table = Table { client: Client::new(addr, port), round, waits: false };
    table.exchange(place, sealed, deadline).map_err(|failure| match failure {
        Failure::Meet(error) => error,
        Failure::Http(source) => MeetError::Server { server: format!("{addr}:{port}"), source },
    })
}

/// Deletes what this rank left.
pub fn leave(addr: &str, port: u16, rank: usize, round: u64, deadline: Instant) -> Result<(), MeetError> {
    let mut table = Table { client: Client::new(addr, port), round, waits: false };
    let failed = |source| MeetError::Server { server: format!("{addr}:{port}"), source };
    let mut delete = |key: &str| {
        let path = table.path(key);
        table.client.delete(&path, deadline).map_err(failed)
    };
    delete(&rank.to_string())?;
    if rank == 0 { delete(ALL) } else { Ok(()) }
}

enum Failure {
    Meet(MeetError),
    Http(HttpError),
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        Failure::Http(error)
    }
}

/// Where the blobs of one round lie.
struct Table {
    client: Client,
    round: u64,
    /// Whether the server answers `?wait=` when the key comes.
    waits: bool,
}

impl Table {
    fn exchange(&mut self, place: &Place, sealed: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, Failure> {
        let started = Instant::now();
        let own = place.rank.to_string();
        self.client.put(&self.path(&own), sealed, deadline)?;
        // The key is there; a server that does not know about queries takes this for another one.
        self.waits = self.client.get(&format!("{}?wait=0", self.path(&own)), deadline)?.is_some();
        if place.rank == 0 {
            let mut all = vec![sealed.to_vec()];
            for rank in 1..place.size {
                match self.wait_for(&rank.to_string(), deadline)? {
                    Some(blob) => all.push(blob),
                    None => return Err(self.missing(place, started)),
                }
            }
            self.client.put(&self.path(ALL), &pack(&all), deadline)?;
            return Ok(all);
        }
        let Some(all) = self.wait_for(ALL, deadline)? else {
            return Err(self.missing(place, started));
        };
        unpack(&all, place.size).ok_or(Failure::Meet(MeetError::NotOurs { rank: 0 }))
    }

    /// `None` when the key does not come in time.
    fn wait_for(&mut self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, HttpError> {
        let path = self.path(key);
        let mut pause = SHORTEST_PAUSE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let wait = left.mul_f64(0.9).min(LONGEST_WAIT);
            let asked = if self.waits && wait > LONGEST_PAUSE {
                self.client.get(&format!("{path}?wait={:.3}", wait.as_secs_f64()), deadline + GRACE)?
            } else {
                self.client.get(&path, deadline + GRACE)?
            };
            if asked.is_some() {
                return Ok(asked);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Who is not here yet. Everyone is when only rank 0's list is missing: then it is rank 0 that is late, or gone.
    fn missing(&mut self, place: &Place, started: Instant) -> Failure {
        let waited = started.elapsed();
        let until = Instant::now() + GRACE;
        let mut absent = Vec::new();
        for rank in 0..place.size {
            match self.client.get(&self.path(&rank.to_string()), until) {
                Ok(Some(_)) => {}
                Ok(None) => absent.push(rank),
                Err(error) => return Failure::Http(error),
            }
        }
        if absent.is_empty() {
            absent.push(0);
        }
        Failure::Meet(MeetError::Missing { ranks: Ranks(absent), waited, stranger: None })
    }

    fn path(&self, key: &str) -> String {
        format!("/corro_{}/{key}", self.round)
    }
}
