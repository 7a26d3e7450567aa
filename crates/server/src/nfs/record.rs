//! Record marking of ONC RPC over TCP (RFC 5531, section 11) with bounds: the size of a record and the number of its
//! fragments are limited, and memory is allocated for bytes that arrived, not for announced ones. A record of more than
//! [`MAX_SMALL_RECORD`] bytes is read only after [`Admission`] has seen its beginning and granted memory.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// Fits a WRITE of the largest size that FSINFO announces (1 MiB), with headers.
pub const MAX_RECORD: usize = 2 << 20;
/// Fits every call except a WRITE of much data.
pub const MAX_SMALL_RECORD: usize = 16 << 10;
/// Clients send one fragment. Empty fragments count too.
pub const MAX_FRAGMENTS: usize = 64;
/// Fits the RPC header with the largest credentials and a file handle: enough to decide on admission.
const PREFIX_BYTES: usize = 2 << 10;
const LAST_FRAGMENT: u32 = 1 << 31;

/// Grants memory for large records, or refuses.
pub trait Admission {
    /// `prefix` is the beginning of the record. Waits while all memory is in use.
    fn admit(&self, prefix: &[u8]) -> impl Future<Output = Option<OwnedSemaphorePermit>> + Send;
}

/// Complete record without its marks.
pub struct Record {
    pub bytes: Vec<u8>,
    /// Memory grant of a large record.
    pub permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("an RPC record of more than {MAX_RECORD} bytes is announced")]
    TooLong,
    #[error("an RPC record has more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
    #[error("an RPC record of more than {MAX_SMALL_RECORD} bytes is not a WRITE with a file handle of this server")]
    NotAdmitted,
    #[error("no RPC record began within {0:?}")]
    Idle(Duration),
    #[error("an RPC record was not complete within {0:?}")]
    TooSlow(Duration),
    #[error("the stream ended inside an RPC record")]
    Io(#[from] std::io::Error),
}

/// Reads the next record; `None` at the end of the stream. `idle` limits the wait for its first mark; `whole` limits
/// the time for its beginning and, separately, for its rest.
pub async fn read_record(
    input: &mut (impl AsyncRead + Unpin),
    admission: &impl Admission,
    idle: Duration,
    whole: Duration,
) -> Result<Option<Record>, RecordError> {
    let first = timeout(idle, read_mark(input)).await.map_err(|_| RecordError::Idle(idle))??;
    let Some(mark) = first else { return Ok(None) };
    let mut partial = PartialRecord { bytes: Vec::new(), left: 0, is_last: false, n_fragments: 0, is_admitted: false };
    partial.begin_fragment(mark)?;
    let is_complete = timeout(whole, partial.fill(input)).await.map_err(|_| RecordError::TooSlow(whole))??;
    let mut permit = None;
    if !is_complete {
        permit = Some(admission.admit(&partial.bytes).await.ok_or(RecordError::NotAdmitted)?);
        partial.is_admitted = true;
        timeout(whole, partial.fill(input)).await.map_err(|_| RecordError::TooSlow(whole))??;
    }
    Ok(Some(Record { bytes: partial.bytes, permit }))
}

/// `None` at the end of the stream.
async fn read_mark(input: &mut (impl AsyncRead + Unpin)) -> Result<Option<u32>, RecordError> {
    let mut mark = [0; 4];
    if input.read(&mut mark[..1]).await? == 0 {
        return Ok(None);
    }
    input.read_exact(&mut mark[1..]).await?;
    Ok(Some(u32::from_be_bytes(mark)))
}

/// Partially received record.
struct PartialRecord {
    bytes: Vec<u8>,
    /// Bytes of the current fragment that have not arrived.
    left: usize,
    is_last: bool,
    n_fragments: usize,
    is_admitted: bool,
}

impl PartialRecord {
    fn begin_fragment(&mut self, mark: u32) -> Result<(), RecordError> {
        self.n_fragments += 1;
        self.left = (mark & !LAST_FRAGMENT) as usize;
        self.is_last = mark & LAST_FRAGMENT != 0;
        if self.n_fragments > MAX_FRAGMENTS {
            return Err(RecordError::TooManyFragments);
        }
        match self.bytes.len() + self.left > MAX_RECORD {
            true => Err(RecordError::TooLong),
            false => Ok(()),
        }
    }

