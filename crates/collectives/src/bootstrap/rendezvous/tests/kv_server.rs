//! A key-value server for tests. Behaves as upstream's (HTTP/1.0, one request per connection, the query is part of the key) or as ours
//! (keep-alive, long polling by `?wait=`). Used by unit tests and by tests of processes.
#![allow(dead_code, reason = "each test executable uses its own part")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use corro_collectives::bootstrap::rendezvous_method::RendezvousMethod;

pub struct KvServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    modern: bool,
    values: Mutex<BTreeMap<String, Vec<u8>>>,
    changed: Condvar,
    n_failures_due: AtomicUsize,
    n_connections: AtomicUsize,
    stopped: AtomicBool,
}

impl KvServer {
    pub fn start(modern: bool) -> KvServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            modern,
            values: Mutex::default(),
            changed: Condvar::new(),
            n_failures_due: AtomicUsize::new(0),
            n_connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if of_thread.stopped.load(Ordering::Relaxed) {
                    return;
                }
                of_thread.n_connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&of_thread);
                thread::spawn(move || while shared.serve(&stream).is_some() {});
            }
        });
        KvServer { addr, shared }
    }

    pub fn rendezvous_method(&self) -> RendezvousMethod {
        RendezvousMethod::KeyValue { addr: self.addr.ip().to_string(), port: self.addr.port() }
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Puts values, all at once.
    pub fn put_all(&self, values: impl IntoIterator<Item = (String, String)>) {
        let values = values.into_iter().map(|(path, value)| (path, value.into_bytes()));
        self.shared.values.lock().unwrap().extend(values);
        self.shared.changed.notify_all();
    }

    pub fn keys(&self) -> Vec<String> {
        self.shared.values.lock().unwrap().keys().cloned().collect()
    }

    pub fn n_connections(&self) -> usize {
        self.shared.n_connections.load(Ordering::Relaxed)
    }

    /// Answers the next `n_requests` requests with status 500.
    pub fn fail_next(&self, n_requests: usize) {
        self.shared.n_failures_due.store(n_requests, Ordering::Relaxed);
    }
}

impl Drop for KvServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.addr);
    }
}

impl Shared {
    /// Serves one request; `None` when the connection is to be closed.
    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut n_bytes = 0;
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            match line.trim().split_once(": ") {
                Some(("Content-Length", length)) => n_bytes = length.parse().ok()?,
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; n_bytes];
        reader.read_exact(&mut body).ok()?;
        let failing = |due: usize| due.checked_sub(1);
        let (status, value) = if self.n_failures_due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, failing).is_ok()
        {
            (500, None)
        } else {
            self.answer(&method, &path, body)
        };
        let value = value.unwrap_or_default();
        let version = if self.modern { "HTTP/1.1" } else { "HTTP/1.0" };
        let head = format!("{version} {status} x\r\nContent-Length: {}\r\n\r\n", value.len());
        let mut stream = stream;
        stream.write_all(&[head.as_bytes(), &value].concat()).ok()?;
        self.modern.then_some(())
    }

    fn answer(&self, method: &str, path: &str, body: Vec<u8>) -> (u16, Option<Vec<u8>>) {
        let (path, wait) = match path.split_once("?wait=") {
            Some((path, seconds)) if self.modern => (path, Duration::from_secs_f64(seconds.parse().unwrap())),
            _ => (path, Duration::ZERO),
        };
        let mut values = self.values.lock().unwrap();
        match method {
            "PUT" => {
                values.insert(path.to_owned(), body);
                self.changed.notify_all();
                (200, None)
            }
            "GET" => {
                let until = Instant::now() + wait;
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    let scope = path.rsplit_once('/').map_or("", |(scope, _)| scope);
                    let has_failed = values.contains_key(&format!("{scope}/failed"));
                    match values.get(path).cloned() {
                        Some(value) => return (200, Some(value)),
                        None if left.is_zero() || has_failed => return (404, None),
                        None => values = self.changed.wait_timeout(values, left).unwrap().0,
                    }
                }
            }
            "DELETE" => {
                values.remove(path);
                (200, None)
            }
            _ => (501, None),
        }
    }
}
