//! What the launcher asks of the warden, as bytes on their socket: which process to start, and the descriptors that
//! belong to it. Written by `process`, read by `guard`. Both ends are the same executable, so there are no versions.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::process::ProcessSpec;

/// Length of the text, numbers of words and variables, kind of input: the head of an order, sent together with the
/// descriptors.
const HEAD: usize = 16;

/// An order as it arrives at the warden.
pub struct Order {
    pub tag: OsString,
    pub cwd: PathBuf,
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub input: Input,
    pub life: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// What the process reads.
#[derive(Debug)]
pub enum Input {
    Nothing,
    Pipe(OwnedFd),
    /// Its standard output is a terminal, which becomes its own.
    Terminal,
}

/// The same as a number; a pipe's descriptor comes after the other three.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Kind {
    Nothing = 0,
    Pipe = 1,
    Terminal = 2,
}

/// An order on its way: every word ends with a zero byte, which none can hold.
pub fn encode(spec: &ProcessSpec, input: Kind) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut push = |parts: &[&[u8]]| {
        for part in parts {
            if part.contains(&0) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a word of the command holds a zero byte"));
            }
            text.extend_from_slice(part);
        }
        text.push(0);
        Ok(())
    };
    push(&[spec.tag.as_bytes()])?;
    push(&[spec.cwd.as_os_str().as_bytes()])?;
    spec.argv.iter().try_for_each(|word| push(&[word.as_bytes()]))?;
    spec.env.iter().try_for_each(|(name, value)| push(&[name.as_bytes(), b"=", value.as_bytes()]))?;
    let mut order = Vec::with_capacity(HEAD + text.len());
    for count in [text.len(), spec.argv.len(), spec.env.len(), input as usize] {
        let count = u32::try_from(count).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        order.extend_from_slice(&count.to_le_bytes());
    }
    order.extend_from_slice(&text);
    Ok(order)
}

/// Sends as much of the order as the socket takes; the descriptors go with its first byte.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}

/// Waits for the next order; `None` when the launcher is gone.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Order>> {
    let mut head = [0; HEAD];
    let mut descriptors = Vec::new();
    if !fill(socket, &mut head, &mut descriptors)? {
        return Ok(None);
    }
    let count = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    let (length, n_words, n_variables) = (count(0), count(4), count(8));
    let mut text = vec![0; length];
    if !fill(socket, &mut text, &mut descriptors)? {
        return Ok(None);
    }
    let garbled = || io::Error::from(io::ErrorKind::InvalidData);
    let mut words = text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let mut next = || words.next().ok_or_else(garbled);
    let (tag, cwd) = (next()?, PathBuf::from(next()?));
    let argv = (0..n_words).map(|_| next()).collect::<io::Result<_>>()?;
    let env = (0..n_variables).map(|_| variable(next()?).ok_or_else(garbled)).collect::<io::Result<_>>()?;
    let input = match count(12) {
        kind if kind == Kind::Pipe as usize => Input::Pipe(descriptors.pop().ok_or_else(garbled)?),
        kind if kind == Kind::Terminal as usize => Input::Terminal,
        _ => Input::Nothing,
    };
    let [life, stdout, stderr]: [OwnedFd; 3] = descriptors.try_into().map_err(|_| garbled())?;
    Ok(Some(Order { tag, cwd, argv, env, input, life, stdout, stderr }))
}

fn variable(text: OsString) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    // A name may begin with an equals sign, though nobody should do that.
    let at = bytes.iter().skip(1).position(|byte| *byte == b'=')? + 1;
    Some((OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
}

/// Reads until the buffer is full; `false` when the stream ended before.
fn fill(socket: BorrowedFd<'_>, mut buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(buffer)];
        let received = match recvmsg(socket.as_fd(), slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received == 0 {
            return Ok(false);
        }
        buffer = &mut buffer[received..];
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair of sockets")
    }

    #[test]
    fn an_order_arrives_as_it_was_sent() {
        let spec = ProcessSpec {
            argv: ["sh", "-c", "", "a b"].map(String::from).to_vec(),
            env: BTreeMap::from([("A".into(), "x=y".into()), ("EMPTY".into(), String::new())]),
            cwd: "/tmp".into(),
            tag: "node/1/rank-0".into(),
        };
        let (here, there) = pair();
        let bytes = encode(&spec, Kind::Pipe).expect("plain words");
        let descriptors = [here.as_fd(); 4];
        let sent = send(here.as_fd(), &bytes[..5], &descriptors).expect("the socket takes it");
        assert_eq!(sent, 5);
        send(here.as_fd(), &bytes[5..], &[]).expect("the socket takes the rest");
        let order = receive(there.as_fd()).expect("readable").expect("an order");
        assert_eq!(order.argv, ["sh", "-c", "", "a b"]);
        assert_eq!(order.env, [("A".into(), "x=y".into()), ("EMPTY".into(), OsString::new())]);
        assert_eq!((order.cwd, order.tag), (PathBuf::from("/tmp"), OsString::from("node/1/rank-0")));
        assert!(matches!(order.input, Input::Pipe(_)));
        drop((here, order.life, order.stdout, order.stderr, order.input));
        assert!(receive(there.as_fd()).expect("readable").is_none());
    }

    #[test]
    fn words_with_zero_bytes_are_refused() {
        let spec = ProcessSpec { argv: vec!["a\0b".into()], env: BTreeMap::new(), cwd: "/".into(), tag: "t".into() };
        assert_eq!(encode(&spec, Kind::Nothing).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
    }
}
