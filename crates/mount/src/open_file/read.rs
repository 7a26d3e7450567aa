//! Reads of programs: from dirty ranges, from chunks fetched ahead, or directly from the server.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Chunk, OpenFile};
use crate::readahead::{CHUNK_BYTES, ReadPlan};
use crate::remote::Remote;

impl<R: Remote> OpenFile<R> {
    pub async fn read(self: &Arc<Self>, offset: u64, length: u64) -> Result<Bytes, i32> {
        let (plan, length, unsynced_status) = loop {
            {
                let mut state = self.state();
                let (end, known) = (offset.saturating_add(length), state.status.length);
                if !state.dirty.overlaps(offset, end) {
                    let plan = state.read_pattern.plan(offset, length, known);
                    break (plan, length, (!state.dirty.is_clean()).then_some(known));
                }
                if let Some(content) = state.dirty.read(offset, end.min(known)) {
                    return Ok(content.into());
                }
            }
            self.upload_all().await;
        };
        let content = match plan {
            ReadPlan::Direct => self.fetch(offset, length).await?,
            ReadPlan::Chunks { now, ahead, past } => {
                let chunks = self.chunks(now.clone(), ahead, past);
                self.assemble(offset, length, now.start, &chunks).await?
            }
        };
        // Between the server's end and later unsent writes there is a hole.
        let missing = unsynced_status
            .map_or(0, |known| (offset + length).min(known).saturating_sub(offset + content.len() as u64));
        if missing == 0 {
            return Ok(content);
        }
        let mut padded = BytesMut::from(content.as_ref());
        padded.resize(padded.len() + missing as usize, 0);
        Ok(padded.freeze())
    }

    /// The chunks that a read needs. Starts fetching the chunks `ahead`.
    fn chunks(self: &Arc<Self>, now: std::ops::Range<u64>, ahead: std::ops::Range<u64>, past: u64) -> Vec<Chunk> {
        let mut state = self.state();
        state.chunks.retain(|index, _| *index >= past.min(now.start));
        for index in ahead {
            if let Entry::Vacant(vacant) = state.chunks.entry(index) {
                let chunk = vacant.insert(Chunk::default()).clone();
                let file = self.clone();
                self.shared.runtime.spawn(async move { file.load(&chunk, index).await.map(drop) });
            }
        }
        now.map(|index| state.chunks.entry(index).or_default().clone()).collect()
    }

    async fn load(&self, chunk: &Chunk, index: u64) -> Result<Bytes, i32> {
        chunk.get_or_init(|| self.fetch(index * CHUNK_BYTES, CHUNK_BYTES)).await.clone()
    }

    async fn assemble(&self, offset: u64, length: u64, first: u64, chunks: &[Chunk]) -> Result<Bytes, i32> {
        let mut gathered = BytesMut::new();
        for (index, chunk) in (first..).zip(chunks) {
            let content = match self.load(chunk, index).await {
                Ok(content) => content,
                Err(errno) => {
                    // The next read tries again.
                    self.state().chunks.remove(&index);
                    return Err(errno);
                }
            };
            let start = index * CHUNK_BYTES;
            let from = (offset.max(start) - start).min(content.len() as u64) as usize;
            let to = (offset + length - start).min(content.len() as u64) as usize;
            let part = content.slice(from..to.max(from));
            if part.len() as u64 == length {
                return Ok(part);
            }
            gathered.extend_from_slice(&part);
            if (content.len() as u64) < CHUNK_BYTES {
                break;
            }
        }
        let reached = offset + gathered.len() as u64;
        if (gathered.len() as u64) < length && reached < self.state().status.length {
            // The file has grown since the chunk was fetched.
            gathered.extend_from_slice(&self.fetch(reached, offset + length - reached).await?);
        }
        Ok(gathered.freeze())
    }

    async fn fetch(&self, offset: u64, length: u64) -> Result<Bytes, i32> {
        self.create_with_content(&[]).await?;
        loop {
            let path = self.shared.path(self.inode)?;
            let operation = format!("read {path}");
            let read = self.shared.retry.run(operation, |_| self.shared.remote.read(&path, offset, length)).await;
            match read {
                Err(libc::ENOENT) if self.has_moved(&path) => {}
                read => return read,
            }
        }
    }
}
