//! Requests to start a process, as bytes and descriptors (SCM_RIGHTS) on the socket between launcher and fork server, which forwards them unchanged to a
//! guard. Both ends are the same executable, so the format has no versions.

use std::ffi::CString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::thread::CpuSet;

use crate::process_spec::ProcessSpec;

/// Bytes of the head, which is sent together with the descriptors: length of the text, numbers of arguments and variables, kind of input, number of
/// namespaces, as u32 each.
const HEAD_BYTES: usize = 20;
/// Life socket, output, error, input, and two namespaces.
const MAX_DESCRIPTORS: usize = 6;

/// A request as it was received, not decoded.
pub struct RawRequest {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// A decoded request. Variables have the form `NAME=value`.
pub struct SpawnRequest {
    pub tag: CString,
    pub cwd: CString,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub input: Input,
    /// CPU affinity; `None`: unchanged.
    pub processors: Option<CpuSet>,
    /// User namespace and mount namespace to enter.
    pub namespaces: Option<[OwnedFd; 2]>,
    pub life: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

/// Standard input of the process.
#[derive(Debug)]
pub enum Input {
    Nothing,
    Pipe(OwnedFd),
    /// Its standard output is a terminal, which becomes its controlling terminal and input.
    Terminal,
}

/// Kind of input on the wire. A pipe's descriptor comes after the first three, before namespaces.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum InputKind {
    Nothing = 0,
    Pipe = 1,
    Terminal = 2,
}

/// Encodes a request. Every string ends with a zero byte, which none can contain.
pub fn encode(spec: &ProcessSpec, input: InputKind) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut push = |parts: &[&[u8]]| {
        for part in parts {
            if part.contains(&0) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "an argument or variable contains a zero byte",
                ));
            }
            text.extend_from_slice(part);
        }
        text.push(0);
        Ok(())
    };
    push(&[spec.tag.as_bytes()])?;
    push(&[spec.cwd.as_os_str().as_bytes()])?;
    let processors: Vec<String> = spec.confinement.processors.iter().map(u16::to_string).collect();
    push(&[processors.join(",").as_bytes()])?;
    spec.argv.iter().try_for_each(|word| push(&[word.as_bytes()]))?;
    spec.env.iter().try_for_each(|(name, value)| push(&[name.as_bytes(), b"=", value.as_bytes()]))?;
    let mut request = Vec::with_capacity(HEAD_BYTES + text.len());
    let n_namespaces = spec.confinement.namespaces.as_ref().map_or(0, |namespaces| namespaces.descriptors().len());
    for count in [text.len(), spec.argv.len(), spec.env.len(), input as usize, n_namespaces] {
        let count = u32::try_from(count).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        request.extend_from_slice(&count.to_le_bytes());
    }
    request.extend_from_slice(&text);
    Ok(request)
}

/// Sends as many bytes as the socket accepts; the descriptors go with the first byte. Never blocks.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    send_part(socket, bytes, descriptors, SendFlags::DONTWAIT)
}

fn send_part(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL | flags)?)
}

/// Waits for the next request; `None` when the other end is closed.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<RawRequest>> {
    let mut bytes = vec![0; HEAD_BYTES];
    let mut descriptors = Vec::new();
    if !fill(socket, &mut bytes, &mut descriptors)? {
        return Ok(None);
    }
    bytes.resize(HEAD_BYTES + count(&bytes, 0), 0);
    if !fill(socket, &mut bytes[HEAD_BYTES..], &mut descriptors)? {
        return Ok(None);
    }
    Ok(Some(RawRequest { bytes, descriptors }))
}

