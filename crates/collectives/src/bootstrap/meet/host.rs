//! The meeting at rank 0, as rank 0 sees it. Entered by [`super::exchange`]. Every visitor has a thread of its own until it has
//! proved itself and said what it brings, so that one who says nothing keeps nobody waiting.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::envelope::pack;
use super::guest::{self, ALL, CALLED_OFF, HEAD_BYTES, REFUSED};
use super::origin::Origin;
use super::session::Member;
use super::spot::{Spot, is_local};
use super::stream::Stream;
use super::{LONGEST_BLOB, MeetError, Ranks, is_telling};
use crate::bootstrap::place::Host;
use crate::fork::ForkClosed;
use crate::trust::{Role, Secret, TrustError, prove};

const LONGEST_PROOF: Duration = Duration::from_secs(5);
/// For the last words to guests after the deadline.
const GRACE: Duration = Duration::from_secs(1);
/// How long rank 0 listens for others who claim a place, once all have come, where nothing but their origin tells the ranks of two worlds
/// apart: two worlds that start at the same time from one script come together within it.
const SETTLING: Duration = Duration::from_millis(500);
/// Beside the ranks themselves; further visitors are turned away at the door.
const MOST_STRANGERS: usize = 64;

/// Everyone's blob by rank, which every guest has then been sent too, and the connections to the guests.
pub fn receive_all(
    spot: &Spot,
    secret: Option<&Secret>,
    own: Vec<u8>,
    deadline: Instant,
) -> Result<(Vec<Vec<u8>>, Vec<Member>), MeetError> {
    let started = Instant::now();
    let doors = open(spot, secret, deadline)?;
    let (bell, ringer) = UnixStream::pair().map_err(MeetError::Wait)?;
    for end in [&bell, &ringer] {
        end.set_nonblocking(true).map_err(MeetError::Wait)?;
    }
    let (sender, arrivals) = channel();
    let mut party = Party {
        spot,
        origin: Origin::own(),
        checks_origins: spot.is_ambiguous && secret.is_none(),
        guests: (0..spot.size).map(|_| None).collect(),
        visitors: Vec::new(),
        stranger: None,
        doubt: None,
    };
    let entrance = Entrance { spot, secret, deadline, sender, ringer };
    let outcome = thread::scope(|scope| {
        let outcome = party.gather(scope, &entrance, &doors, &bell, &arrivals, started);
        for (_, visitor) in &party.visitors {
            visitor.hang_up();
        }
        outcome
    });
    // Before the last words: a guest that has left may come to the next round, and must not find these doors open.
    drop(doors);
    let until = deadline.max(Instant::now() + GRACE);
    if let Err(error) = outcome {
        let reason = error.to_string();
        for guest in party.guests.iter().flatten() {
            let _ = say(&guest.stream, CALLED_OFF, reason.as_bytes(), until);
        }
        return Err(error);
    }
    let mut all = vec![own];
    let mut members = Vec::new();
    for guest in party.guests.into_iter().skip(1) {
        let guest = guest.expect("all came");
        all.push(guest.blob);
        members.push(Member::new(guest.rank, guest.stream));
    }
    let body = pack(&all);
    for member in &members {
        // The end of one that is gone by now is noticed while the ranks connect.
        let _ = say(&member.stream, ALL, &body, until);
    }
    Ok((all, members))
}

struct Guest {
    rank: usize,
    size: usize,
    origin: Origin,
    blob: Vec<u8>,
    stream: Stream,
}

/// What the threads of visitors share.
struct Entrance<'a> {
    spot: &'a Spot,
    secret: Option<&'a Secret>,
    deadline: Instant,
    sender: Sender<(u64, Result<Guest, TrustError>)>,
    ringer: UnixStream,
}

