//! Minimal HTTP for clients too numerous for a connection pool: one request on its own connection (thousands of simulated
//! agents), and reading a response from a keep-alive connection.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A whole response.
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

pub async fn post(address: &str, path: &str, body: &str) -> Result<Response> {
    let mut stream = TcpStream::connect(address).await.context("cannot connect")?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    Response::read(&mut BufReader::new(stream)).await
}

impl Response {
    /// Reads the next response, which must have a content length.
    pub async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<Response> {
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
        Ok(Response { status: status.context("the response has no status")?, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn responses_on_one_connection_are_separated() {
        let mut stream =
            &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 416 No\r\n\r\nHTTP/1.1 200 OK\r\n"[..];
        for (status, body) in [(200, &b"{}"[..]), (416, b"")] {
            let response = Response::read(&mut stream).await.expect("a response");
            assert_eq!((response.status, response.body.as_slice()), (status, body));
        }
        assert!(Response::read(&mut stream).await.is_err(), "it is truncated");
    }
}
