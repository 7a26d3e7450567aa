//! Messages between the ranks of a job before and after authentication: hellos and proofs, rendezvous blobs, replies of a
//! rendezvous server, frames between workers and the coordinator; and the environment variables of launchers.

use std::io::{self, Read, Write};

use corro_collectives::Launch;
use corro_collectives::auth::{Role, Secret, authenticate};
use corro_collectives::bootstrap::rendezvous;
use corro_collectives::coordinator::{
    ToCoordinator, ToWorker, decode_to_coordinator, decode_to_worker, encode_to_coordinator, encode_to_worker,
};
use corro_collectives::transport::peer_info::PeerInfo;

/// The first byte selects the parser of the rest.
pub fn handshake(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 5 {
        0 => hello(data),
        1 => {
            if let Some(introduction) = PeerInfo::decode(data) {
                let written = introduction.encode();
                assert_eq!(PeerInfo::decode(&written), Some(introduction), "it reads back differently");
            }
        }
        2 => rendezvous::check_untrusted_bytes(data),
        3 => frames(data),
        _ => variables(data),
    }
}

/// A peer with a fixed recorded input.
struct Recorded<'a>(&'a [u8]);

impl Read for Recorded<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Recorded<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hello(data: &[u8]) {
    let secret = Secret::new("secret");
    for role in [Role::Dialer, Role::Listener] {
        assert!(authenticate(Recorded(data), Some(&secret), b"", role).is_err(), "who does not know the secret got in");
        let _ = authenticate(Recorded(data), None, b"", role);
    }
}

fn frames(data: &[u8]) {
    let mut up: Vec<ToCoordinator> = Vec::new();
    if decode_to_coordinator(data, |message| up.push(message)).is_ok() {
        let mut written = Vec::new();
        up.iter().for_each(|message| encode_to_coordinator(message, &mut written));
        let mut again = Vec::new();
        decode_to_coordinator(&written, |message| again.push(message)).expect("what was written can be read");
        // Compared as text, because NaN is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{up:?}"));
    }
    let mut down: Vec<ToWorker> = Vec::new();
    if decode_to_worker(data, |message| down.push(message)).is_ok() {
        let mut written = Vec::new();
        down.iter().for_each(|message| encode_to_worker(message, &mut written));
        let mut again = Vec::new();
        decode_to_worker(&written, |message| again.push(message)).expect("what was written can be read");
        assert_eq!(format!("{again:?}"), format!("{down:?}"));
    }
}

/// Lines of `NAME=value`.
fn variables(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let read = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    match Launch::from_variables(read) {
        Ok(launch) => assert!(launch.rank_info.rank < launch.rank_info.size, "{launch:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
