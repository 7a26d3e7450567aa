//! Rendezvous at a launcher's key-value server. Every rank puts its blob under its rank; rank 0 collects them and puts
//! all of them into one value, so that n ranks make some 3n requests instead of n². Needs only Horovod's
//! contract (`DELETE` in an unknown scope deletes the key), and uses long polling (`?wait=`) if the server supports it.

use std::thread;
use std::time::{Duration, Instant};

use super::error::{RankList, RendezvousError};
use super::http_reply::HttpError;
use super::kv_client::KvClient;
use super::signed_blob::{pack, unpack};
use crate::bootstrap::rank_info::RankInfo;

/// Key of the value with the blobs of all ranks.
const ALL_KEY: &str = "all";
/// Key that says that the rendezvous has failed: a rank, a blank, and the reason. The launcher's server sets it as soon as a rank's process
/// has ended.
const FAILED_KEY: &str = "failed";
const FAILURE_POLL: Duration = Duration::from_secs(1);
const MAX_REASON_CHARS: usize = 1000;
/// Polls of a key between two checks of `FAILED_KEY`, at a server without long polling.
const POLLS_PER_FAILURE_CHECK: usize = 50;
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(10);
/// Shorter than the limit of our server, and than the timeouts of proxies.
const MAX_LONG_POLL: Duration = Duration::from_secs(10);
/// Extra time after the deadline to find out which ranks are missing.
const DIAGNOSIS_GRACE: Duration = Duration::from_secs(2);

pub fn exchange(
    addr: &str,
    port: u16,
    rank_info: &RankInfo,
    round: u64,
    signed: &[u8],
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, FailureKey), RendezvousError> {
    let mut kv_round = KvRound { client: KvClient::new(addr, port), round, has_long_poll: false };
    let all = kv_round.exchange(rank_info, signed, deadline).map_err(|failure| match failure {
        Failure::Rendezvous(error) => error,
        Failure::Http(source) => RendezvousError::Server { server: format!("{addr}:{port}"), source },
    })?;
    Ok((all, FailureKey { addr: addr.to_owned(), port, round, has_long_poll: kv_round.has_long_poll }))
}

/// Access to the key under which a round reports a failed rank.
#[derive(Clone, Debug)]
pub struct FailureKey {
    addr: String,
    port: u16,
    round: u64,
    has_long_poll: bool,
}

impl FailureKey {
    /// Waits at most a second for a failure, and returns its rank.
    pub fn wait(&self) -> Option<usize> {
        let mut kv_round = self.kv_round();
        let deadline = Instant::now() + FAILURE_POLL + DIAGNOSIS_GRACE;
        let path = kv_round.path(FAILED_KEY);
        let found = if self.has_long_poll {
            kv_round.client.get(&format!("{path}?wait={:.3}", FAILURE_POLL.as_secs_f64()), deadline)
        } else {
            thread::sleep(FAILURE_POLL / 5);
            kv_round.client.get(&path, deadline)
        };
        parse_failure(&found.ok()??).map(|(rank, _)| rank)
    }

    /// The rank of a failure that has been reported.
    pub fn get(&self) -> Option<usize> {
        let mut kv_round = self.kv_round();
        let path = kv_round.path(FAILED_KEY);
        let found = kv_round.client.get(&path, Instant::now() + DIAGNOSIS_GRACE);
        parse_failure(&found.ok()??).map(|(rank, _)| rank)
    }

    /// Reports a failure. Best effort.
    pub fn put(&self, rank: usize, reason: &str) {
        let mut kv_round = self.kv_round();
        let path = kv_round.path(FAILED_KEY);
        let _ = kv_round.client.put(&path, format!("{rank} {reason}").as_bytes(), Instant::now() + DIAGNOSIS_GRACE);
    }

    fn kv_round(&self) -> KvRound {
        KvRound { client: KvClient::new(&self.addr, self.port), round: self.round, has_long_poll: self.has_long_poll }
    }
}

/// The rank and the reason. Control characters are replaced, and the length is bounded.
fn parse_failure(value: &[u8]) -> Option<(usize, String)> {
    let text = String::from_utf8_lossy(value);
    let (rank, reason) = text.split_once(' ')?;
    let printable = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    Some((rank.parse().ok()?, printable.take(MAX_REASON_CHARS).collect()))
}