struct Party<'a> {
    spot: &'a Spot,
    /// Of this process, which is rank 0.
    origin: Origin,
    /// Neither a secret nor the identity keeps another world's ranks away.
    checks_origins: bool,
    guests: Vec<Option<Guest>>,
    /// Those in a thread of theirs, to be thrown out at the end.
    visitors: Vec<(u64, Stream)>,
    stranger: Option<TrustError>,
    /// Why nobody can say who belongs to this world.
    doubt: Option<String>,
}

impl Party<'_> {
    fn gather<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        entrance: &'env Entrance<'env>,
        doors: &[Door],
        bell: &UnixStream,
        arrivals: &Receiver<(u64, Result<Guest, TrustError>)>,
        started: Instant,
    ) -> Result<(), MeetError> {
        let mut n_visits = 0;
        let mut settled: Option<Instant> = None;
        loop {
            let is_complete = self.guests.iter().skip(1).all(Option::is_some);
            if is_complete && !self.checks_origins {
                return Ok(());
            }
            let until = match is_complete {
                true => *settled.get_or_insert(Instant::now() + SETTLING),
                false => entrance.deadline,
            };
            let left = until.saturating_duration_since(Instant::now());
            match left.is_zero() {
                true if is_complete => return Ok(()),
                true => return Err(self.missing(started)),
                false => {}
            }
            let guests = self.guests.iter().flatten().map(|guest| guest.stream.as_fd());
            let descriptors = doors.iter().map(AsFd::as_fd).chain([bell.as_fd()]).chain(guests);
            let mut waits: Vec<PollFd> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let limit = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
            match poll(&mut waits, Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(MeetError::Wait(error.into())),
            }
            // A guest says nothing while it waits, so its stream is readable only at its end.
            if let Some(gone) = self.guests.iter().flatten().find(|guest| guest.stream.is_hung_up()) {
                return Err(MeetError::Left { rank: gone.rank, missing: Ranks(self.absent()) });
            }
            for door in doors {
                while let Some(stream) = door.answer() {
                    n_visits += 1;
                    self.admit(scope, entrance, n_visits, stream);
                }
            }
            while (&*bell).read(&mut [0; 64]).is_ok_and(|n_bytes| n_bytes > 0) {}
            while let Ok((visit, outcome)) = arrivals.try_recv() {
                self.visitors.retain(|(known, _)| *known != visit);
                match outcome {
                    Ok(guest) => self.seat(guest),
                    Err(error) if is_telling(&error) => self.stranger = Some(error),
                    Err(error) => self.stranger = self.stranger.take().or(Some(error)),
                }
            }
            if let Some(reason) = self.doubt.take() {
                return Err(MeetError::Ambiguous { reason });
            }
        }
    }

    fn admit<'scope, 'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        entrance: &'env Entrance<'env>,
        visit: u64,
        stream: Stream,
    ) {
        let Ok(handle) = stream.try_clone() else { return };
        if self.visitors.len() >= self.spot.size + MOST_STRANGERS {
            return;
        }
        self.visitors.push((visit, handle));
        scope.spawn(move || {
            let outcome = entrance.welcome(stream);
            // The other end lives as long as the scope; a full bell has rung already.
            let _ = entrance.sender.send((visit, outcome));
            let _ = (&entrance.ringer).write(&[1]);
        });
    }

    /// Another world must not harm this one: a process that does not belong is refused, and the meeting goes on. Where nobody can say which
    /// of two processes belongs, it is called off: ranks of two worlds must not be mixed.
    fn seat(&mut self, guest: Guest) {
        if let Some(reason) = self.refusal(&guest) {
            if self.is_doubtful(&guest) {
                self.doubt = Some(self.ambiguity(guest.rank));
            }
            return self.refuse(&guest, &reason);
        }
        let rank = guest.rank;
        let seated = self.guests[rank].replace(guest);
        if let Some(seated) = seated {
            // A child of rank 0's own launcher is believed rather than somebody else's.
            self.refuse(&seated, &self.duplicate(rank));
        }
    }

    /// Why a process cannot take part; names this world and the other.
    fn refusal(&self, guest: &Guest) -> Option<String> {
        let (size, places, pid) = (self.spot.size, self.spot.places(), self.origin.pid);
        if guest.size != size {
            return Some(format!(
                "another world of {size} ranks meets at {places}, and this process is rank {} of a world of {} ranks: choose \
                 another MASTER_PORT for one of them, or correct the number of ranks",
                guest.rank, guest.size
            ));
        }
        if guest.rank == 0 {
            return Some(format!(
                "a world of {size} ranks already meets at {places}, and its rank 0 is process {pid}; this process is rank 0 of \
                 another: choose another MASTER_PORT, or end the other one first"
            ));
        }
        if guest.rank >= size {
            return Some(format!("rank {} is out of range in a world of {size}", guest.rank));
        }
        if self.checks_origins && !self.origin.may_share_world(&guest.origin) {
            return Some(format!(
                "another world of {size} ranks meets at {places}; its rank 0 (process {pid}) and this process have neither the \
                 parent process nor the session in common: choose another MASTER_PORT, or, if they are one world, give all its \
                 ranks the same CORRO_JOB_SECRET"
            ));
        }
        let seated = self.guests[guest.rank].as_ref()?;
        let is_closer =
            self.checks_origins && self.origin.is_sibling(&guest.origin) && !self.origin.is_sibling(&seated.origin);
        (!is_closer).then(|| self.duplicate(guest.rank))
    }

    /// Whether the process claims a place that is taken, its own or that of this rank 0, and its origin is as good as that of those who are here.
    fn is_doubtful(&self, guest: &Guest) -> bool {
        let is_as_close =
            |seated: &Guest| self.origin.is_sibling(&guest.origin) || !self.origin.is_sibling(&seated.origin);
        let mut rivals: Box<dyn Iterator<Item = &Guest>> = match guest.rank {
            0 => Box::new(self.guests.iter().flatten()),
            rank => Box::new(self.guests.get(rank).into_iter().flatten()),
        };
        self.checks_origins
            && guest.size == self.spot.size
            && self.origin.may_share_world(&guest.origin)
            && rivals.any(is_as_close)
    }

    fn ambiguity(&self, rank: usize) -> String {
        let (size, places) = (self.spot.size, self.spot.places());
        format!(
            "two processes say that they are rank {rank} of a world of {size} ranks that meets at {places}, and nothing tells whose ranks \
             are whose: choose another MASTER_PORT for one of the worlds, or give each a CORRO_JOB_SECRET"
        )
    }

    fn duplicate(&self, rank: usize) -> String {
        let (size, places, pid) = (self.spot.size, self.spot.places(), self.origin.pid);
        format!(
            "another process is already here as rank {rank} of the world of {size} ranks that meets at {places} (its rank 0 is \
             process {pid}): if two worlds use one MASTER_PORT, choose another for one of them or give each a CORRO_JOB_SECRET"
        )
    }

    fn refuse(&self, guest: &Guest, reason: &str) {
        // It is leaving anyway.
        let _ = say(&guest.stream, REFUSED, reason.as_bytes(), Instant::now() + GRACE);
    }

    fn absent(&self) -> Vec<usize> {
        let absent = self.guests.iter().enumerate().skip(1).filter(|(_, guest)| guest.is_none());
        absent.map(|(rank, _)| rank).collect()
    }

    fn missing(&mut self, started: Instant) -> MeetError {
        MeetError::Missing { ranks: Ranks(self.absent()), waited: started.elapsed(), stranger: self.stranger.take() }
    }
}

