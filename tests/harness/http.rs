//! Hand-written HTTP requests, including malformed ones that no client library sends. One connection per request.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::DEADLINE;

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let same = |line: &&str| line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        self.headers.lines().find(same).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// `GET` of a whole URL with these header lines.
pub fn get(url: &str, headers: &[&str]) -> Response {
    let rest = url.strip_prefix("http://").expect("plain HTTP");
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let request = request_head(address, &format!("GET /{path} HTTP/1.1"), headers);
    exchange(address, request.as_bytes()).unwrap_or_else(|| panic!("GET /{path} got no response"))
}

pub fn request_head(address: &str, line: &str, headers: &[&str]) -> String {
    let mut text = format!("{line}\r\nHost: {address}\r\nConnection: close\r\n");
    headers.iter().for_each(|header| text.push_str(&format!("{header}\r\n")));
    text + "\r\n"
}

/// Sends these bytes and reads until the connection closes. `None` if it closes without a response. A server may respond before
/// it has read everything, so a failed write is not an error yet.
pub fn exchange(address: &str, bytes: &[u8]) -> Option<Response> {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
    let _ = stream.write_all(bytes);
    let mut response = Vec::new();
    let mut piece = [0; 64 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut piece) {
        response.extend_from_slice(&piece[..n]);
    }
    parse(&response)
}

fn parse(response: &[u8]) -> Option<Response> {
    let at = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let headers = String::from_utf8_lossy(&response[..at]).into_owned();
    let status = headers.split_whitespace().nth(1)?.parse().ok()?;
    let mut parsed = Response { status, headers, body: response[at + 4..].to_vec() };
    if parsed.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        parsed.body = join_chunks(&parsed.body);
    }
    Some(parsed)
}

fn join_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(size @ 1..) = size else { break };
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
    body
}
