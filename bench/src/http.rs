//! One request on a connection of its own, by hand: what thousands of simulated agents need once each. Never more than that.

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

pub async fn post(address: &str, path: &str, body: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).await.context("cannot connect")?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    parse(&answer).context("the answer cannot be read")
}

/// The server closes afterwards, so the body is what follows the head.
fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = str::from_utf8(&answer[..end]).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, body: answer[end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_found() {
        let answer = parse(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").expect("an answer");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{}"[..]));
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_none());
    }
}
