//! HTTP/1.1 client over one connection, for a thread that sends one request at a time and waits for the response.
//!
//! Hand-written because a mount's thread must not hand a request to another thread: `reqwest` and `hyper` drive a
//! connection from a task beside the caller, which costs a wake-up in each direction. Here the caller itself writes and
//! reads. Concurrent requests open a second connection, and one of them is kept. TLS is `rustls`, header parsing is
//! `httparse`.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http_limits::{CONNECT_TIMEOUT, IDLE_TIMEOUT, READ_TIMEOUT, USER_AGENT};
use crate::response::HttpResponse;

/// A body up to this size is sent together with the head; a larger one in pieces of this size.
const MAX_JOINED_BODY: usize = 64 << 10;
/// Read buffer for a response head and the first content.
const READ_BUFFER_BYTES: usize = 16 << 10;
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 100;
/// Largest response body.
const MAX_BODY_BYTES: u64 = 256 << 20;

#[derive(Debug)]
pub struct Http1Connection {
    host: String,
    port: u16,
    /// TLS configuration and the server name to verify.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    idle: Mutex<Option<IdleStream>>,
}

#[derive(Debug)]
struct IdleStream {
    stream: Stream,
    since: Instant,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
}

/// Failure, by whether anything was sent before.
#[derive(Debug)]
pub enum ConnError {
    Connect(io::Error),
    Exchange(io::Error),
}

impl Http1Connection {
    pub fn new(host: &str, port: u16, tls: Option<Arc<ClientConfig>>) -> io::Result<Http1Connection> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match tls {
            Some(tls) => Some((tls, ServerName::try_from(bare.clone()).map_err(io::Error::other)?)),
            None => None,
        };
        Ok(Http1Connection { host: bare, port, tls, idle: Mutex::new(None) })
    }

    /// Sends one request and reads the response of any status. `target` is the path with its query.
    pub async fn exchange(
        &self,
        method: &Method,
        (authority, target): (&str, &str),
        headers: &[(&str, &str)],
        body: &Bytes,
    ) -> Result<HttpResponse, ConnError> {
        let mut stream = match self.take_idle() {
            Some(stream) => stream,
            None => {
                let connected = timeout(CONNECT_TIMEOUT, self.connect()).await;
                connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(ConnError::Connect)?
            }
        };
        let head = request_head(method, (authority, target), headers, body);
        let bodiless = method == Method::HEAD;
        let answered = match &mut stream {
            Stream::Plain(stream) => exchange(stream, head, body, bodiless).await,
            Stream::Secured(stream) => exchange(stream, head, body, bodiless).await,
        };
        let (answer, keep_alive) = answered.map_err(ConnError::Exchange)?;
        if keep_alive {
            *self.idle() = Some(IdleStream { stream, since: Instant::now() });
        }
        Ok(answer)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<IdleStream>> {
        self.idle.lock().expect("no one panics while holding a connection")
    }

    fn take_idle(&self) -> Option<Stream> {
        let idle = self.idle().take()?;
        (idle.since.elapsed() < IDLE_TIMEOUT && idle.stream.is_open()).then_some(idle.stream)
    }

    async fn connect(&self) -> io::Result<Stream> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let Some((tls, name)) = &self.tls else { return Ok(Stream::Plain(stream)) };
        let secured = TlsConnector::from(tls.clone()).connect(name.clone(), stream).await?;
        Ok(Stream::Secured(Box::new(secured)))
    }
}

impl Stream {
    /// Whether the peer still keeps the connection open. A restarted server has closed it, which is better detected
    /// before a request is sent.
    fn is_open(&self) -> bool {
        let (stream, secured) = match self {
            Stream::Plain(stream) => (stream, false),
            Stream::Secured(stream) => (stream.get_ref().0, true),
        };
        match recv(stream, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => true,
            // TLS may have sent session messages between responses.
            Ok((read, _)) => secured && read > 0,
            Err(_) => false,
        }
    }
}

