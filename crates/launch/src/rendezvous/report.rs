//! Reports to the rendezvous server that a rank's process has ended, and the text of such a report.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;

use super::{ENDED_SCOPE, ENGINE_SCOPE_PREFIX, FAILED_KEY};
use crate::exit::Exit;

const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_REASON_CHARS: usize = 1000;

/// Reports to the server at `addr` that a rank's process has ended.
///
/// # Errors
/// When the server cannot be reached, which is normal once the ranks have completed their rendezvous.
pub async fn report_end_to(addr: &str, port: u16, rank: usize, host: &str, exit: Exit) -> io::Result<()> {
    let target = format!("/{ENDED_SCOPE}/{rank}");
    put((addr.trim_matches(['[', ']']), port), addr, &target, &describe(rank, host, exit)).await
}

/// Reports to the rendezvous server at `addr` (`ADDRESS:PORT`) that a member of a generation has ended, so that others which
/// still connect to it fail at once. Other generations are not affected.
///
/// # Errors
/// When the server cannot be reached, for example because its node is lost.
pub async fn report_failed_generation(
    addr: &str,
    generation: u64,
    rank: usize,
    host: &str,
    exit: Exit,
) -> io::Result<()> {
    let body = format!("{rank} {}", describe(rank, host, exit));
    put(addr, addr, &format!("/{ENGINE_SCOPE_PREFIX}{generation}/{FAILED_KEY}"), &body).await
}

async fn put(server: impl ToSocketAddrs, host: &str, target: &str, body: &str) -> io::Result<()> {
    let request = format!(
        "PUT {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let send = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    };
    timeout(REPORT_TIMEOUT, send).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

pub(super) fn describe(rank: usize, host: &str, exit: Exit) -> String {
    format!("rank {rank} on host {host} ended with {exit} before all ranks had joined")
}

/// The text as one line of bounded length, without control characters.
pub(super) fn printable(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(MAX_REASON_CHARS).collect()
}
