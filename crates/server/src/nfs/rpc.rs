//! ONC RPC messages (RFC 5531): decodes calls from a record, encodes replies with their record mark. Pure.

use nfs3_server::nfs3_types::xdr_codec::Pack;

use super::xdr::{Decoder, XdrError};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
/// Maximum size of credentials and verifiers. They are ignored: all files belong to the server's user.
const MAX_AUTH: usize = 400;

/// Header of a call; `args` starts after it.
pub struct Call<'a> {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub args: Decoder<'a>,
}

/// Reason why a record is not a call of RPC version 2.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodeCallError {
    /// Answered with the supported version.
    OtherVersion { xid: u32 },
    /// Not answered.
    Malformed,
}

impl From<XdrError> for DecodeCallError {
    fn from(_: XdrError) -> Self {
        DecodeCallError::Malformed
    }
}

impl<'a> Call<'a> {
    pub fn decode(record: &'a [u8]) -> Result<Self, DecodeCallError> {
        let mut decoder = Decoder::new(record);
        let xid = decoder.u32()?;
        if decoder.u32()? != CALL {
            return Err(DecodeCallError::Malformed);
        }
        if decoder.u32()? != RPC_VERSION {
            return Err(DecodeCallError::OtherVersion { xid });
        }
        let (program, version, procedure) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        for _credential_or_verifier in 0..2 {
            decoder.u32()?;
            decoder.opaque(MAX_AUTH)?;
        }
        Ok(Call { xid, program, version, procedure, args: decoder })
    }
}

/// `accept_stat` of a call that is not performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallRejection {
    NoProgram,
    NoVersion { only: u32 },
    NoProcedure,
    BadArguments,
}

impl From<XdrError> for CallRejection {
    fn from(_: XdrError) -> Self {
        CallRejection::BadArguments
    }
}

/// Encodes a complete reply with its record mark.
pub fn encode_reply(xid: u32, result: &Result<impl Pack, CallRejection>) -> Vec<u8> {
    let size = result.as_ref().map_or(8, |result| result.packed_size());
    let mut reply = reply_header(xid, 28 + size);
    // Accepted, with an empty verifier.
    push_words(&mut reply, &[0, 0, 0]);
    match result {
        Ok(result) => {
            push_words(&mut reply, &[0]);
            result.pack(&mut reply).expect("results fit into memory, and memory takes everything");
        }
        Err(CallRejection::NoProgram) => push_words(&mut reply, &[1]),
        Err(CallRejection::NoVersion { only }) => push_words(&mut reply, &[2, *only, *only]),
        Err(CallRejection::NoProcedure) => push_words(&mut reply, &[3]),
        Err(CallRejection::BadArguments) => push_words(&mut reply, &[4]),
    }
    add_record_mark(reply)
}

/// Reply to a call of another RPC version.
pub fn encode_version_mismatch(xid: u32) -> Vec<u8> {
    let mut reply = reply_header(xid, 24);
    push_words(&mut reply, &[1, 0, RPC_VERSION, RPC_VERSION]);
    add_record_mark(reply)
}

fn reply_header(xid: u32, size: usize) -> Vec<u8> {
    let mut reply = Vec::with_capacity(size);
    push_words(&mut reply, &[0, xid, REPLY]);
    reply
}

fn push_words(reply: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| reply.extend_from_slice(&word.to_be_bytes()));
}

fn add_record_mark(mut reply: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(reply.len() - 4).expect("replies have a few MiB at most");
    reply[..4].copy_from_slice(&(length | 1 << 31).to_be_bytes());
    reply
}
