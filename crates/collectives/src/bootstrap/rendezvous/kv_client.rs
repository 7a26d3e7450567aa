//! HTTP client of the key-value server of Horovod's launcher. All requests are idempotent and retried: connecting until the deadline, failed
//! requests up to three times.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use super::http_reply::{HttpError, Reply, read_reply};
use super::timed_stream::Stream;

const MAX_ATTEMPTS: usize = 3;
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of one address, so that an address that does not answer does not delay the next one of the host name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub struct KvClient {
    addr: String,
    port: u16,
    /// The kept-alive connection.
    idle: Option<Stream>,
}

impl KvClient {
    pub fn new(addr: &str, port: u16) -> KvClient {
        // An IPv6 address of a URL has brackets, which resolvers do not accept.
        KvClient { addr: addr.trim_matches(['[', ']']).to_owned(), port, idle: None }
    }

    pub fn put(&mut self, path: &str, value: &[u8], deadline: Instant) -> Result<(), HttpError> {
        match self.request("PUT", path, value, deadline)? {
            Reply { status: 200, .. } => Ok(()),
            Reply { status, .. } => Err(HttpError::Status { method: "PUT", path: path.to_owned(), status }),
        }
    }

    /// `None` when the key does not exist.
    pub fn get(&mut self, path: &str, deadline: Instant) -> Result<Option<Vec<u8>>, HttpError> {
        let reply = self.request("GET", path, b"", deadline)?;
        Ok((reply.status == 200).then_some(reply.body))
    }

    /// As [`KvClient::get`], with the reply as it is: its status is 200, 404 or 410.
    pub fn get_reply(&mut self, path: &str, deadline: Instant) -> Result<Reply, HttpError> {
        self.request("GET", path, b"", deadline)
    }

    pub fn delete(&mut self, path: &str, deadline: Instant) -> Result<(), HttpError> {
        self.request("DELETE", path, b"", deadline).map(drop)
    }

    /// Sends a request, with retries. Returns a reply with status 200, 404 or 410.
    fn request(
        &mut self,
        method: &'static str,
        path: &str,
        body: &[u8],
        deadline: Instant,
    ) -> Result<Reply, HttpError> {
        let mut n_failures = 0;
        loop {
            // A server may have closed an idle connection, so a failure on it does not count.
            let is_reused = self.idle.is_some();
            let failure = match self.attempt(method, path, body, deadline) {
                Ok(reply) if matches!(reply.status, 200 | 404 | 410) => return Ok(reply),
                Ok(Reply { status, .. }) => HttpError::Status { method, path: path.to_owned(), status },
                Err(HttpError::Io(_)) if is_reused && Instant::now() < deadline => continue,
                Err(failure) => failure,
            };
            n_failures += 1;
            if n_failures == MAX_ATTEMPTS || Instant::now() + RETRY_INTERVAL > deadline {
                return Err(failure);
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    fn attempt(&mut self, method: &str, path: &str, body: &[u8], deadline: Instant) -> Result<Reply, HttpError> {
        let stream = match self.idle.take() {
            Some(stream) => stream,
            None => self.connect(deadline)?,
        };
        let (addr, port, length) = (&self.addr, self.port, body.len());
        let host = if addr.contains(':') { format!("[{addr}]:{port}") } else { format!("{addr}:{port}") };
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        request.extend_from_slice(body);
        stream.until(deadline).write_all(&request).map_err(HttpError::Io)?;
        // Servers that send the head and the body of a reply in two writes, such as Python's, wait for the acknowledgement of the first, which the
        // kernel otherwise delays for 40 ms. A failure only makes them slower.
        let _ = rustix::net::sockopt::set_tcp_quickack(stream.as_fd(), true);
        let reply = read_reply(&mut stream.until(deadline))?;
        if reply.keep_alive {
            self.idle = Some(stream);
        }
        Ok(reply)
    }

    fn connect(&self, deadline: Instant) -> Result<Stream, HttpError> {
        let mut pause = Duration::from_millis(10);
        loop {
            let failure = match (self.addr.as_str(), self.port).to_socket_addrs() {
                Err(error) => HttpError::Resolve(error),
                Ok(addresses) => {
                    let mut failure = io::ErrorKind::AddrNotAvailable.into();
                    for address in addresses {
                        let remaining = deadline.saturating_duration_since(Instant::now());
                        let timeout = remaining.min(CONNECT_TIMEOUT).max(Duration::from_millis(1));
                        match TcpStream::connect_timeout(&address, timeout) {
                            Ok(stream) => {
                                // Without Nagle's delay for small requests. A failure only makes them slower.
                                let _ = stream.set_nodelay(true);
                                return Ok(stream.into());
                            }
                            Err(error) => failure = error,
                        }
                    }
                    HttpError::Connect(failure)
                }
            };
            if Instant::now() + pause > deadline {
                return Err(failure);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(RETRY_INTERVAL);
        }
    }
}
