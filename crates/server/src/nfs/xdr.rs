//! XDR decoder (RFC 4506) for untrusted bytes: lengths are checked against a bound and the available bytes before
//! anything is allocated. Values of fixed length are decoded by the `nfs3_types` crate.

use nfs3_server::nfs3_types::xdr_codec::Unpack;

/// The bytes are not a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdrError;

/// Decodes values from the front of a slice.
#[derive(Clone, Copy)]
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder(bytes)
    }

    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.bytes(4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.bytes(8).map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Variable-length opaque data of at most `max` bytes, with its padding.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        let length = self.u32()? as usize;
        if length > max {
            return Err(XdrError);
        }
        let bytes = self.bytes(length)?;
        self.bytes(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    /// Decodes a value without strings or variable-length arrays: for those, the crate would allocate what they
    /// announce.
    pub fn fixed<T: Unpack>(&mut self) -> Result<T, XdrError> {
        T::unpack(&mut self.0).map(|(value, _)| value).map_err(|_| XdrError)
    }

    pub fn end(self) -> Result<(), XdrError> {
        if self.0.is_empty() { Ok(()) } else { Err(XdrError) }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], XdrError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(XdrError)?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_before_allocation() {
        let text = [0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 0, 0, 9];
        let mut decoder = Decoder::new(&text);
        assert_eq!(decoder.opaque(3), Ok(&b"abc"[..]));
        assert_eq!((decoder.u32(), decoder.end()), (Ok(9), Ok(())));
        assert_eq!(Decoder::new(&text).opaque(2), Err(XdrError));
        assert_eq!(Decoder::new(&text[..6]).opaque(9), Err(XdrError));
        assert_eq!(Decoder::new(&text[..7]).opaque(9), Err(XdrError), "without its padding");
        assert_eq!(Decoder::new(&[0xff; 4]).opaque(usize::MAX), Err(XdrError));
    }
}
