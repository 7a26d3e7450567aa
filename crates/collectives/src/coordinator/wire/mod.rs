//! Wire format of negotiation messages: LEB128 integers and length-prefixed lists. A frame holds any number of messages.
//!
//! Frames come from peers, so decoding never panics and never allocates for a length that exceeds the remaining bytes.

mod requests;
mod responses;

use std::sync::Arc;

pub use requests::{decode_to_coordinator, encode_to_coordinator};
pub use responses::{decode_to_worker, encode_to_worker};

/// Malformed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the message is truncated")]
    Short,
    #[error("an integer has more than 64 bits")]
    LongNumber,
    #[error("a string is not UTF-8")]
    NotText,
    #[error("unknown {what} {number}")]
    UnknownNumber { what: &'static str, number: u64 },
    #[error("a {what} exceeds the length limit")]
    TooLong { what: &'static str },
}

/// Limit of the length of names and error messages.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Cursor over the bytes of a frame.
#[derive(Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// LEB128 integer.
    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && byte > 1 {
                return Err(DecodeError::LongNumber);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::LongNumber)
    }

    /// Integer of at most 32 bits; `what` names it in the error.
    fn small(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| DecodeError::UnknownNumber { what, number })
    }

    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            number => Err(DecodeError::UnknownNumber { what: "flag", number: number.into() }),
        }
    }

    fn float(&mut self) -> Result<f64, DecodeError> {
        Ok(f64::from_le_bytes(self.take(8)?.try_into().expect("eight were taken")))
    }

    fn text(&mut self) -> Result<Arc<str>, DecodeError> {
        let length = self.number()?;
        if length > MAX_TEXT_BYTES {
            return Err(DecodeError::TooLong { what: "text" });
        }
        let bytes = self.take(length as usize)?;
        std::str::from_utf8(bytes).map(Arc::from).map_err(|_| DecodeError::NotText)
    }

    /// Length-prefixed list. Each element takes at least one byte, so the remaining bytes bound the allocation.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
        let n = self.number()?;
        if n > self.0.len() as u64 {
            return Err(DecodeError::Short);
        }
        let mut list = Vec::with_capacity((n as usize).min(4096));
        for _ in 0..n {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn numbers(&mut self) -> Result<Vec<u64>, DecodeError> {
        self.list(Reader::number)
    }

    fn ranks(&mut self) -> Result<Vec<u32>, DecodeError> {
        self.list(|reader| reader.small("rank"))
    }
}

/// Appends a LEB128 integer.
fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_list<T: Copy + Into<u64>>(out: &mut Vec<u8>, list: &[T]) {
    put(out, list.len() as u64);
    for value in list {
        put(out, (*value).into());
    }
}

/// Appends prescale and postscale factors; one byte if both are 1, the common case.
fn put_scales(out: &mut Vec<u8>, scales: [f64; 2]) {
    let given = scales.map(f64::to_bits) != [1f64.to_bits(); 2];
    out.push(given.into());
    if given {
        scales.iter().for_each(|scale| out.extend_from_slice(&scale.to_le_bytes()));
    }
}

fn scales(reader: &mut Reader) -> Result<[f64; 2], DecodeError> {
    if reader.flag()? { Ok([reader.float()?, reader.float()?]) } else { Ok([1.0, 1.0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_length_round_trip() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, value);
                assert_eq!(Reader(&bytes).number(), Ok(value));
            }
        }
        assert_eq!(Reader(&[0xff; 10]).number(), Err(DecodeError::LongNumber));
        assert_eq!(Reader(&[0xff; 9]).number(), Err(DecodeError::Short));
    }

    #[test]
    fn a_length_beyond_the_frame_is_rejected() {
        let mut bytes = Vec::new();
        put(&mut bytes, u64::MAX);
        assert_eq!(Reader(&bytes).numbers(), Err(DecodeError::Short));
        assert_eq!(Reader(&bytes).text(), Err(DecodeError::TooLong { what: "text" }));
    }
}
