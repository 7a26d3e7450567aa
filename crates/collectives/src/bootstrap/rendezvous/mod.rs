//! Rendezvous: an allgather of one opaque blob per rank, before the ranks are connected. Uses the launcher's key-value server, or rank 0
//! listens. Blocking; every wait ends at the caller's deadline, with an error that names the missing ranks. Never interprets a blob,
//! and never accepts an unsigned one when the job has a secret.

pub mod error;
pub(crate) mod http_reply;
pub(crate) mod kv_client;
pub mod kv_exchange;
mod process_origin;
mod rank0_address;
mod rank0_client;
mod rank0_listener;
mod rank0_server;
pub(crate) mod session;
mod signed_blob;
pub(crate) mod timed_stream;

use std::time::Instant;

use super::launch_env::Launch;
use super::rendezvous_method::RendezvousMethod;
use error::{MAX_BLOB_BYTES, RendezvousError};
use rank0_address::Rank0Address;
use session::Session;
use signed_blob::BlobSigner;

/// Sends `blob` to every rank and returns the blobs of all ranks, by rank. `round` numbers the rendezvous of this job: all ranks
/// pass the same number, and each number once.
pub fn exchange(launch: &Launch, round: u64, blob: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, RendezvousError> {
    join(launch, round, blob, deadline).map(|(blobs, _)| blobs)
}

/// As [`exchange`]; also returns the session, which reports failures of other ranks until it is dropped.
pub(crate) fn join(
    launch: &Launch,
    round: u64,
    blob: &[u8],
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, Session), RendezvousError> {
    if blob.len() > MAX_BLOB_BYTES {
        return Err(RendezvousError::TooLong { n_bytes: blob.len() });
    }
    let rank_info = &launch.rank_info;
    let signer = BlobSigner { secret: launch.secret.as_ref(), round, size: rank_info.size };
    let signed = signer.sign(rank_info.rank, blob);
    let (all, session) = match &launch.rendezvous {
        RendezvousMethod::SingleProcess => return Ok((vec![blob.to_vec()], Session::SingleProcess)),
        RendezvousMethod::KeyValue { addr, port } => {
            let (all, failure_key) = kv_exchange::exchange(addr, *port, rank_info, round, &signed, deadline)?;
            (all, Session::KeyValue(failure_key))
        }
        RendezvousMethod::Rank0(rank0) => {
            let address = Rank0Address::new(rank0, round, rank_info.size);
            let (all, peers) = if rank_info.rank == 0 {
                rank0_server::receive_all(&address, launch.secret.as_ref(), signed, deadline)?
            } else {
                rank0_client::join(&address, rank_info.rank, launch.secret.as_ref(), &signed, deadline)?
            };
            (all, Session::Rank0(peers))
        }
    };
    let verified = all.iter().enumerate().map(|(rank, signed)| signer.verify(rank, signed).map(<[u8]>::to_vec));
    Ok((verified.collect::<Result<_, _>>()?, session))
}

/// Deletes the keys of a round from the key-value server. Call it once all ranks are known to have returned from [`exchange`], for example
/// after a barrier: a slower rank could not read deleted keys.
pub fn clean_up(launch: &Launch, round: u64, deadline: Instant) -> Result<(), RendezvousError> {
    match &launch.rendezvous {
        RendezvousMethod::KeyValue { addr, port } => {
            kv_exchange::delete_keys(addr, *port, launch.rank_info.rank, round, deadline)
        }
        RendezvousMethod::SingleProcess | RendezvousMethod::Rank0(_) => Ok(()),
    }
}

/// Decodes bytes as every message that a rendezvous reads, and asserts that decoders and encoders agree. For fuzzing.
#[doc(hidden)]
pub fn check_untrusted_bytes(bytes: &[u8]) {
    let secret = crate::auth::Secret::new("secret");
    let signer = BlobSigner { secret: Some(&secret), round: 1, size: 2 };
    assert!(signer.verify(1, bytes).is_err(), "an unsigned blob is accepted");
    let plain = BlobSigner { secret: None, round: 1, size: 2 };
    if let Ok(blob) = plain.verify(1, bytes) {
        assert_eq!(plain.sign(1, blob), bytes);
    }
    for n_blobs in [0, 1, 3, 1_000_000] {
        if let Some(blobs) = signed_blob::unpack(bytes, n_blobs) {
            assert_eq!(signed_blob::pack(&blobs), bytes);
        }
    }
    if let Ok(reply) = http_reply::read_reply(&mut &*bytes) {
        assert!(reply.body.len() <= bytes.len());
    }
}

#[cfg(test)]
mod tests;
