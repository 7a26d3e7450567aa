//! Hands the shared memory file of a host from its lowest rank to the others, over abstract Unix sockets (SCM_RIGHTS). Both sides keep the socket: its
//! end of file tells that the other process has ended.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage};
use rustix::net::{RecvFlags, SendFlags, recvmsg, sendmsg};

use crate::fork::ForkClosed;
use crate::transport::connect::{ConnectError, Credentials, time_left};
use crate::transport::control::peer_table::PeerTable;
use crate::transport::handshake_pool::HandshakePool;
use crate::transport::peer;
use crate::transport::shm::segment::Segment;
use crate::trust::Role;

/// The listening socket of a rank. Its abstract name is random and vanishes with it.
pub struct Door {
    listener: ForkClosed<UnixListener>,
    pub name: [u8; 16],
}

impl Door {
    pub fn open() -> io::Result<Door> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let listener = ForkClosed::new(UnixListener::bind_addr(&address(&name)?)?);
        listener.set_nonblocking(true)?;
        Ok(Door { listener, name })
    }
}

fn address(name: &[u8; 16]) -> io::Result<SocketAddr> {
    let text: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("corro-{text}"))
}

/// The shared memory, and the control sockets: to all ranks of the host on the lowest, to the lowest on the others.
pub struct Gathered {
    pub segment: Segment,
    pub watched: Vec<(usize, ForkClosed<UnixStream>)>,
}

/// `ranks`: those of this host, ascending; `door`: our own, `lowest`: that of the first of them.
pub fn gather(
    door: Door,
    lowest: &[u8; 16],
    ranks: &[usize],
    rank: usize,
    credentials: &Credentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<Gathered, ConnectError> {
    if rank == ranks[0] {
        receive_all(&door, ranks, credentials, peer_table, deadline)
    } else {
        join(lowest, ranks, rank, credentials, deadline)
    }
}

fn receive_all(
    door: &Door,
    ranks: &[usize],
    credentials: &Credentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<Gathered, ConnectError> {
    let segment = Segment::create(ranks.len()).map_err(ConnectError::Memory)?;
    let handshake_pool = HandshakePool::open().map_err(ConnectError::Memory)?;
    let mut watched: Vec<(usize, ForkClosed<UnixStream>)> = Vec::new();
    loop {
        peer_table.check_deaths()?;
        for (rank, stream) in handshake_pool.take_authenticated() {
            if ranks[1..].contains(&rank) && watched.iter().all(|(seen, _)| *seen != rank) {
                watched.push((rank, stream));
            }
        }
        if watched.len() + 1 == ranks.len() {
            return Ok(Gathered { segment, watched });
        }
        let cause = match door.listener.accept() {
            Ok((stream, _)) => {
                let file = segment.fd().try_clone_to_owned().map_err(ConnectError::Memory)?;
                let (lowest, credentials) = (ranks[0], credentials.clone());
                let patience = deadline.min(Instant::now() + LONGEST_PROOF);
                // A connection that fails to authenticate is dropped; the rank may still come.
                let welcome = move |stream: ForkClosed<UnixStream>| {
                    let rank = receive(&stream, &file, lowest, &credentials, patience).ok()?;
                    Some((rank, stream))
                };
                handshake_pool.admit(ForkClosed::new(stream), welcome).map_err(ConnectError::Thread)?;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                handshake_pool.wait(&*door.listener, deadline).map_err(ConnectError::Memory)?;
                continue;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            Err(error) => error,
        };
        let missing = ranks[1..].iter().copied().filter(|rank| watched.iter().all(|(seen, _)| seen != rank));
        return Err(ConnectError::Missing { ranks: missing.collect(), cause });
    }
}

const LONGEST_PROOF: Duration = Duration::from_secs(5);

fn receive(
    mut stream: &UnixStream,
    memory: &OwnedFd,
    lowest: usize,
    credentials: &Credentials,
    deadline: Instant,
) -> Result<usize, ConnectError> {
    stream.set_nonblocking(false).map_err(ConnectError::Memory)?;
    stream.set_read_timeout(Some(time_left(deadline))).map_err(ConnectError::Memory)?;
    same_user(stream, credentials)?;
    credentials.prove(stream, "local", lowest, Role::Listener)?;
    let mut rank = [0; 4];
    stream.read_exact(&mut rank).map_err(ConnectError::Memory)?;
    let files = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files_sent = SendAncillaryBuffer::new(&mut space);
    files_sent.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(stream.as_fd(), &[IoSlice::new(b"M")], &mut files_sent, SendFlags::NOSIGNAL)
        .map_err(|error| ConnectError::Memory(error.into()))?;
    stream.set_read_timeout(None).map_err(ConnectError::Memory)?;
    Ok(u32::from_le_bytes(rank) as usize)
}

fn join(
    lowest: &[u8; 16],
    ranks: &[usize],
    rank: usize,
    credentials: &Credentials,
    deadline: Instant,
) -> Result<Gathered, ConnectError> {
    let first = ranks[0];
    let missing = |cause: io::Error| ConnectError::Missing { ranks: vec![first], cause };
    let stream = address(lowest).and_then(|address| UnixStream::connect_addr(&address)).map_err(missing)?;
    let stream = ForkClosed::new(stream);
    stream.set_read_timeout(Some(time_left(deadline))).map_err(missing)?;
    same_user(&stream, credentials)?;
    credentials.prove(&*stream, "local", first, Role::Dialer)?;
    (&*stream).write_all(&(rank as u32).to_le_bytes()).map_err(missing)?;
    let file = receive_file(&stream).map_err(missing)?;
    stream.set_read_timeout(None).map_err(missing)?;
    Ok(Gathered { segment: Segment::received(file, ranks.len()), watched: vec![(first, stream)] })
}

fn receive_file(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut space);
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut files, RecvFlags::CMSG_CLOEXEC)?;
    let file = files.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the lowest rank of this host hung up"))
}

/// Without a job secret, only processes of the same user are accepted.
fn same_user(stream: &UnixStream, credentials: &Credentials) -> Result<(), ConnectError> {
    if credentials.secret.is_some() {
        return Ok(());
    }
    let own = rustix::process::getuid().as_raw();
    let same = peer::credentials(stream).is_some_and(|peer| peer.uid == own);
    if same { Ok(()) } else { Err(ConnectError::OtherUser) }
}
