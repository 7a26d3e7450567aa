//! The subset of HTTP/1.1 that rendezvous clients use: requests and replies of one connection. Head, body and waiting time are bounded.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit between requests of a keep-alive connection, and of a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub body: Vec<u8>,
    pub keep_alive: bool,
}

/// Why no request could be read.
#[derive(Debug)]
pub enum RequestError {
    /// The client has disconnected, or sent nothing for too long.
    Disconnected,
    /// Reply with this status, then close: the start of the next request is unknown.
    Invalid(u16),
}

impl From<io::Error> for RequestError {
    fn from(_: io::Error) -> Self {
        RequestError::Disconnected
    }
}

pub struct Connection {
    stream: TcpStream,
    /// Bytes that are read and not parsed yet.
    buffer: Vec<u8>,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Connection {
        Connection { stream, buffer: Vec::new() }
    }

    pub async fn request(&mut self) -> Result<Request, RequestError> {
        let head = timeout(HEAD_TIMEOUT, self.head()).await.map_err(|_| RequestError::Disconnected)??;
        if head.expects_continue {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = timeout(BODY_TIMEOUT, self.body(head.body_length)).await;
        let body = body.map_err(|_| RequestError::Invalid(408))??;
        Ok(Request { method: head.method, target: head.target, body, keep_alive: head.keep_alive })
    }

    /// Sends a reply in one write, with header names in the case that upstream's client expects.
    pub async fn reply(&mut self, status: u16, body: &[u8], keep_alive: bool) -> io::Result<()> {
        let (reason, length) = (reason(status), body.len());
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let mut reply =
            format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\nConnection: {connection}\r\n\r\n")
                .into_bytes();
        reply.extend_from_slice(body);
        self.stream.write_all(&reply).await
    }

    async fn head(&mut self) -> Result<Head, RequestError> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = parse_head(&self.buffer[..end]).map_err(RequestError::Invalid)?;
                self.buffer.drain(..end + 4);
                return Ok(head);
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(RequestError::Invalid(431));
            }
            self.buffer.reserve(4096);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(RequestError::Disconnected);
            }
        }
    }

    async fn body(&mut self, length: usize) -> Result<Vec<u8>, RequestError> {
        while self.buffer.len() < length {
            self.buffer.reserve((length - self.buffer.len()).min(64 * 1024));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(RequestError::Disconnected);
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    method: String,
    target: String,
    body_length: usize,
    keep_alive: bool,
    expects_continue: bool,
}

/// Parses the request line and headers; an error is the status of the reply.
fn parse_head(head: &[u8]) -> Result<Head, u16> {
    let head = std::str::from_utf8(head).map_err(|_| 400u16)?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(400);
    };
    if !version.starts_with("HTTP/1.") {
        return Err(505);
    }
    let mut length = None;
    let mut keep_alive = version != "HTTP/1.0";
    let mut expects_continue = false;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(400u16)?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.parse::<usize>().map_err(|_| 400u16)?),
            "transfer-encoding" => return Err(501),
            "connection" if value.eq_ignore_ascii_case("close") => keep_alive = false,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => keep_alive = true,
            "expect" => expects_continue = value.eq_ignore_ascii_case("100-continue"),
            _ => {}
        }
    }
    if method == "PUT" && length.is_none() {
        return Err(411);
    }
    let body_length = length.unwrap_or(0);
    if body_length > MAX_BODY_BYTES {
        return Err(413);
    }
    Ok(Head { method: method.to_owned(), target: target.to_owned(), body_length, keep_alive, expects_continue })
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expected: Result<(&str, &str, usize, bool), u16>) {
        let seen = parse_head(head.as_bytes()).map(|h| (h.method, h.target, h.body_length, h.keep_alive));
        let expected = expected.map(|(m, t, length, keep)| (m.to_owned(), t.to_owned(), length, keep));
        assert_eq!(seen, expected, "{head:?}");
    }

    #[test]
    fn heads_are_read_or_refused() {
        check("GET /a/b HTTP/1.1", Ok(("GET", "/a/b", 0, true)));
        check("GET /a/b HTTP/1.0\r\nHost: x", Ok(("GET", "/a/b", 0, false)));
        check("GET /a/b HTTP/1.0\r\nConnection: Keep-Alive", Ok(("GET", "/a/b", 0, true)));
        check("PUT /a/b HTTP/1.1\r\ncontent-length: 7\r\nCONNECTION: close", Ok(("PUT", "/a/b", 7, false)));
        check("PUT /a/b HTTP/1.1", Err(411));
        check("PUT /a/b HTTP/1.1\r\nContent-Length: 16777217", Err(413));
        check("PUT /a/b HTTP/1.1\r\nContent-Length: -1", Err(400));
        check("PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked", Err(501));
        check("GET /a/b HTTP/2", Err(505));
        check("GET /a/b", Err(400));
        check("GET /a/b HTTP/1.1\r\nnonsense", Err(400));
        check("", Err(400));
    }
}
