//! The rendezvous protocol on the wire.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corro_elastic::Member;
use corro_launch::exit::Exit;
use corro_launch::rendezvous::{Rendezvous, report_end_to};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(30);

async fn server() -> Rendezvous {
    let known = BTreeMap::from([("global".to_owned(), 2)]);
    Rendezvous::start(([127, 0, 0, 1], 0).into(), known).await.expect("loopback can be listened on")
}

async fn connect(server: &Rendezvous) -> TcpStream {
    TcpStream::connect(server.addr()).await.expect("the server accepts")
}

/// Reads one reply: status and body.
async fn reply(stream: &mut TcpStream) -> (u16, Vec<u8>) {
    let read = async {
        let mut bytes = Vec::new();
        let (head, at) = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break (String::from_utf8(bytes[..at].to_vec()).expect("a head is text"), at + 4);
            }
            assert_ne!(stream.read_buf(&mut bytes).await.expect("readable"), 0, "closed within a reply");
        };
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        let length = lines.find_map(|line| line.strip_prefix("Content-Length: ")).expect("spelled so");
        let length: usize = length.parse().expect("a number");
        let mut body = bytes.split_off(at);
        while body.len() < length {
            assert_ne!(stream.read_buf(&mut body).await.expect("readable"), 0, "closed within a body");
        }
        assert_eq!(body.len(), length, "one reply at a time");
        (status.parse().expect("a number"), body)
    };
    tokio::time::timeout(DEADLINE, read).await.expect("a reply in time")
}

async fn request(stream: &mut TcpStream, method: &str, target: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut request =
        format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request).await.expect("writable");
    reply(stream).await
}

/// Reported by the launcher, and by the agent of another node.
#[tokio::test]
async fn waiting_ranks_learn_of_a_rank_that_has_ended() {
    for by_request in [false, true] {
        let server = server().await;
        let mut stream = connect(&server).await;
        assert_eq!(request(&mut stream, "PUT", "/corro_0/1", b"here").await, (200, Vec::new()));
        assert_eq!(request(&mut stream, "GET", "/corro_0/failed", b"").await, (404, Vec::new()));
        let mut waiting = connect(&server).await;
        let pending = tokio::spawn(async move { request(&mut waiting, "GET", "/corro_0/all?wait=30", b"").await });
        if by_request {
            let (addr, port) = (server.addr().ip().to_string(), server.addr().port());
            report_end_to(&addr, port, 2, "n1", Exit::Code(1)).await.expect("the server answers");
        } else {
            server.report_end(2, "n1", Exit::Code(1));
        }
        // The first report counts: later ranks end because of it.
        server.report_end(3, "n2", Exit::Signal(9));
        assert_eq!(pending.await.expect("an answer"), (404, Vec::new()));
        let reason = b"2 rank 2 on host n1 ended with exit code 1 before all ranks had joined".to_vec();
        for target in ["/corro_0/failed", "/corro_1/failed?wait=30"] {
            assert_eq!(request(&mut stream, "GET", target, b"").await, (200, reason.clone()));
        }
        assert_eq!(request(&mut stream, "GET", "/corro_0/1", b"").await, (200, b"here".to_vec()));
        assert_eq!(request(&mut stream, "GET", "/global/failed", b"").await, (404, Vec::new()), "not our engine's");
    }
}

/// The end of a process fails the rendezvous of its generation only.
#[tokio::test]
async fn processes_of_an_elastic_training_get_their_places() {
    let loopback = ([127, 0, 0, 1], 0).into();
    let server = Rendezvous::start_elastic(loopback).await.expect("loopback can be listened on");
    let scope = server.elastic().expect("it is elastic");
    let mut stream = connect(&server).await;
    scope.add_process(1);
    let mut waiting = connect(&server).await;
    waiting.write_all(b"GET /corro_elastic/place.1.0?wait=30 HTTP/1.1\r\n\r\n").await.expect("writable");
    assert_eq!(scope.next_waiting().await, BTreeMap::from([(1, 0)]));
    let member = |rank| Member {
        process: rank as u64 + 1,
        host: "a".into(),
        rank,
        local_rank: rank,
        local_size: 2,
        cross_rank: 0,
        cross_size: 1,
    };
    server.begin_generation(1, &[member(0), member(1)]);
    assert_eq!(reply(&mut waiting).await, (200, b"1 0 2 0 2 0 1".to_vec()));
    let mut polling = connect(&server).await;
    polling.write_all(b"GET /corro_1/all?wait=30 HTTP/1.1\r\n\r\n").await.expect("writable");
    assert_eq!(request(&mut stream, "PUT", "/corro_1/0", b"here").await.0, 200);
    assert_eq!(server.report_process_end(2, "a", Exit::Signal(9)), Some(1));
    assert_eq!(reply(&mut polling).await, (404, Vec::new()));
    let reason = b"1 rank 1 on host a ended with signal 9 (SIGKILL) before all ranks had joined".to_vec();
    assert_eq!(request(&mut stream, "GET", "/corro_1/failed", b"").await, (200, reason));
    assert_eq!(request(&mut stream, "GET", "/corro_2/failed", b"").await, (404, Vec::new()));
    server.begin_generation(2, &[member(0)]);
    for target in ["/corro_1/failed", "/corro_1/0"] {
        assert_eq!(request(&mut stream, "GET", target, b"").await.0, 404, "{target} is of the past");
    }
    assert_eq!(request(&mut stream, "PUT", "/corro_elastic/update.2", b"3").await.0, 405, "only the driver decides");
    scope.finish("too few");
    assert_eq!(request(&mut stream, "GET", "/corro_elastic/place.1.2?wait=30", b"").await, (410, b"too few".to_vec()));
}