/// Deletes the keys that this rank has put.
pub fn delete_keys(addr: &str, port: u16, rank: usize, round: u64, deadline: Instant) -> Result<(), RendezvousError> {
    let mut kv_round = KvRound { client: KvClient::new(addr, port), round, has_long_poll: false };
    let failed = |source| RendezvousError::Server { server: format!("{addr}:{port}"), source };
    let mut delete = |key: &str| {
        let path = kv_round.path(key);
        kv_round.client.delete(&path, deadline).map_err(failed)
    };
    delete(&rank.to_string())?;
    if rank != 0 {
        return Ok(());
    }
    delete(ALL_KEY)
}

enum Failure {
    Rendezvous(RendezvousError),
    Http(HttpError),
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        Failure::Http(error)
    }
}

/// The keys of one round.
struct KvRound {
    client: KvClient,
    round: u64,
    /// Whether the server supports long polling (`?wait=`).
    has_long_poll: bool,
}

impl KvRound {
    fn exchange(&mut self, rank_info: &RankInfo, signed: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, Failure> {
        let started = Instant::now();
        let own = rank_info.rank.to_string();
        self.client.put(&self.path(&own), signed, deadline)?;
        // The key exists. A server without queries takes the whole target for a key, and does not find it.
        self.has_long_poll = self.client.get(&format!("{}?wait=0", self.path(&own)), deadline)?.is_some();
        if rank_info.rank == 0 {
            let mut all = vec![signed.to_vec()];
            for rank in 1..rank_info.size {
                match self.wait_for(&rank.to_string(), deadline)? {
                    Some(blob) => all.push(blob),
                    None => return Err(self.missing_error(rank_info, started)),
                }
            }
            self.client.put(&self.path(ALL_KEY), &pack(&all), deadline)?;
            return Ok(all);
        }
        let Some(all) = self.wait_for(ALL_KEY, deadline)? else {
            return Err(self.missing_error(rank_info, started));
        };
        unpack(&all, rank_info.size).ok_or(Failure::Rendezvous(RendezvousError::Malformed { rank: 0 }))
    }

    /// Waits for a key; `None` when it is not put in time. An error when the rendezvous has failed.
    fn wait_for(&mut self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, Failure> {
        let (path, failed) = (self.path(key), self.path(FAILED_KEY));
        let mut pause = MIN_PAUSE;
        for n_polls in 1.. {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            let wait = remaining.mul_f64(0.9).min(MAX_LONG_POLL);
            let value = if self.has_long_poll && wait > MAX_PAUSE {
                self.client.get(&format!("{path}?wait={:.3}", wait.as_secs_f64()), deadline + DIAGNOSIS_GRACE)?
            } else {
                self.client.get(&path, deadline + DIAGNOSIS_GRACE)?
            };
            if value.is_some() {
                return Ok(value);
            }
            if self.has_long_poll || n_polls % POLLS_PER_FAILURE_CHECK == 0 {
                let failure = self.client.get(&failed, deadline + DIAGNOSIS_GRACE)?;
                if let Some((_, reason)) = failure.as_deref().and_then(parse_failure) {
                    return Err(Failure::Rendezvous(RendezvousError::PeerFailed { reason }));
                }
            }
            thread::sleep(pause.min(remaining));
            pause = (pause * 2).min(MAX_PAUSE);
        }
        unreachable!("the loop ends at the deadline")
    }

    /// The error that names the ranks without a blob. If all have one, rank 0 is missing, because it has not put all blobs.
    fn missing_error(&mut self, rank_info: &RankInfo, started: Instant) -> Failure {
        let waited = started.elapsed();
        let until = Instant::now() + DIAGNOSIS_GRACE;
        let mut missing = Vec::new();
        for rank in 0..rank_info.size {
            match self.client.get(&self.path(&rank.to_string()), until) {
                Ok(Some(_)) => {}
                Ok(None) => missing.push(rank),
                Err(error) => return Failure::Http(error),
            }
        }
        if missing.is_empty() {
            missing.push(0);
        }
        Failure::Rendezvous(RendezvousError::Missing { ranks: RankList(missing), waited, refused: None })
    }

    fn path(&self, key: &str) -> String {
        format!("/corro_{}/{key}", self.round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_a_rank_and_a_reason() {
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
            assert_eq!(parse_failure(value.as_bytes()), expected, "{value:?}");
        }
    }
}
