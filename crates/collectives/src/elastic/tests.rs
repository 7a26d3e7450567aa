//! The requests of elastic processes, against a server with scripted answers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::{ElasticProcess, HostsUpdate, PlaceError};
use crate::bootstrap::LaunchError;
use crate::bootstrap::rendezvous_method::RendezvousMethod;

/// Gives its answers in order, then 404 for ever. Keeps the paths it was asked for.
struct ScriptedDriver {
    addr: SocketAddr,
    answers: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
    paths: Arc<Mutex<Vec<String>>>,
}

impl ScriptedDriver {
    fn start(answers: &[(u16, &'static str)]) -> ScriptedDriver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let driver = ScriptedDriver {
            addr: listener.local_addr().expect("an address"),
            answers: Arc::new(Mutex::new(answers.iter().copied().collect())),
            paths: Arc::default(),
        };
        let (answers, paths) = (driver.answers.clone(), driver.paths.clone());
        // Ends with the test's process.
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (answers, paths) = (answers.clone(), paths.clone());
                thread::spawn(move || while serve(&stream, &answers, &paths).is_some() {});
            }
        });
        driver
    }

    fn process(&self) -> ElasticProcess {
        process(&[("HOROVOD_GLOO_RENDEZVOUS_PORT", &self.addr.port().to_string())]).expect("fine").expect("elastic")
    }

    fn paths(&self) -> Vec<String> {
        self.paths.lock().expect("no panic").clone()
    }
}

fn serve(
    mut stream: &TcpStream,
    answers: &Mutex<VecDeque<(u16, &'static str)>>,
    paths: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request).ok()?;
    let path = request.split(' ').nth(1)?.to_owned();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok().filter(|n_bytes| *n_bytes > 0)?;
    }
    paths.lock().expect("no panic").push(path);
    let (status, body) = answers.lock().expect("no panic").pop_front().unwrap_or((404, ""));
    write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()
}

