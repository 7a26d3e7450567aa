//! How the ranks of the built-in workload average their gradients: through the launcher's rendezvous server. Every rank
//! writes its values under its rank and reads those of the others, in rank order, so that all compute the same sum.
//!
//! Not an engine: a few kilobytes a step over a key-value server. The collectives crate will be the engine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A sibling that is not heard for this long is gone; the job's error will say why.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Exchange {
    pub rank: usize,
    pub size: usize,
    connection: Option<TcpStream>,
    round: usize,
}

impl Exchange {
    /// Place and meeting point as the launcher gives them; alone without them.
    pub fn from_environment() -> Result<Self> {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
        let (rank, size) = (number("HOROVOD_RANK").unwrap_or(0), number("HOROVOD_SIZE").unwrap_or(1).max(1));
        if size == 1 {
            return Ok(Self { rank: 0, size, connection: None, round: 0 });
        }
        let host = std::env::var("HOROVOD_GLOO_RENDEZVOUS_ADDR").context("HOROVOD_GLOO_RENDEZVOUS_ADDR is not set")?;
        let port = number("HOROVOD_GLOO_RENDEZVOUS_PORT").context("HOROVOD_GLOO_RENDEZVOUS_PORT is not set")?;
        let connection = TcpStream::connect((host.as_str(), port as u16))
            .with_context(|| format!("cannot reach the rendezvous server at {host}:{port}"))?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(PATIENCE + Duration::from_secs(5)))?;
        Ok(Self { rank, size, connection: Some(connection), round: 0 })
    }

    /// Replaces `values` by their mean over all ranks.
    pub fn average(&mut self, values: &mut [f32]) -> Result<()> {
        if self.size == 1 {
            return Ok(());
        }
        let round = self.begin_round(Some(values))?;
        let mut sum = vec![0.0; values.len()];
        for rank in 0..self.size {
            for (total, value) in sum.iter_mut().zip(self.fetch(round, rank, values.len())?) {
                *total += value;
            }
        }
        let size = self.size as f32;
        values.iter_mut().zip(sum).for_each(|(value, total)| *value = total / size);
        Ok(())
    }

    /// Gives every rank rank 0's values.
    pub fn broadcast(&mut self, values: &mut [f32]) -> Result<()> {
        if self.size == 1 {
            return Ok(());
        }
        let own = (self.rank == 0).then(|| values.to_vec());
        let round = self.begin_round(own.as_deref())?;
        let first = self.fetch(round, 0, values.len())?;
        values.copy_from_slice(&first);
        Ok(())
    }

    /// Waits for all ranks, so that none takes the meeting point away from the others.
    pub fn finish(&mut self) -> Result<()> {
        self.average(&mut [0.0])
    }

    fn begin_round(&mut self, values: Option<&[f32]>) -> Result<usize> {
        let (round, rank) = (self.round, self.rank);
        self.round += 1;
        if let Some(values) = values {
            let body: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.request("PUT", &format!("/workload/{round}.{rank}"), &body)?;
        }
        // Whoever reads round n has finished round n - 1, so what lies two rounds back is read by nobody.
        if let Some(old) = round.checked_sub(2) {
            self.request("DELETE", &format!("/workload/{old}.{rank}"), &[])?;
        }
        Ok(round)
    }

    fn fetch(&mut self, round: usize, rank: usize, len: usize) -> Result<Vec<f32>> {
        let path = format!("/workload/{round}.{rank}?wait={}", PATIENCE.as_secs());
        let body = self.request("GET", &path, &[])?;
        if body.len() != len * 4 {
            bail!("rank {rank} did not send its values for round {round} within {} s", PATIENCE.as_secs());
        }
        let words = body.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
        Ok(words.collect())
    }

    /// One request on the kept connection; the body of the answer, empty for 404.
    fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let connection = self.connection.as_mut().context("a rank alone has nobody to ask")?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: rendezvous\r\nContent-Length: {}\r\n\r\n", body.len());
        connection.write_all(&[head.as_bytes(), body].concat()).context("the rendezvous server is gone")?;
        let mut answer = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
                let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
                if answer.len() >= end + 4 + length {
                    return match status.as_str() {
                        "200" => Ok(answer[end + 4..end + 4 + length].to_vec()),
                        "404" => Ok(Vec::new()),
                        other => bail!("the rendezvous server answered {other} to {method} {path}"),
                    };
                }
            }
            match connection.read(&mut buffer).context("the rendezvous server is gone")? {
                0 => bail!("the rendezvous server closed the connection"),
                n => answer.extend_from_slice(&buffer[..n]),
            }
        }
    }
}
