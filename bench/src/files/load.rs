//! Load generator for small files: persistent connections, each sending its next request as soon as it has its response.
//! Requests are prepared bytes, and only status and length of a response are checked, because the generator shares the machine
//! with the server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Time that the last responses may take after the end of a run.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Result of a load run.
pub struct LoadResult {
    pub seconds: f64,
    /// Milliseconds of each request.
    pub latencies: Vec<f64>,
}

impl LoadResult {
    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }
}

/// Sends all `requests` repeatedly on so many connections for `span`. Every response must be a 200 with `length` bytes.
pub fn run(
    address: &str,
    requests: &[Vec<u8>],
    connections: usize,
    length: usize,
    span: Duration,
) -> Result<LoadResult> {
    // One thread: with one per connection most of the time would go to the scheduler.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let send_all = async {
        let streams = try_join_all((0..connections).map(|_| TcpStream::connect(address))).await?;
        let began = Instant::now();
        let clients = streams.into_iter().enumerate().map(|(idx, stream)| {
            // Connections start at different files.
            let first = idx * requests.len() / connections;
            client(stream, requests.iter().cycle().skip(first), length, began + span)
        });
        let latencies = try_join_all(clients).await?.concat();
        anyhow::Ok(LoadResult { seconds: began.elapsed().as_secs_f64(), latencies })
    };
    let limited = async { tokio::time::timeout(span + RESPONSE_TIMEOUT, send_all).await };
    runtime.block_on(limited).with_context(|| format!("no response within {} s", RESPONSE_TIMEOUT.as_secs()))?
}

async fn client<'r>(
    mut stream: TcpStream,
    requests: impl Iterator<Item = &'r Vec<u8>>,
    length: usize,
    until: Instant,
) -> Result<Vec<f64>> {
    stream.set_nodelay(true)?;
    let mut response = vec![0; 1 << 16];
    let mut latencies = Vec::new();
    let mut now = Instant::now();
    for request in requests {
        stream.write_all(request).await?;
        let mut filled = 0;
        while response_length(&response[..filled], length)?.is_none_or(|length| filled < length) {
            let read = stream.read(&mut response[filled..]).await?;
            ensure!(read > 0, "the connection was closed in the middle of a response");
            filled += read;
        }
        let began = std::mem::replace(&mut now, Instant::now());
        latencies.push((now - began).as_secs_f64() * 1e3);
        if now > until {
            break;
        }
    }
    Ok(latencies)
}

/// Length of the response whose first bytes are given; `None` while its header is incomplete.
fn response_length(response: &[u8], length: usize) -> Result<Option<usize>> {
    let Some(head) = response.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&response[..head])?;
    let content_length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    if !text.starts_with("HTTP/1.1 200") || content_length != Some(length) {
        bail!("response {:?} with a content length of {content_length:?}", text.lines().next().unwrap_or_default());
    }
    Ok(Some(head + 4 + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_ends_with_its_last_byte() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx: y\r\n\r\nabc";
        assert_eq!(response_length(response, 3).expect("good"), Some(response.len()));
        assert_eq!(response_length(&response[..30], 3).expect("good"), None);
        assert!(response_length(response, 4).is_err());
        assert!(response_length(b"HTTP/1.1 503 Busy\r\ncontent-length: 3\r\n\r\nabc", 3).is_err());
    }
}
