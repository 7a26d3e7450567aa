//! Requests of an elastic process to the driver: its place in the next generation, and announced changes. Both are long polls, which are
//! repeated; a driver that does not answer is given up after the launch's timeout.

use std::thread;
use std::time::{Duration, Instant};

use super::error::PlaceError;
use super::process::ElasticProcess;
use crate::bootstrap::launch_env::Launch;
use crate::bootstrap::rank_info::RankInfo;
use crate::bootstrap::rendezvous::http_reply::{HttpError, Reply};
use crate::bootstrap::rendezvous::kv_client::KvClient;
use crate::bootstrap::rendezvous_method::RendezvousMethod;

/// Shorter than the limit of our server, and than the timeouts of proxies.
const MAX_LONG_POLL: Duration = Duration::from_secs(10);
/// Pause after an answer that came before its long poll was over, so that a server without long polls is not asked all the time.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the driver may not answer a request for changes, which is not worth a longer wait.
const UPDATE_PATIENCE: Duration = Duration::from_secs(1);
const GONE: u16 = 410;

/// How the hosts of a job have changed, with upstream's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HostsUpdate {
    Removed = 1,
    Added = 2,
    Both = 3,
}

impl ElasticProcess {
    /// Waits for the place of this process in a generation later than `after`, as long as the driver wants. `interrupted` is called
    /// between two long polls.
    ///
    /// # Errors
    /// When there is no such place, and when the driver does not answer for the launch's timeout.
    pub fn next_launch(&self, after: u64, interrupted: &dyn Fn() -> bool) -> Result<(u64, Launch), PlaceError> {
        let path = format!("/corro_elastic/place.{}.{after}", self.process);
        let mut client = KvClient::new(&self.addr, self.port);
        while !interrupted() {
            let asked = Instant::now();
            let Reply { status, body, .. } = self.poll(&mut client, &path, MAX_LONG_POLL, self.launch.timeout)?;
            let text = String::from_utf8_lossy(&body).trim().to_owned();
            match status {
                200 if text == "dismissed" => return Err(PlaceError::Dismissed { process: self.process }),
                200 => match self.parse_place(&text) {
                    Some((generation, launch)) if generation > after => return Ok((generation, launch)),
                    _ => return Err(PlaceError::Malformed { answer: text }),
                },
                GONE => return Err(PlaceError::Over { reason: text }),
                _ => thread::sleep(PAUSE.saturating_sub(asked.elapsed())),
            }
        }
        Err(PlaceError::Interrupted)
    }

    /// Waits until the driver wants the members of a generation to ask for another one, for at most `timeout`.
    ///
    /// # Errors
    /// When the driver does not answer, or the job is over.
    pub fn wait_for_update(&self, generation: u64, timeout: Duration) -> Result<Option<HostsUpdate>, PlaceError> {
        let path = format!("/corro_elastic/update.{generation}");
        let mut client = KvClient::new(&self.addr, self.port);
        let deadline = Instant::now() + timeout;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let asked = Instant::now();
            let Reply { status, body, .. } =
                self.poll(&mut client, &path, remaining.min(MAX_LONG_POLL), UPDATE_PATIENCE)?;
            let text = String::from_utf8_lossy(&body).trim().to_owned();
            match (status, text.as_str()) {
                (200, "1") => return Ok(Some(HostsUpdate::Removed)),
                (200, "2") => return Ok(Some(HostsUpdate::Added)),
                (200, "3") => return Ok(Some(HostsUpdate::Both)),
                (200, _) => return Err(PlaceError::Malformed { answer: text }),
                (GONE, _) => return Err(PlaceError::Over { reason: text }),
                _ if Instant::now() >= deadline => return Ok(None),
                _ => thread::sleep(PAUSE.saturating_sub(asked.elapsed())),
            }
        }
    }

    /// One long poll. `patience`: how long the driver may not answer beyond it.
    fn poll(&self, client: &mut KvClient, path: &str, wait: Duration, patience: Duration) -> Result<Reply, PlaceError> {
        let path = format!("{path}?wait={:.3}", wait.as_secs_f64());
        let deadline = Instant::now() + wait + patience;
        let reply = client.get_reply(&path, deadline);
        let reply = reply.and_then(|reply| match reply.status {
            200 | 404 | GONE => Ok(reply),
            status => Err(HttpError::Status { method: "GET", path, status }),
        });
        reply.map_err(|source| PlaceError::Unreachable { server: self.server(), source })
    }

    fn parse_place(&self, text: &str) -> Option<(u64, Launch)> {
        let mut fields = text.split(' ');
        let generation = fields.next()?.parse().ok()?;
        let mut number = || fields.next()?.parse::<usize>().ok();
        let (rank, size) = (number()?, number()?);
        let (local_rank, local_size) = (number()?, number()?);
        let (cross_rank, cross_size) = (number()?, number()?);
        if rank >= size || local_rank >= local_size || cross_rank >= cross_size {
            return None;
        }
        let (addr, port) = match fields.next() {
            Some(server) => {
                let (addr, port) = server.rsplit_once(':')?;
                (addr.to_owned(), port.parse().ok()?)
            }
            None => (self.addr.clone(), self.port),
        };
        let hostname = self.launch.rank_info.hostname.clone();
        let rank_info = RankInfo {
            rank,
            size,
            local_rank,
            local_size,
            cross_rank,
            cross_size,
            hostname,
            local_known: true,
            cross_known: true,
        };
        let rendezvous =
            if size == 1 { RendezvousMethod::SingleProcess } else { RendezvousMethod::KeyValue { addr, port } };
        Some((generation, Launch { rank_info, rendezvous, ..self.launch.clone() }))
    }
}
