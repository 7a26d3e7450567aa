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

use crate::auth::Role;
use crate::close_on_fork::CloseOnFork;
use crate::peer_process;
use crate::transport::connect::credentials::{WorldCredentials, remaining_time};
use crate::transport::connect::error::ConnectError;
use crate::transport::connect::handshake_pool::HandshakePool;
use crate::transport::peer_table::PeerTable;
use crate::transport::shm::segment::Segment;

/// The listening socket of a rank. Its abstract name is random and vanishes with it.
pub struct LocalListener {
    socket: CloseOnFork<UnixListener>,
    pub name: [u8; 16],
}

impl LocalListener {
    pub fn open() -> io::Result<LocalListener> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let socket = CloseOnFork::new(UnixListener::bind_addr(&address(&name)?)?);
        socket.set_nonblocking(true)?;
        Ok(LocalListener { socket, name })
    }
}

fn address(name: &[u8; 16]) -> io::Result<SocketAddr> {
    let text: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddr::from_abstract_name(format!("corro-{text}"))
}

/// The shared memory, and the control sockets: to all ranks of the host on the lowest, to the lowest on the others.
pub struct HostMemory {
    pub segment: Segment,
    pub control_sockets: Vec<(usize, CloseOnFork<UnixStream>)>,
}

/// `ranks`: those of this host, ascending; `listener`: our own, `lowest`: that of the first of them.
pub fn share_memory(
    listener: LocalListener,
    lowest_name: &[u8; 16],
    ranks: &[usize],
    rank: usize,
    credentials: &WorldCredentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<HostMemory, ConnectError> {
    if rank == ranks[0] {
        receive_all(&listener, ranks, credentials, peer_table, deadline)
    } else {
        join(lowest_name, ranks, rank, credentials, deadline)
    }
}

fn receive_all(
    listener: &LocalListener,
    ranks: &[usize],
    credentials: &WorldCredentials,
    peer_table: &PeerTable,
    deadline: Instant,
) -> Result<HostMemory, ConnectError> {
    let segment = Segment::create(ranks.len()).map_err(ConnectError::SharedMemory)?;
    let handshake_pool = HandshakePool::open().map_err(ConnectError::SharedMemory)?;
    let mut control_sockets: Vec<(usize, CloseOnFork<UnixStream>)> = Vec::new();
    loop {
        peer_table.check_deaths()?;
        for (rank, stream) in handshake_pool.take_authenticated() {
            if ranks[1..].contains(&rank) && control_sockets.iter().all(|(seen, _)| *seen != rank) {
                control_sockets.push((rank, stream));
            }
        }
        if control_sockets.len() + 1 == ranks.len() {
            return Ok(HostMemory { segment, control_sockets });
        }
        let cause = match listener.socket.accept() {
            Ok((stream, _)) => {
                let file = segment.fd().try_clone_to_owned().map_err(ConnectError::SharedMemory)?;
                let (lowest, credentials) = (ranks[0], credentials.clone());
                let handshake_deadline = deadline.min(Instant::now() + HANDSHAKE_TIMEOUT);
                // A connection that fails to authenticate is dropped; the rank may still come.
                let handshake = move |stream: CloseOnFork<UnixStream>| {
                    let rank = accept_rank(&stream, &file, lowest, &credentials, handshake_deadline).ok()?;
                    Some((rank, stream))
                };
                handshake_pool.admit(CloseOnFork::new(stream), handshake).map_err(ConnectError::Thread)?;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                handshake_pool.wait(&*listener.socket, deadline).map_err(ConnectError::SharedMemory)?;
                continue;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            Err(error) => error,
        };
        let missing = ranks[1..].iter().copied().filter(|rank| control_sockets.iter().all(|(seen, _)| seen != rank));
        return Err(ConnectError::Missing { ranks: missing.collect(), cause });
    }
}

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

fn accept_rank(
    mut stream: &UnixStream,
    memory: &OwnedFd,
    lowest: usize,
    credentials: &WorldCredentials,
    deadline: Instant,
) -> Result<usize, ConnectError> {
    stream.set_nonblocking(false).map_err(ConnectError::SharedMemory)?;
    stream.set_read_timeout(Some(remaining_time(deadline))).map_err(ConnectError::SharedMemory)?;
    check_same_user(stream, credentials)?;
    credentials.authenticate(stream, "local", lowest, Role::Listener)?;
    let mut rank = [0; 4];
    stream.read_exact(&mut rank).map_err(ConnectError::SharedMemory)?;
    let files = [memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files_sent = SendAncillaryBuffer::new(&mut space);
    files_sent.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(stream.as_fd(), &[IoSlice::new(b"M")], &mut files_sent, SendFlags::NOSIGNAL)
        .map_err(|error| ConnectError::SharedMemory(error.into()))?;
    stream.set_read_timeout(None).map_err(ConnectError::SharedMemory)?;
    Ok(u32::from_le_bytes(rank) as usize)
}

fn join(
    lowest_name: &[u8; 16],
    ranks: &[usize],
    rank: usize,
    credentials: &WorldCredentials,
    deadline: Instant,
) -> Result<HostMemory, ConnectError> {
    let first = ranks[0];
    let missing = |cause: io::Error| ConnectError::Missing { ranks: vec![first], cause };
    let stream = address(lowest_name).and_then(|address| UnixStream::connect_addr(&address)).map_err(missing)?;
    let stream = CloseOnFork::new(stream);
    stream.set_read_timeout(Some(remaining_time(deadline))).map_err(missing)?;
    check_same_user(&stream, credentials)?;
    credentials.authenticate(&*stream, "local", first, Role::Dialer)?;
    (&*stream).write_all(&(rank as u32).to_le_bytes()).map_err(missing)?;
    let file = receive_file(&stream).map_err(missing)?;
    stream.set_read_timeout(None).map_err(missing)?;
    Ok(HostMemory { segment: Segment::from_file(file, ranks.len()), control_sockets: vec![(first, stream)] })
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
fn check_same_user(stream: &UnixStream, credentials: &WorldCredentials) -> Result<(), ConnectError> {
    if credentials.secret.is_some() {
        return Ok(());
    }
    let own = rustix::process::getuid().as_raw();
    let same = peer_process::credentials(stream).is_some_and(|peer| peer.uid == own);
    if same { Ok(()) } else { Err(ConnectError::OtherUser) }
}
