//! Takes a body of any length to the disk as it comes, into a draft. A mebibyte of it is in memory; its room there is
//! counted with those of all other uploads.

use std::{io::IoSlice, time::Instant};

use axum::body::Body;
use bytes::Bytes;
use corro_shares::Draft;
use futures_util::StreamExt;
use md5::{Digest, Md5};
use tokio::{task::spawn_blocking, time::timeout};

use crate::context::Context;
use crate::limits::request_body::{MAX_PAUSE, is_too_slow};
use crate::protocol::error::Refusal;

/// What is gathered before the disk is bothered.
const GATHERED: usize = 1 << 20;
/// Crumbs are written early: each is an allocation of its own.
const MAX_PIECES: usize = 256;

pub struct Received {
    pub draft: Draft,
    /// If it was asked for.
    pub md5: Option<[u8; 16]>,
}

/// Exactly `len` bytes, or a refusal. The container must be there.
pub async fn receive(context: &Context<'_>, body: Body, len: u64, hashes: bool) -> Result<Received, Refusal> {
    let _room = context.take_room().await?;
    let begun = context.on_disk(|shares, place| {
        shares.container(&place.account, &place.share)?;
        shares.draft(&place.account, &place.share)
    });
    let mut work = Work { draft: begun.await?, md5: hashes.then(Md5::new) };
    let mut stream = body.into_data_stream();
    let (mut received, start) = (0u64, Instant::now());
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut gathered = 0;
    loop {
        let piece = match timeout(MAX_PAUSE, stream.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Refusal::new("InvalidInput")),
            Err(_) => return Err(Refusal::new("OperationTimedOut")),
        };
        received += piece.len() as u64;
        if received > len {
            return Err(Refusal::new("InvalidInput"));
        }
        if is_too_slow(received, start.elapsed()) {
            return Err(Refusal::new("OperationTimedOut"));
        }
        gathered += piece.len();
        pieces.push(piece);
        if gathered >= GATHERED || pieces.len() == MAX_PIECES {
            work = work.take(std::mem::take(&mut pieces)).await?;
            gathered = 0;
        }
    }
    if received != len {
        return Err(Refusal::new("InvalidInput"));
    }
    let Work { draft, md5 } = work.take(pieces).await?;
    Ok(Received { draft, md5: md5.map(|md5| md5.finalize().into()) })
}

struct Work {
    draft: Draft,
    md5: Option<Md5>,
}

impl Work {
    async fn take(mut self, pieces: Vec<Bytes>) -> Result<Self, Refusal> {
        let done = spawn_blocking(move || {
            if let Some(md5) = &mut self.md5 {
                pieces.iter().for_each(|piece| md5.update(piece));
            }
            let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            self.draft.append(&mut slices)?;
            Ok::<_, corro_shares::ShareError>(self)
        });
        Ok(done.await.map_err(|_| Refusal::internal())??)
    }
}