impl Entrance<'_> {
    fn welcome(&self, stream: Stream) -> Result<Guest, TrustError> {
        let until = self.deadline.min(Instant::now() + LONGEST_PROOF);
        if !stream.is_same_user() {
            return Err(TrustError::OtherJob);
        }
        let mut timed = stream.until(until);
        prove(&mut timed, self.secret, &self.spot.context, Role::Listener)?;
        let mut head = [0; HEAD_BYTES];
        timed.read_exact(&mut head).map_err(TrustError::Io)?;
        let number = |nth: usize| u32::from_le_bytes(head[4 * nth..][..4].try_into().expect("four bytes")) as usize;
        let [rank, size, length] = [0, 1, 2].map(number);
        // Room for the signature around a blob.
        if length > LONGEST_BLOB + 1024 {
            return Err(TrustError::NotCorro);
        }
        let mut blob = vec![0; length];
        timed.read_exact(&mut blob).map_err(TrustError::Io)?;
        let origin = Origin::decode(head[12..].try_into().expect("the rest of the head"));
        Ok(Guest { rank, size, origin, blob, stream })
    }
}

fn say(stream: &Stream, kind: u8, body: &[u8], deadline: Instant) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut message = vec![kind];
    message.extend_from_slice(&length.to_le_bytes());
    message.extend_from_slice(body);
    stream.until(deadline).write_all(&message)
}