fn request_head(method: &Method, (authority, target): (&str, &str), headers: &[(&str, &str)], body: &Bytes) -> Vec<u8> {
    let mut head = Vec::with_capacity(1024);
    let mut put = |parts: &[&str]| parts.iter().for_each(|part| head.extend_from_slice(part.as_bytes()));
    put(&[method.as_str(), " ", target, " HTTP/1.1\r\nhost: ", authority, "\r\nuser-agent: ", USER_AGENT, "\r\n"]);
    for (name, value) in headers {
        put(&[name, ": ", value, "\r\n"]);
    }
    if !body.is_empty() || !matches!(*method, Method::GET | Method::HEAD) {
        put(&["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    put(&["\r\n"]);
    head
}

/// Response, and whether the connection may be reused.
async fn exchange<S>(
    stream: &mut S,
    mut head: Vec<u8>,
    body: &Bytes,
    bodiless: bool,
) -> io::Result<(HttpResponse, bool)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (together, rest) = if body.len() <= MAX_JOINED_BODY { (&body[..], &[][..]) } else { (&[][..], &body[..]) };
    head.extend_from_slice(together);
    for piece in [&head[..]].into_iter().chain(rest.chunks(MAX_JOINED_BODY)) {
        // Also limits writes: the peer may have stopped reading.
        timeout(READ_TIMEOUT, stream.write_all(piece)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
    stream.flush().await?;
    let mut buffer = BytesMut::with_capacity(READ_BUFFER_BYTES);
    let head = loop {
        match parse(&mut buffer)? {
            Some(head) if head.status.is_informational() => continue,
            Some(head) => break head,
            None if buffer.len() > MAX_HEAD_BYTES => return Err(invalid_response("the head is too long")),
            None => read_more(stream, &mut buffer).await?,
        }
        buffer.reserve(1024);
    };
    let Head { status, headers, keep_alive } = head;
    let empty = bodiless || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let content = match text("transfer-encoding") {
        _ if empty => Bytes::new(),
        Some(coding) if coding.eq_ignore_ascii_case("chunked") => chunks(stream, &mut buffer).await?,
        Some(_) => return Err(invalid_response("unsupported transfer encoding")),
        None => {
            let length = text("content-length").and_then(|length| length.parse().ok());
            let length: u64 = length
                .filter(|length| *length <= MAX_BODY_BYTES)
                .ok_or_else(|| invalid_response("content-length is missing, invalid or too large"))?;
            sized(stream, &mut buffer, length as usize).await?
        }
    };
    // Unrequested bytes would be taken for the next response.
    Ok((HttpResponse { status, headers, body: content }, keep_alive && buffer.is_empty()))
}

struct Head {
    status: StatusCode,
    headers: HeaderMap,
    keep_alive: bool,
}

/// Parses the response head once it is complete.
fn parse(buffer: &mut BytesMut) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(buffer).map_err(io::Error::other)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(length) => length,
    };
    let status = response
        .code
        .and_then(|code| StatusCode::from_u16(code).ok())
        .ok_or_else(|| invalid_response("the status is invalid"))?;
    let mut kept = HeaderMap::with_capacity(response.headers.len());
    for header in response.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(io::Error::other)?;
        kept.append(name, HeaderValue::from_bytes(header.value).map_err(io::Error::other)?);
    }
    let closes = kept.get("connection").is_some_and(|word| word.as_bytes().eq_ignore_ascii_case(b"close"));
    let keep_alive = response.version == Some(1) && !closes;
    buffer.advance(length);
    Ok(Some(Head { status, headers: kept, keep_alive }))
}

async fn sized<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut BytesMut, length: usize) -> io::Result<Bytes> {
    if buffer.len() >= length {
        return Ok(buffer.split_to(length).freeze());
    }
    let mut content = Vec::with_capacity(length);
    content.extend_from_slice(buffer);
    buffer.clear();
    while content.len() < length {
        let left = length - content.len();
        read_more(stream, &mut (&mut content).limit(left)).await?;
    }
    Ok(content.into())
}

