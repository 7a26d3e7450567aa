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
const FAILED: &str = "failed";
const NOTICE_WAIT: Duration = Duration::from_secs(1);
const LONGEST_REASON: usize = 1000;
/// How many times a server that does not wait is asked for a key before it is asked for notices.
const ASKS_PER_NOTICE: usize = 50;
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
) -> Result<(Vec<Vec<u8>>, Notices), MeetError> {
    let mut table = Table { client: Client::new(addr, port), round, waits: false };
    let all = table.exchange(place, sealed, deadline).map_err(|failure| match failure {
        Failure::Meet(error) => error,
        Failure::Http(source) => MeetError::Server { server: format!("{addr}:{port}"), source },
    })?;
    Ok((all, Notices { addr: addr.to_owned(), port, round, waits: table.waits }))
}

/// The key of a round under which it is written that its ranks cannot come together: a rank's number, a blank, and why. The launcher's server
/// answers with it as soon as a rank's process has ended.
#[derive(Clone, Debug)]
pub struct Notices {
    addr: String,
    port: u16,
    round: u64,
    waits: bool,
}

impl Notices {
    /// Waits for at most a second for a notice, and returns the rank it names.
    pub fn wait(&self) -> Option<usize> {
        let mut table = self.table();
        let deadline = Instant::now() + NOTICE_WAIT + GRACE;
        let path = table.path(FAILED);
        let found = if self.waits {
            table.client.get(&format!("{path}?wait={:.3}", NOTICE_WAIT.as_secs_f64()), deadline)
        } else {
            thread::sleep(NOTICE_WAIT / 5);
            table.client.get(&path, deadline)
        };
        parse_notice(&found.ok()??).map(|(rank, _)| rank)
    }

    /// Best effort.
    pub fn put(&self, rank: usize, reason: &str) {
        let mut table = self.table();
        let path = table.path(FAILED);
        let _ = table.client.put(&path, format!("{rank} {reason}").as_bytes(), Instant::now() + GRACE);
    }

    fn table(&self) -> Table {
        Table { client: Client::new(&self.addr, self.port), round: self.round, waits: self.waits }
    }
}

/// The rank and the reason, as one line of bounded length.
fn parse_notice(value: &[u8]) -> Option<(usize, String)> {
    let text = String::from_utf8_lossy(value);
    let (rank, reason) = text.split_once(' ')?;
    let printable = reason.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    Some((rank.parse().ok()?, printable.take(LONGEST_REASON).collect()))
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
    if rank != 0 {
        return Ok(());
    }
    delete(ALL)
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

    /// `None` when the key does not come in time. An error when it is known that it will not.
    fn wait_for(&mut self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, Failure> {
        let (path, failed) = (self.path(key), self.path(FAILED));
        let mut pause = SHORTEST_PAUSE;
        for n_asked in 1.. {
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
            if self.waits || n_asked % ASKS_PER_NOTICE == 0 {
                let notice = self.client.get(&failed, deadline + GRACE)?;
                if let Some((_, reason)) = notice.as_deref().and_then(parse_notice) {
                    return Err(Failure::Meet(MeetError::PeerFailed { reason }));
                }
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the loop ends at the deadline")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_name_a_rank_and_a_reason() {
        let long = format!("2 {}", "x".repeat(5000));
        for (value, expected) in [
            (
                "2 rank 2 on host n1 ended with exit code 1",
                Some((2, "rank 2 on host n1 ended with exit code 1".to_owned())),
            ),
            ("2 two\nlines\x1b[31m", Some((2, "two lines [31m".to_owned()))),
            (&long, Some((2, "x".repeat(LONGEST_REASON)))),
            ("", None),
            ("2", None),
            ("two 2", None),
        ] {
            assert_eq!(parse_notice(value.as_bytes()), expected, "{value:?}");
        }
    }
}
