//! Minimal HTTP for clients too numerous for a connection pool: one request on its own connection (thousands of simulated
//! agents), and reading a response from a keep-alive connection.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
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
    Answer::read(&mut BufReader::new(stream)).await
}

impl Answer {
    /// Reads the next response, which must have a content length.
    pub async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<Answer> {
        let (mut status, mut length, mut line) = (None, 0, String::new());
        loop {
            line.clear();
            ensure!(stream.read_line(&mut line).await? > 0, "the connection ended");
            let text = line.trim_end();
            if text.is_empty() {
                break;
            }
            if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
                status = Some(rest.split(' ').next().unwrap_or_default().parse()?);
            } else if let Some((name, value)) = text.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        Ok(Answer { status: status.context("the answer has no status")?, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_on_one_connection_are_told_apart() {
        let mut stream =
            &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 416 No\r\n\r\nHTTP/1.1 200 OK\r\n"[..];
        for (status, body) in [(200, &b"{}"[..]), (416, b"")] {
            let answer = Answer::read(&mut stream).await.expect("an answer");
            assert_eq!((answer.status, answer.body.as_slice()), (status, body));
        }
        assert!(Answer::read(&mut stream).await.is_err(), "it was cut");
    }
}
