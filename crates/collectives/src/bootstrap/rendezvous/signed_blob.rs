//! Encoding of blobs: signed with HMAC when the job has a secret, and several blobs in one message. Pure.

use super::error::RendezvousError;
use crate::auth::{MAC_BYTES, Secret};

/// Signs and verifies the blobs of one round.
pub struct BlobSigner<'a> {
    pub secret: Option<&'a Secret>,
    pub round: u64,
    pub size: usize,
}

const MAGIC: &[u8; 7] = b"corro\x00\x01";
const PLAIN: u8 = 0;
const SIGNED: u8 = 1;

impl BlobSigner<'_> {
    pub fn sign(&self, rank: usize, blob: &[u8]) -> Vec<u8> {
        let mut signed = MAGIC.to_vec();
        match self.secret {
            None => signed.push(PLAIN),
            Some(secret) => {
                signed.push(SIGNED);
                signed.extend_from_slice(&secret.sign(&self.signed_parts(&self.numbers(rank), blob)));
            }
        }
        signed.extend_from_slice(blob);
        signed
    }

    pub fn verify<'b>(&self, rank: usize, signed: &'b [u8]) -> Result<&'b [u8], RendezvousError> {
        let (kind, rest) =
            signed.strip_prefix(MAGIC).and_then(<[u8]>::split_first).ok_or(RendezvousError::Malformed { rank })?;
        match (*kind, self.secret) {
            (PLAIN, None) => Ok(rest),
            (PLAIN, Some(_)) => Err(RendezvousError::Unsigned { rank }),
            (SIGNED, None) => Err(RendezvousError::WithoutSecret { rank }),
            (SIGNED, Some(secret)) => {
                let (signature, blob) = rest.split_at_checked(MAC_BYTES).ok_or(RendezvousError::Malformed { rank })?;
                let is_valid = secret.is_signed(&self.signed_parts(&self.numbers(rank), blob), signature);
                if is_valid { Ok(blob) } else { Err(RendezvousError::WrongSignature { rank }) }
            }
            _ => Err(RendezvousError::Malformed { rank }),
        }
    }

    /// Round, rank and size, which are signed too, so that a blob of another rank or round is refused.
    fn numbers(&self, rank: usize) -> [u8; 24] {
        let mut numbers = [0; 24];
        for (slot, number) in numbers.chunks_exact_mut(8).zip([self.round, rank as u64, self.size as u64]) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        numbers
    }

    fn signed_parts<'b>(&self, numbers: &'b [u8], blob: &'b [u8]) -> [&'b [u8]; 3] {
        [b"corro meeting", numbers, blob]
    }
}

/// Concatenates blobs, each after its length (u32, little-endian).
pub fn pack(blobs: &[Vec<u8>]) -> Vec<u8> {
    let mut message = Vec::with_capacity(blobs.iter().map(|blob| blob.len() + 4).sum());
    for blob in blobs {
        message.extend_from_slice(&u32::try_from(blob.len()).expect("blobs are short").to_le_bytes());
        message.extend_from_slice(blob);
    }
    message
}

/// Splits a message of [`pack`]; `None` when it does not hold exactly `n_blobs` blobs.
pub fn unpack(mut message: &[u8], n_blobs: usize) -> Option<Vec<Vec<u8>>> {
    let mut blobs = Vec::new();
    for _ in 0..n_blobs {
        let (length, rest) = message.split_first_chunk::<4>()?;
        let (blob, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        blobs.push(blob.to_vec());
        message = rest;
    }
    message.is_empty().then_some(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(writer: Option<&str>, reader: Option<&str>, expected: Result<&str, &str>) {
        let (writer, reader) = (writer.map(Secret::new), reader.map(Secret::new));
        let signed = BlobSigner { secret: writer.as_ref(), round: 1, size: 4 }.sign(3, b"blob");
        let signer = BlobSigner { secret: reader.as_ref(), round: 1, size: 4 };
        match (signer.verify(3, &signed), expected) {
            (Ok(blob), Ok(expected)) => assert_eq!(blob, expected.as_bytes()),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (seen, expected) => panic!("{seen:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn only_signatures_with_the_same_secret_are_accepted() {
        check(None, None, Ok("blob"));
        check(Some("s"), Some("s"), Ok("blob"));
        check(None, Some("s"), Err("rank 3 joined the rendezvous without the job's secret"));
        check(Some("s"), None, Err("this process has none"));
        check(Some("s"), Some("t"), Err("the blob of rank 3 is not signed with the job's secret"));
    }

    #[test]
    fn a_blob_of_another_rank_or_round_is_refused() {
        let secret = Secret::new("s");
        let signer = BlobSigner { secret: Some(&secret), round: 1, size: 4 };
        let signed = signer.sign(3, b"blob");
        assert!(matches!(signer.verify(2, &signed), Err(RendezvousError::WrongSignature { rank: 2 })));
        let later = BlobSigner { round: 2, ..signer };
        assert!(matches!(later.verify(3, &signed), Err(RendezvousError::WrongSignature { rank: 3 })));
        for n_bytes in 0..MAGIC.len() + 1 + MAC_BYTES {
            assert!(
                matches!(later.verify(3, &signed[..n_bytes]), Err(RendezvousError::Malformed { rank: 3 })),
                "{n_bytes}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn packed_blobs_round_trip(blobs: Vec<Vec<u8>>, extra: u8) {
            let mut message = pack(&blobs);
            proptest::prop_assert_eq!(unpack(&message, blobs.len()), Some(blobs.clone()));
            proptest::prop_assert_eq!(unpack(&message, blobs.len() + 1), None);
            message.push(extra);
            proptest::prop_assert_eq!(unpack(&message, blobs.len()), None);
        }
    }
}