#[tokio::test]
async fn keys_are_put_read_and_deleted() {
    let server = server().await;
    let mut stream = connect(&server).await;
    let binary: Vec<u8> = (0..=255).collect();
    for (method, target, body, expected) in [
        ("GET", "/global/0", &b""[..], (404, &b""[..])),
        ("PUT", "/global/0", &binary, (200, b"")),
        ("GET", "/global/0", b"", (200, &binary)),
        ("PUT", "/global/0", b"again", (200, b"")),
        ("GET", "/global/0", b"", (200, b"again")),
        ("DELETE", "/global/0", b"", (200, b"")),
        ("GET", "/global/0", b"", (200, b"again")),
        ("DELETE", "/global/1", b"", (200, b"")),
        ("GET", "/global/0", b"", (404, b"")),
        ("PUT", "/other/k", b"", (200, b"")),
        ("GET", "/other/k", b"", (200, b"")),
        ("DELETE", "/other/k", b"", (200, b"")),
        ("GET", "/other/k", b"", (404, b"")),
        ("GET", "/global", b"", (400, b"")),
        ("POST", "/global/0", b"x", (405, b"")),
    ] {
        let (status, body) = request(&mut stream, method, target, body).await;
        assert_eq!((status, body.as_slice()), expected, "{method} {target}");
    }
}

#[tokio::test]
async fn a_large_value_round_trips() {
    let server = server().await;
    let mut stream = connect(&server).await;
    let value: Vec<u8> = (0..5_000_000u32).map(|n| n as u8).collect();
    assert_eq!(request(&mut stream, "PUT", "/s/k", &value).await.0, 200);
    assert!(request(&mut stream, "GET", "/s/k", b"").await == (200, value));
}

#[tokio::test]
async fn requests_in_one_packet_are_answered_in_order() {
    let server = server().await;
    let mut stream = connect(&server).await;
    let requests = b"PUT /s/k HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /s/k HTTP/1.1\r\nConnection: close\r\n\r\n";
    stream.write_all(requests).await.expect("writable");
    let mut replies = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut replies)).await.expect("closes").expect("readable");
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    assert_eq!(replies, expected);
}

#[tokio::test]
async fn an_http_1_0_client_is_served_and_closed() {
    let server = server().await;
    let mut stream = connect(&server).await;
    stream.write_all(b"GET /s/k HTTP/1.0\r\n\r\n").await.expect("writable");
    let mut text = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut text)).await.expect("closes").expect("readable");
    assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
}

#[tokio::test]
async fn a_missing_body_times_out() {
    let server = server().await;
    let mut stream = connect(&server).await;
    stream.write_all(b"PUT /s/k HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf").await.expect("writable");
    let begin = Instant::now();
    assert_eq!(reply(&mut stream).await.0, 408);
    assert!(begin.elapsed() >= Duration::from_millis(2900));
    assert_eq!(request(&mut connect(&server).await, "GET", "/s/k", b"").await.0, 404);
}

#[tokio::test]
async fn malformed_and_oversized_requests_are_refused() {
    let server = server().await;
    for (request, status) in [
        (b"hello\r\n\r\n".to_vec(), 400),
        (b"PUT /s/k HTTP/1.1\r\n\r\n".to_vec(), 411),
        (b"PUT /s/k HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n".to_vec(), 413),
        ([&b"GET /s/k HTTP/1.1\r\nX: "[..], &[b'x'; 17_000]].concat(), 431),
    ] {
        let mut stream = connect(&server).await;
        stream.write_all(&request).await.expect("writable");
        assert_eq!(reply(&mut stream).await.0, status);
    }
}

#[tokio::test]
async fn a_long_poll_returns_when_the_key_is_put() {
    let server = server().await;
    let mut waiting = connect(&server).await;
    waiting.write_all(b"GET /s/k?wait=20 HTTP/1.1\r\n\r\n").await.expect("writable");
    let mut other = connect(&server).await;
    assert_eq!(request(&mut other, "GET", "/s/k?wait=0.05", b"").await.0, 404);
    assert_eq!(request(&mut other, "PUT", "/s/k", b"v").await.0, 200);
    let begin = Instant::now();
    assert_eq!(reply(&mut waiting).await, (200, b"v".to_vec()));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn dropping_the_server_closes_its_connections() {
    let server = server().await;
    let mut stream = connect(&server).await;
    assert_eq!(request(&mut stream, "PUT", "/s/k", b"v").await.0, 200);
    drop(server);
    let n = tokio::time::timeout(DEADLINE, stream.read(&mut [0; 8])).await.expect("in time");
    assert!(matches!(n, Ok(0) | Err(_)), "{n:?}");
}
