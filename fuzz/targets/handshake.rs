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
        0 => check_authentication(data),
        1 => {
            if let Some(peer_info) = PeerInfo::decode(data) {
                let written = peer_info.encode();
                assert_eq!(PeerInfo::decode(&written), Some(peer_info), "it reads back differently");
            }
        }
        2 => rendezvous::check_untrusted_bytes(data),
        3 => check_frames(data),
        _ => check_variables(data),
    }
}

/// A peer with a fixed recorded input.
struct RecordedStream<'a>(&'a [u8]);

impl Read for RecordedStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for RecordedStream<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check_authentication(data: &[u8]) {
    let secret = Secret::new("secret");
    for role in [Role::Dialer, Role::Listener] {
        assert!(
            authenticate(RecordedStream(data), Some(&secret), b"", role).is_err(),
            "a peer without the secret was authenticated"
        );
        let _ = authenticate(RecordedStream(data), None, b"", role);
    }
}

fn check_frames(data: &[u8]) {
    let mut requests: Vec<ToCoordinator> = Vec::new();
    if decode_to_coordinator(data, |message| requests.push(message)).is_ok() {
        let mut written = Vec::new();
        requests.iter().for_each(|message| encode_to_coordinator(message, &mut written));
        let mut again = Vec::new();
        decode_to_coordinator(&written, |message| again.push(message)).expect("an encoded message can be decoded");
        // Compared as text, because NaN is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{requests:?}"));
    }
    let mut responses: Vec<ToWorker> = Vec::new();
    if decode_to_worker(data, |message| responses.push(message)).is_ok() {
        let mut written = Vec::new();
        responses.iter().for_each(|message| encode_to_worker(message, &mut written));
        let mut again = Vec::new();
        decode_to_worker(&written, |message| again.push(message)).expect("an encoded message can be decoded");
        assert_eq!(format!("{again:?}"), format!("{responses:?}"));
    }
}

/// Lines of `NAME=value`.
fn check_variables(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let read = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    match Launch::from_variables(read) {
        Ok(launch) => assert!(launch.rank_info.rank < launch.rank_info.size, "{launch:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