async fn chunks<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut BytesMut) -> io::Result<Bytes> {
    let mut content = BytesMut::new();
    loop {
        let line = read_line(stream, buffer).await?;
        let digits = std::str::from_utf8(&line).ok().and_then(|line| line.split(';').next()).unwrap_or_default();
        let size = u64::from_str_radix(digits.trim(), 16).map_err(io::Error::other)?;
        if size > MAX_BODY_BYTES - content.len() as u64 {
            return Err(invalid_response("the body is too large"));
        }
        if size == 0 {
            break;
        }
        content.extend_from_slice(&sized(stream, buffer, size as usize).await?);
        read_line(stream, buffer).await?;
    }
    // Optional trailers end with an empty line.
    while !read_line(stream, buffer).await?.is_empty() {}
    Ok(content.freeze())
}

async fn read_line<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut BytesMut) -> io::Result<Bytes> {
    loop {
        if let Some(end) = buffer.windows(2).position(|two| two == b"\r\n") {
            let line = buffer.split_to(end).freeze();
            buffer.advance(2);
            return Ok(line);
        }
        if buffer.len() > MAX_HEAD_BYTES {
            return Err(invalid_response("a line is too long"));
        }
        buffer.reserve(1024);
        read_more(stream, buffer).await?;
    }
}

async fn read_more<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut (impl BufMut + Send)) -> io::Result<()> {
    match timeout(READ_TIMEOUT, stream.read_buf(buffer)).await {
        Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => read.map(drop),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

fn invalid_response(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid HTTP response: {why}"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Server that sends one response per request, in chunks of the given size, and closes the connection after the
    /// given number of requests.
    async fn serve(listener: TcpListener, answer: &'static str, size: usize, most: usize) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            for _ in 0..most {
                while !asked.ends_with(b"\r\n\r\nbody") {
                    match stream.read_buf(&mut asked).await {
                        Ok(1..) => {}
                        _ => break,
                    }
                }
                asked.clear();
                for piece in answer.as_bytes().chunks(size) {
                    let _ = stream.write_all(piece).await;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn connect_to(answer: &'static str, size: usize, most: usize) -> Http1Connection {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        tokio::spawn(serve(listener, answer, size, most));
        Http1Connection::new("127.0.0.1", port, None).expect("an address")
    }

    async fn exchange_over(connection: &Http1Connection) -> Result<(u16, Bytes), ConnError> {
        let body = Bytes::from_static(b"body");
        let answer = connection.exchange(&Method::PUT, ("host", "/path?query"), &[("x-name", "value")], &body).await?;
        Ok((answer.status.as_u16(), answer.body))
    }

    #[tokio::test]
    async fn answers_are_read_however_they_come() {
        for (answer, status, content) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 200, "hello"),
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", 404, ""),
            ("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 1\r\n\r\nx", 201, "x"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nt: 1\r\n\r\n",
                200,
                "hello",
            ),
        ] {
            for size in [1, 7, 1000] {
                let connection = connect_to(answer, size, usize::MAX).await;
                for _ in 0..2 {
                    let (found, body) = exchange_over(&connection).await.expect("an answer");
                    assert_eq!((found, body.as_ref()), (status, content.as_bytes()), "{answer:?} in pieces of {size}");
                    assert!(connection.idle().is_some(), "the connection is kept");
                }
            }
        }
    }

    #[tokio::test]
    async fn what_cannot_be_an_answer_is_an_error_and_a_closed_connection_is_none() {
        for answer in
            ["", "nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"]
        {
            let connection = connect_to(answer, 1000, 1).await;
            assert!(matches!(exchange_over(&connection).await, Err(ConnError::Exchange(_))), "{answer:?}");
            assert!(connection.idle().is_none());
        }
        // Each response is the last of its connection; the next request opens another.
        let connection = connect_to("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 1000, 1).await;
        for _ in 0..3 {
            assert_eq!(exchange_over(&connection).await.expect("an answer").1, "hello");
            while connection.idle().as_ref().is_some_and(|idle| idle.stream.is_open()) {
                tokio::task::yield_now().await;
            }
        }
        let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address").port();
        let connection = Http1Connection::new("127.0.0.1", nobody, None).expect("an address");
        assert!(matches!(exchange_over(&connection).await, Err(ConnError::Connect(_))));
    }
}