fn process(more: &[(&str, &str)]) -> Result<Option<ElasticProcess>, LaunchError> {
    let common = [
        ("HOROVOD_ELASTIC", "1"),
        ("CORRO_ELASTIC_PROCESS", "7"),
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"),
        ("HOROVOD_GLOO_RENDEZVOUS_PORT", "1"),
        ("HOROVOD_HOSTNAME", "n1"),
        ("HOROVOD_GLOO_TIMEOUT_SECONDS", "5"),
    ];
    let all: Vec<_> = more.iter().chain(&common).collect();
    ElasticProcess::from_variables(|name| {
        all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

fn never() -> bool {
    false
}

#[test]
fn a_process_is_elastic_only_with_both_variables() {
    assert_eq!(process(&[]).expect("fine").map(|process| process.process), Some(7));
    for missing in ["HOROVOD_ELASTIC", "CORRO_ELASTIC_PROCESS"] {
        assert!(process(&[(missing, "")]).expect("fine").is_none(), "{missing}");
    }
    assert!(process(&[("HOROVOD_ELASTIC", "0")]).expect("fine").is_none());
    for bad in ["0", "-1", "first"] {
        let error = process(&[("CORRO_ELASTIC_PROCESS", bad)]).expect_err(bad);
        assert_eq!(error, LaunchError::BadProcess { value: bad.to_owned() });
    }
    assert_eq!(process(&[("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")]).expect_err("needed"), LaunchError::NoDriver);
    let error = process(&[("HOROVOD_GLOO_RENDEZVOUS_PORT", "0")]).expect_err("needed");
    assert_eq!(error, LaunchError::BadPort { value: "0".to_owned() });
}

#[test]
fn a_process_waits_for_its_place() {
    let driver = ScriptedDriver::start(&[(404, ""), (404, ""), (200, "3 1 4 1 2 0 2")]);
    let (generation, launch) = driver.process().next_launch(2, &never).expect("a place");
    let info = &launch.rank_info;
    assert_eq!((generation, info.rank, info.size, info.hostname.as_str()), (3, 1, 4, "n1"));
    assert_eq!([info.local_rank, info.local_size, info.cross_rank, info.cross_size], [1, 2, 0, 2]);
    assert!(info.local_known && info.cross_known);
    assert_eq!(
        launch.rendezvous,
        RendezvousMethod::KeyValue { addr: "127.0.0.1".into(), port: driver.addr.port() },
        "the driver's server"
    );
    assert_eq!(launch.timeout, Duration::from_secs(5));
    assert_eq!(driver.paths(), vec!["/corro_elastic/place.7.2?wait=10.000"; 3]);
}

#[test]
fn a_place_may_name_another_rendezvous_server() {
    let driver = ScriptedDriver::start(&[(200, "1 0 2 0 1 0 2 10.0.0.3:4000"), (200, "2 0 1 0 1 0 1")]);
    let (_, launch) = driver.process().next_launch(0, &never).expect("a place");
    assert_eq!(launch.rendezvous, RendezvousMethod::KeyValue { addr: "10.0.0.3".into(), port: 4000 });
    let (_, launch) = driver.process().next_launch(1, &never).expect("a place");
    assert_eq!(launch.rendezvous, RendezvousMethod::SingleProcess);
}

#[test]
fn the_driver_dismisses_a_process_or_ends_the_job() {
    let driver = ScriptedDriver::start(&[(200, "dismissed"), (410, "fewer than 2 slots for 600 s")]);
    let error = driver.process().next_launch(4, &never).expect_err("dismissed");
    assert!(matches!(error, PlaceError::Dismissed { process: 7 }), "{error}");
    let error = driver.process().next_launch(4, &never).expect_err("over");
    assert_eq!(error.to_string(), "the elastic job is over: fewer than 2 slots for 600 s");
}

#[test]
fn an_answer_that_is_no_later_place_is_refused() {
    for answer in ["", "1", "5 0 1 0 1 0", "5 2 2 0 1 0 1", "5 0 1 0 1 0 1 here", "4 0 1 0 1 0 1", "x 0 1 0 1 0 1"] {
        let driver = ScriptedDriver::start(&[(200, answer)]);
        let error = driver.process().next_launch(4, &never).expect_err(answer);
        assert!(matches!(&error, PlaceError::Malformed { .. }), "{answer}: {error}");
    }
}

#[test]
fn a_wait_for_a_place_can_be_interrupted() {
    let driver = ScriptedDriver::start(&[]);
    let n_calls = Cell::new(0);
    let interrupted = || {
        n_calls.set(n_calls.get() + 1);
        n_calls.get() > 2
    };
    let error = driver.process().next_launch(0, &interrupted).expect_err("interrupted");
    assert!(matches!(error, PlaceError::Interrupted), "{error}");
    assert_eq!(driver.paths().len(), 2);
}

#[test]
fn a_driver_that_is_gone_is_named() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port().to_string()
    };
    let process = process(&[("HOROVOD_GLOO_RENDEZVOUS_PORT", port.as_str())]).expect("fine").expect("elastic");
    let error = process.wait_for_update(1, Duration::ZERO).expect_err("nobody listens");
    assert!(
        matches!(&error, PlaceError::Unreachable { server, .. } if *server == format!("127.0.0.1:{port}")),
        "{error}"
    );
}

#[test]
fn announced_changes_are_read() {
    let driver = ScriptedDriver::start(&[(404, ""), (200, "1"), (200, "2"), (200, "3"), (410, "done"), (200, "4")]);
    let process = driver.process();
    let limit = Duration::from_secs(20);
    for expected in [HostsUpdate::Removed, HostsUpdate::Added, HostsUpdate::Both] {
        assert_eq!(process.wait_for_update(3, limit).expect("an answer"), Some(expected));
    }
    assert!(matches!(process.wait_for_update(3, limit), Err(PlaceError::Over { .. })));
    assert!(matches!(process.wait_for_update(3, limit), Err(PlaceError::Malformed { .. })));
    assert_eq!(process.wait_for_update(3, Duration::ZERO).expect("no answer is none"), None);
    assert_eq!(driver.paths()[0], "/corro_elastic/update.3?wait=10.000");
}