    /// Returns `true` if the record is complete, `false` if it must be admitted first.
    async fn fill(&mut self, input: &mut (impl AsyncRead + Unpin)) -> Result<bool, RecordError> {
        loop {
            let is_large = self.bytes.len() + self.left > MAX_SMALL_RECORD;
            let wanted = match is_large && !self.is_admitted {
                true if self.bytes.len() >= PREFIX_BYTES => return Ok(false),
                true => PREFIX_BYTES - self.bytes.len(),
                false => self.left,
            };
            self.read_some(input, wanted.min(self.left)).await?;
            if self.left == 0 {
                if self.is_last {
                    return Ok(true);
                }
                let mut mark = [0; 4];
                input.read_exact(&mut mark).await?;
                self.begin_fragment(u32::from_be_bytes(mark))?;
            }
        }
    }

    async fn read_some(&mut self, input: &mut (impl AsyncRead + Unpin), wanted: usize) -> Result<(), RecordError> {
        // A small record is bounded; a large one has its memory granted.
        self.bytes.reserve_exact(wanted);
        let end = self.bytes.len() + wanted;
        while self.bytes.len() < end {
            let mut rest = (&mut *input).take((end - self.bytes.len()) as u64);
            if rest.read_buf(&mut self.bytes).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
        }
        self.left -= wanted;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    struct Memory(Option<Arc<Semaphore>>);

    impl Admission for Memory {
        async fn admit(&self, prefix: &[u8]) -> Option<OwnedSemaphorePermit> {
            assert!((PREFIX_BYTES..=MAX_SMALL_RECORD).contains(&prefix.len()));
            self.0.clone()?.acquire_owned().await.ok()
        }
    }

    async fn read(mut input: &[u8], memory: &Memory) -> Result<Option<Record>, RecordError> {
        read_record(&mut input, memory, LONG, LONG).await
    }

    fn fragment(length: usize, is_last: bool) -> Vec<u8> {
        let mark = length as u32 | if is_last { LAST_FRAGMENT } else { 0 };
        let mut bytes = mark.to_be_bytes().to_vec();
        bytes.resize(4 + length, 7);
        bytes
    }

    #[tokio::test]
    async fn oversized_marks_are_rejected_before_memory_is_allocated() {
        let memory = Memory(Some(Arc::new(Semaphore::new(1))));
        for mark in [0x7fff_ffffu32, 0xffff_ffff, (MAX_RECORD as u32 + 1) | LAST_FRAGMENT, MAX_RECORD as u32 + 1] {
            let refused = read(&mark.to_be_bytes(), &memory).await;
            assert!(matches!(refused, Err(RecordError::TooLong)), "{mark:x}");
        }
        // The sum of all fragments counts.
        let mut parts = fragment(MAX_SMALL_RECORD, false);
        parts.extend((MAX_RECORD as u32).to_be_bytes());
        assert!(matches!(read(&parts, &memory).await, Err(RecordError::TooLong)));
    }

    #[tokio::test]
    async fn fragments_are_joined_and_counted() {
        let memory = Memory(None);
        let mut parts: Vec<u8> = (0..MAX_FRAGMENTS - 1).flat_map(|length| fragment(length, false)).collect();
        parts.extend(fragment(3, true));
        let record = read(&parts, &memory).await.expect("a record").expect("one");
        assert_eq!(record.bytes.len(), (0..MAX_FRAGMENTS - 1).sum::<usize>() + 3);
        let endless: Vec<u8> = (0..MAX_FRAGMENTS * 4).flat_map(|_| fragment(0, false)).collect();
        assert!(matches!(read(&endless, &memory).await, Err(RecordError::TooManyFragments)));
        assert!(read(&[], &memory).await.expect("an orderly end").is_none());
        for cut in [1, 3, 4, 6] {
            assert!(matches!(read(&fragment(9, true)[..cut], &memory).await, Err(RecordError::Io(_))), "{cut}");
        }
    }

    #[tokio::test]
    async fn large_records_need_memory() {
        let large = fragment(MAX_RECORD, true);
        assert!(matches!(read(&large, &Memory(None)).await, Err(RecordError::NotAdmitted)));
        let memory = Memory(Some(Arc::new(Semaphore::new(1))));
        let record = read(&large, &memory).await.expect("a record").expect("one");
        assert_eq!((record.bytes.len(), record.bytes.capacity()), (MAX_RECORD, MAX_RECORD));
        assert!(record.permit.is_some());
        let small = fragment(MAX_SMALL_RECORD, true);
        assert!(read(&small, &Memory(None)).await.expect("a record").expect("one").permit.is_none());
    }
}