impl RawRequest {
    /// Sends the request on. Blocks until all of it is sent.
    pub fn forward(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let descriptors: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        let (mut bytes, mut descriptors) = (&self.bytes[..], &descriptors[..]);
        while !bytes.is_empty() {
            match send_part(socket, bytes, descriptors, SendFlags::empty()) {
                Ok(sent) => (bytes, descriptors) = (&bytes[sent..], &[]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn decode(mut self) -> io::Result<SpawnRequest> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let (n_arguments, n_variables) = (count(&self.bytes, 4), count(&self.bytes, 8));
        let mut texts = self.bytes[HEAD_BYTES..].split_inclusive(|byte| *byte == 0);
        let mut next =
            || texts.next().and_then(|text| CString::from_vec_with_nul(text.to_vec()).ok()).ok_or_else(malformed);
        let (tag, cwd, processors) = (next()?, next()?, next()?);
        let argv = (0..n_arguments).map(|_| next()).collect::<io::Result<_>>()?;
        let env = (0..n_variables).map(|_| next()).collect::<io::Result<_>>()?;
        let namespaces = match count(&self.bytes, 16) {
            0 => None,
            _ => {
                let (mount, user) = (self.descriptors.pop(), self.descriptors.pop());
                Some([user.ok_or_else(malformed)?, mount.ok_or_else(malformed)?])
            }
        };
        let input = match count(&self.bytes, 12) {
            kind if kind == InputKind::Pipe as usize => Input::Pipe(self.descriptors.pop().ok_or_else(malformed)?),
            kind if kind == InputKind::Terminal as usize => Input::Terminal,
            _ => Input::Nothing,
        };
        let [life, stdout, stderr]: [OwnedFd; 3] = self.descriptors.try_into().map_err(|_| malformed())?;
        let processors = parse_cpu_set(processors.to_bytes());
        Ok(SpawnRequest { tag, cwd, argv, env, input, processors, namespaces, life, stdout, stderr })
    }
}

/// Parses CPU numbers separated by commas; impossible ones are ignored. `None` if no number is left.
fn parse_cpu_set(numbers: &[u8]) -> Option<CpuSet> {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok().filter(|cpu| *cpu < CpuSet::MAX_CPU);
    let mut set = CpuSet::new();
    numbers.split(|byte| *byte == b',').filter_map(number).for_each(|cpu| set.set(cpu));
    (set.count() > 0).then_some(set)
}

/// The u32 at offset `at` of a head.
fn count(head: &[u8], at: usize) -> usize {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
}

/// Reads until the buffer is full; `false` when the stream ended before.
fn fill(socket: BorrowedFd<'_>, mut buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    while !buffer.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
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
    use std::ffi::CStr;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::confinement::Confinement;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair of sockets")
    }

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let spec = ProcessSpec {
            argv: ["sh", "-c", "", "a b"].map(String::from).to_vec(),
            env: BTreeMap::from([("A".into(), "x=y".into()), ("EMPTY".into(), String::new())]),
            cwd: "/tmp".into(),
            tag: "node/1/rank-0".into(),
            confinement: Confinement { processors: vec![3, 17, u16::MAX], ..Confinement::default() },
        };
        let (here, there) = pair();
        let bytes = encode(&spec, InputKind::Pipe).expect("plain words");
        let descriptors = [here.as_fd(); 4];
        let sent = send(here.as_fd(), &bytes[..5], &descriptors).expect("the socket takes it");
        assert_eq!(sent, 5);
        send(here.as_fd(), &bytes[5..], &[]).expect("the socket takes the rest");
        let raw = receive(there.as_fd()).expect("readable").expect("a request");
        // It is forwarded to a guard unchanged.
        let (fork_server, guard) = pair();
        raw.forward(fork_server.as_fd()).expect("the socket takes it");
        drop(raw);
        let request = receive(guard.as_fd()).expect("readable").expect("a request").decode().expect("whole");
        assert_eq!(request.argv, [c"sh", c"-c", c"", c"a b"].map(CStr::to_owned));
        assert_eq!(request.env, [c"A=x=y", c"EMPTY="].map(CStr::to_owned));
        assert_eq!((request.cwd.as_c_str(), request.tag.as_c_str()), (c"/tmp", c"node/1/rank-0"));
        assert!(matches!(request.input, Input::Pipe(_)));
        let processors = request.processors.expect("three were named");
        assert!(processors.count() == 2 && processors.is_set(3) && processors.is_set(17));
        assert!(parse_cpu_set(b"").is_none());
        drop((here, request.life, request.stdout, request.stderr, request.input));
        assert!(receive(there.as_fd()).expect("readable").is_none());
    }

    #[test]
    fn zero_bytes_are_refused() {
        let (argv, confinement) = (vec!["a\0b".into()], Confinement::default());
        let spec = ProcessSpec { argv, env: BTreeMap::new(), cwd: "/".into(), tag: "t".into(), confinement };
        assert_eq!(encode(&spec, InputKind::Nothing).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
    }
}
