//! Parser of one HTTP/1.x reply from a stream. All lengths are bounded.

use std::io::{self, Read};

use thiserror::Error;

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
}

#[derive(Debug, Error)]
pub enum HttpError {
    #[error("cannot resolve the host name")]
    Resolve(#[source] io::Error),
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("the connection broke")]
    Io(#[source] io::Error),
    #[error("the reply is not the HTTP of a key-value server")]
    NotHttp,
    #[error("the reply is longer than {MAX_BODY_BYTES} bytes")]
    TooLong,
    #[error("{method} {path} returned status {status}")]
    Status { method: &'static str, path: String, status: u16 },
}

const MAX_HEAD_BYTES: usize = 16 * 1024;
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Reads exactly one reply, so that the next one can be read from the same stream.
pub fn read_reply(stream: &mut impl Read) -> Result<Reply, HttpError> {
    let mut buffer = Vec::new();
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if buffer.len() > MAX_HEAD_BYTES {
            return Err(HttpError::NotHttp);
        }
        if read_some(stream, &mut buffer)? == 0 {
            return Err(HttpError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
    };
    let head = Head::parse(&buffer[..head_end]).ok_or(HttpError::NotHttp)?;
    let mut body = buffer.split_off(head_end + 4);
    loop {
        let n_missing = head.body_length.map(|length| length.saturating_sub(body.len()));
        if n_missing == Some(0) {
            break;
        }
        if body.len().max(head.body_length.unwrap_or(0)) > MAX_BODY_BYTES {
            return Err(HttpError::TooLong);
        }
        if read_some(stream, &mut body)? == 0 {
            if head.body_length.is_some() {
                return Err(HttpError::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            break;
        }
    }
    // More bytes would be the reply to a request that was not sent.
    if head.body_length.is_some_and(|length| body.len() > length) {
        return Err(HttpError::NotHttp);
    }
    Ok(Reply { status: head.status, body, keep_alive: head.keep_alive && head.body_length.is_some() })
}

fn read_some(stream: &mut impl Read, buffer: &mut Vec<u8>) -> Result<usize, HttpError> {
    let mut chunk = [0; 8192];
    loop {
        match stream.read(&mut chunk) {
            Ok(n_bytes) => {
                buffer.extend_from_slice(&chunk[..n_bytes]);
                return Ok(n_bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(HttpError::Io(error)),
        }
    }
}

struct Head {
    status: u16,
    /// `None`: the body ends with the connection.
    body_length: Option<usize>,
    keep_alive: bool,
}

impl Head {
    fn parse(head: &[u8]) -> Option<Head> {
        let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
        let (version, rest) = lines.next()?.split_once(' ')?;
        let minor: u8 = version.strip_prefix("HTTP/1.")?.parse().ok()?;
        let status = rest.get(..3)?.parse().ok()?;
        let mut head = Head { status, body_length: None, keep_alive: minor > 0 };
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.body_length = Some(value.parse().ok()?),
                "transfer-encoding" => return None,
                "connection" => head.keep_alive = value.eq_ignore_ascii_case("keep-alive"),
                _ => {}
            }
        }
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u16, &str, bool)>) {
        let seen = read_reply(&mut text.as_bytes()).ok();
        let seen = seen.map(|reply| (reply.status, String::from_utf8(reply.body).unwrap(), reply.keep_alive));
        assert_eq!(seen, expected.map(|(status, body, keep)| (status, body.to_owned(), keep)), "{text:?}");
    }

    #[test]
    fn replies_are_read_or_refused() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", Some((200, "ab", true)));
        check("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nConnection: close\r\n\r\n", Some((404, "", false)));
        check("HTTP/1.0 200 OK\r\nServer: x\r\n\r\nuntil the end", Some((200, "until the end", false)));
        check("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\nx", Some((200, "x", true)));
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", None);
        check("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", None);
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nab", None);
        check("SSH-2.0-OpenSSH\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\n", None);
        check(&format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(20_000)), None);
    }
}