enum Door {
    Tcp(ForkClosed<TcpListener>),
    Unix(ForkClosed<UnixListener>),
}

impl Door {
    /// A visitor, if there is one; an error is a visitor that has already gone.
    fn answer(&self) -> Option<Stream> {
        Some(match self {
            Door::Tcp(listener) => {
                let stream = listener.accept().ok()?.0;
                // Answers must not wait for an acknowledgement; if this fails they are merely slower.
                let _ = stream.set_nodelay(true);
                stream.into()
            }
            Door::Unix(listener) => listener.accept().ok()?.0.into(),
        })
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Tcp(listener) => listener.as_fd(),
            Door::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Listens wherever guests may come. A socket that is taken may be that of a predecessor which is about to end.
fn open(spot: &Spot, secret: Option<&Secret>, deadline: Instant) -> Result<Vec<Door>, MeetError> {
    if let Host::Perhaps(_) = spot.host
        && !spot.addresses().is_ok_and(|addresses| addresses.into_iter().any(is_local))
    {
        return Err(MeetError::NotHere { places: spot.places() });
    }
    loop {
        let failure = match try_open(spot) {
            Ok(doors) => return Ok(doors),
            Err(failure) => failure,
        };
        if failure.kind() != io::ErrorKind::AddrInUse {
            return Err(MeetError::Listen { places: spot.places(), source: failure });
        }
        if let Some(refused) = guest::ask_other_host(spot, secret, deadline) {
            return Err(refused);
        }
        let pause = Duration::from_millis(20);
        if Instant::now() + pause > deadline {
            return Err(MeetError::AddressTaken { places: spot.places(), source: failure });
        }
        thread::sleep(pause);
    }
}

fn try_open(spot: &Spot) -> io::Result<Vec<Door>> {
    let unix = ForkClosed::new(UnixListener::bind_addr(&spot.unix()?)?);
    unix.set_nonblocking(true)?;
    let mut doors = vec![Door::Unix(unix)];
    let interfaces: &[&str] = match &spot.host {
        Host::Here => return Ok(doors),
        // Only by its own word: a host may know itself by a loopback address, and others know it by another.
        Host::At(name) if matches!(name.as_str(), "localhost" | "127.0.0.1") => &["127.0.0.1"],
        Host::At(name) if matches!(name.as_str(), "::1" | "[::1]") => &["::1"],
        // The first also takes IPv4, where the host has IPv6 at all.
        Host::At(_) | Host::Perhaps(_) => &["::", "0.0.0.0"],
    };
    for port in spot.ports {
        let mut bound = interfaces.iter().map(|interface| TcpListener::bind((*interface, port)));
        if let Some(listener) = bound.find_map(Result::ok) {
            listener.set_nonblocking(true)?;
            doors.push(Door::Tcp(ForkClosed::new(listener)));
        }
    }
    if doors.len() == 1 { Err(io::ErrorKind::AddrInUse.into()) } else { Ok(doors) }
}
