//! Requests written by hand, for what no polite client sends. One connection a request.

use std::io::{Read, Write};
use std::net::TcpStream;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let same = |line: &&str| line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        self.headers.lines().find(same).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// `GET` of a whole URL with these header lines.
pub fn get(url: &str, headers: &[&str]) -> Answer {
    let rest = url.strip_prefix("http://").expect("plain HTTP");
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    send(address, &format!("GET /{path} HTTP/1.1"), headers, b"")
}

/// Sends a request as it is written and reads the answer to its end.
pub fn send(address: &str, line: &str, headers: &[&str], body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(super::DEADLINE)).expect("a timeout");
    stream.write_all(head(address, line, headers).as_bytes()).expect("the request is taken");
    stream.write_all(body).expect("the body is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the answer comes");
    parse(&answer)
}

pub fn head(address: &str, line: &str, headers: &[&str]) -> String {
    let mut text = format!("{line}\r\nHost: {address}\r\nConnection: close\r\n");
    headers.iter().for_each(|header| text.push_str(&format!("{header}\r\n")));
    text + "\r\n"
}

fn parse(answer: &[u8]) -> Answer {
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
    let headers = String::from_utf8_lossy(&answer[..at]).into_owned();
    let status = headers.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a status");
    Answer { status, headers, body: answer[at + 4..].to_vec() }
}
