//! The meeting at a launcher's key-value server. Every rank leaves its blob under its number; rank 0 collects them and leaves
//! all of them in one value, so that a job of n ranks makes some 3n requests instead of n². Relies on no more than Horovod's
//! contract (an unknown scope loses the key that is deleted), and uses our server's `?wait=` where it is understood.

use std::thread;
use std::time::{Duration, Instant};

use super::error::{RankList, RendezvousError};
use super::http_reply::HttpError;
use super::kv_client::KvClient;
use super::signed_blob::{pack, unpack};
use crate::bootstrap::rank_info::RankInfo;

const ALL: &str = "all";
const FAILED: &str = "failed";
const FAILURE_POLL: Duration = Duration::from_secs(1);
const MAX_REASON_CHARS: usize = 1000;
/// How many times a server that does not wait is asked for a key before it is asked for notices.
const POLLS_PER_FAILURE_CHECK: usize = 50;
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(10);
/// Shorter than what our server grants, and than what proxies tolerate.
const MAX_LONG_POLL: Duration = Duration::from_secs(10);
/// After the deadline, to find out who is missing.
const GRACE: Duration = Duration::from_secs(2);

pub fn exchange(
    addr: &str,
    port: u16,
    rank_info: &RankInfo,
    round: u64,
    sealed: &[u8],
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, FailureKey), RendezvousError> {
    let mut table = Table { client: KvClient::new(addr, port), round, waits: false };
    let all = table.exchange(rank_info, sealed, deadline).map_err(|failure| match failure {
        Failure::Meet(error) => error,
        Failure::Http(source) => RendezvousError::Server { server: format!("{addr}:{port}"), source },
    })?;
    Ok((all, FailureKey { addr: addr.to_owned(), port, round, waits: table.waits }))
}

/// The key of a round under which it is written that its ranks cannot come together: a rank's number, a blank, and why. The launcher's server
/// answers with it as soon as a rank's process has ended.
#[derive(Clone, Debug)]
pub struct FailureKey {
    addr: String,
    port: u16,
    round: u64,
    waits: bool,
}

impl FailureKey {
    /// Waits for at most a second for a notice, and returns the rank it names.
    pub fn wait(&self) -> Option<usize> {
        let mut table = self.table();
        let deadline = Instant::now() + FAILURE_POLL + GRACE;
        let path = table.path(FAILED);
        let found = if self.waits {
            table.client.get(&format!("{path}?wait={:.3}", FAILURE_POLL.as_secs_f64()), deadline)
        } else {
            thread::sleep(FAILURE_POLL / 5);
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
        Table { client: KvClient::new(&self.addr, self.port), round: self.round, waits: self.waits }
    }
}

/// The rank and the reason, as one line of bounded length.
fn parse_notice(value: &[u8]) -> Option<(usize, String)> {
    let text = String::from_utf8_lossy(value);
    let (rank, reason) = text.split_once(' ')?;
    let printable = reason.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    Some((rank.parse().ok()?, printable.take(MAX_REASON_CHARS).collect()))
}

/// Deletes what this rank left.
pub fn delete_keys(addr: &str, port: u16, rank: usize, round: u64, deadline: Instant) -> Result<(), RendezvousError> {
    let mut table = Table { client: KvClient::new(addr, port), round, waits: false };
    let failed = |source| RendezvousError::Server { server: format!("{addr}:{port}"), source };
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
    Meet(RendezvousError),
    Http(HttpError),
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        Failure::Http(error)
    }
}

/// Where the blobs of one round lie.
struct Table {
    client: KvClient,
    round: u64,
    /// Whether the server answers `?wait=` when the key comes.
    waits: bool,
}

impl Table {
    fn exchange(&mut self, rank_info: &RankInfo, sealed: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, Failure> {
        let started = Instant::now();
        let own = rank_info.rank.to_string();
        self.client.put(&self.path(&own), sealed, deadline)?;
        // The key is there; a server that does not know about queries takes this for another one.
        self.waits = self.client.get(&format!("{}?wait=0", self.path(&own)), deadline)?.is_some();
        if rank_info.rank == 0 {
            let mut all = vec![sealed.to_vec()];
            for rank in 1..rank_info.size {
                match self.wait_for(&rank.to_string(), deadline)? {
                    Some(blob) => all.push(blob),
                    None => return Err(self.missing(rank_info, started)),
                }
            }
            self.client.put(&self.path(ALL), &pack(&all), deadline)?;
            return Ok(all);
        }
        let Some(all) = self.wait_for(ALL, deadline)? else {
            return Err(self.missing(rank_info, started));
        };
        unpack(&all, rank_info.size).ok_or(Failure::Meet(RendezvousError::Malformed { rank: 0 }))
    }

    /// `None` when the key does not come in time. An error when it is known that it will not.
    fn wait_for(&mut self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, Failure> {
        let (path, failed) = (self.path(key), self.path(FAILED));
        let mut pause = MIN_PAUSE;
        for n_asked in 1.. {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let wait = left.mul_f64(0.9).min(MAX_LONG_POLL);
            let asked = if self.waits && wait > MAX_PAUSE {
                self.client.get(&format!("{path}?wait={:.3}", wait.as_secs_f64()), deadline + GRACE)?
            } else {
                self.client.get(&path, deadline + GRACE)?
            };
            if asked.is_some() {
                return Ok(asked);
            }
            if self.waits || n_asked % POLLS_PER_FAILURE_CHECK == 0 {
                let notice = self.client.get(&failed, deadline + GRACE)?;
                if let Some((_, reason)) = notice.as_deref().and_then(parse_notice) {
                    return Err(Failure::Meet(RendezvousError::PeerFailed { reason }));
                }
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(MAX_PAUSE);
        }
        unreachable!("the loop ends at the deadline")
    }

    /// Who is not here yet. Everyone is when only rank 0's list is missing: then it is rank 0 that is late, or gone.
    fn missing(&mut self, rank_info: &RankInfo, started: Instant) -> Failure {
        let waited = started.elapsed();
        let until = Instant::now() + GRACE;
        let mut absent = Vec::new();
        for rank in 0..rank_info.size {
            match self.client.get(&self.path(&rank.to_string()), until) {
                Ok(Some(_)) => {}
                Ok(None) => absent.push(rank),
                Err(error) => return Failure::Http(error),
            }
        }
        if absent.is_empty() {
            absent.push(0);
        }
        Failure::Meet(RendezvousError::Missing { ranks: RankList(absent), waited, refused: None })
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
            (&long, Some((2, "x".repeat(MAX_REASON_CHARS)))),
            ("", None),
            ("2", None),
            ("two 2", None),
        ] {
            assert_eq!(parse_notice(value.as_bytes()), expected, "{value:?}");
        }
    }
}
