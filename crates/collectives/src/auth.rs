//! Mutual authentication of the two ends of a connection, before anything else is read from it. Reads at most two messages of fixed
//! length from an unauthenticated peer, and never prints the secret.
//!
//! Each side sends a hello (version, role, digest of the context, fresh nonce), then the HMAC-SHA256 of both hellos
//! under the job's secret. A replayed MAC fails because it covers the nonce of the other side, and a reflected MAC fails because it covers
//! the role. Without a secret the hellos are still compared, which excludes connections of other jobs and programs.

use std::fmt;
use std::io::{self, Read, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The shared secret of the ranks of one job.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }

    /// HMAC-SHA256 over the parts and their lengths. The lengths keep bytes from moving between parts.
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Verifies a signature of [`Secret::sign`] in constant time.
    pub fn is_signed(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        self.mac(parts).verify_slice(signature).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The end of a connection: the one that connected or the one that accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    Dialer = 1,
    Listener = 2,
}

#[derive(Debug, Error)]
pub enum AuthError {
    #[error("the connection broke during authentication")]
    Io(#[source] io::Error),
    #[error("the peer closed the connection during authentication")]
    Closed,
    #[error("the peer does not speak Corro's protocol")]
    NotCorro,
    #[error("the peer uses protocol version {theirs}, this process version {VERSION}: use one build in all ranks")]
    Version { theirs: u8 },
    #[error("the peer belongs to another job, or expects another kind of connection")]
    OtherJob,
    #[error("the peer claims to be the same end of the connection as this process")]
    SameRole,
    #[error("the peer has no secret, but the job has one: pass CORRO_JOB_SECRET to every rank")]
    PeerWithoutSecret,
    #[error("the peer requires the job's secret, but this process has none: pass CORRO_JOB_SECRET to every rank")]
    WithoutSecret,
    #[error("the peer does not know the job's secret")]
    WrongMac,
    #[error("cannot get random bytes from the system")]
    Random(#[source] getrandom::Error),
}

/// Authenticates both ends of a connection to each other. `context` identifies the purpose of the connection and
/// must be equal on both sides. The time limits of the stream apply; after an error the stream must be dropped.
pub fn authenticate(
    mut stream: impl Read + Write,
    secret: Option<&Secret>,
    context: &[u8],
    role: Role,
) -> Result<(), AuthError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(AuthError::Random)?;
    let mine = Hello { role: role as u8, has_secret: secret.is_some(), context: Sha256::digest(context).into(), nonce };
    let mine = mine.encode();
    send(&mut stream, &mine)?;
    let mut theirs = [0; HELLO_BYTES];
    // Checked first, because a peer of another protocol may never send as many bytes as a hello has.
    receive(&mut stream, &mut theirs[..MAGIC.len() + 1])?;
    check_opening(&theirs)?;
    receive(&mut stream, &mut theirs[MAGIC.len() + 1..])?;
    check_hello(&mine, &theirs)?;
    let Some(secret) = secret else { return Ok(()) };
    send(&mut stream, &secret.sign(&[MAC_LABEL, &mine, &theirs]))?;
    let mut mac = [0; MAC_BYTES];
    receive(&mut stream, &mut mac)?;
    // Each side signs its own hello first, so the two MACs of a connection differ.
    if secret.is_signed(&[MAC_LABEL, &theirs, &mine], &mac) { Ok(()) } else { Err(AuthError::WrongMac) }
}

pub const MAC_BYTES: usize = 32;
const VERSION: u8 = 1;
const MAGIC: &[u8; 7] = b"corro\r\n";
const MAC_LABEL: &[u8] = b"corro connection";
const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = MAGIC.len() + 3 + 32 + NONCE_BYTES;

struct Hello {
    role: u8,
    has_secret: bool,
    context: [u8; 32],
    nonce: [u8; NONCE_BYTES],
}

impl Hello {
    fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let (magic, rest) = bytes.split_at_mut(MAGIC.len());
        magic.copy_from_slice(MAGIC);
        rest[..3].copy_from_slice(&[VERSION, self.role, self.has_secret.into()]);
        rest[3..35].copy_from_slice(&self.context);
        rest[35..].copy_from_slice(&self.nonce);
        bytes
    }
}

fn check_opening(theirs: &[u8]) -> Result<(), AuthError> {
    match theirs[MAGIC.len()] {
        _ if !theirs.starts_with(MAGIC) => Err(AuthError::NotCorro),
        VERSION => Ok(()),
        theirs => Err(AuthError::Version { theirs }),
    }
}

fn check_hello(mine: &[u8; HELLO_BYTES], theirs: &[u8; HELLO_BYTES]) -> Result<(), AuthError> {
    let ([my_role, my_secret], [their_role, their_secret]) = ([mine[8], mine[9]], [theirs[8], theirs[9]]);
    if mine[10..42] != theirs[10..42] {
        return Err(AuthError::OtherJob);
    }
    if my_role == their_role {
        return Err(AuthError::SameRole);
    }
    match (my_secret, their_secret) {
        (1, 0) => Err(AuthError::PeerWithoutSecret),
        (0, 1) => Err(AuthError::WithoutSecret),
        (mine, theirs) if mine == theirs => Ok(()),
        _ => Err(AuthError::NotCorro),
    }
}

fn send(stream: &mut impl Write, bytes: &[u8]) -> Result<(), AuthError> {
    stream.write_all(bytes).and_then(|()| stream.flush()).map_err(io_error)
}

fn receive(stream: &mut impl Read, bytes: &mut [u8]) -> Result<(), AuthError> {
    stream.read_exact(bytes).map_err(io_error)
}

/// A peer that closes the socket with unread bytes resets the connection, which counts as closing too.
fn io_error(error: io::Error) -> AuthError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        UnexpectedEof | ConnectionReset | BrokenPipe => AuthError::Closed,
        _ => AuthError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    type Outcome = Result<(), AuthError>;

    /// Authenticates two ends, each with its own secret and context. Returns the listener's outcome first.
    fn authenticate_pair(dialer: (Option<&str>, &str), listener: (Option<&str>, &str)) -> (Outcome, Outcome) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let side = |stream, (secret, context): (Option<&str>, &str), role| {
            authenticate(stream, secret.map(Secret::new).as_ref(), context.as_bytes(), role)
        };
        thread::scope(|scope| {
            let dialer = scope.spawn(move || side(ours, dialer, Role::Dialer));
            (side(theirs, listener, Role::Listener), dialer.join().unwrap())
        })
    }

    #[test]
    fn equal_secrets_authenticate() {
        for secret in [None, Some("s3")] {
            let (listener, dialer) = authenticate_pair((secret, "data 0 1"), (secret, "data 0 1"));
            assert!(listener.is_ok() && dialer.is_ok(), "{listener:?} {dialer:?}");
        }
    }

    #[test]
    fn no_byte_after_the_mac_is_consumed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let secret = Secret::new("s3");
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(addr).unwrap();
                authenticate(&mut stream, Some(&secret), b"x", Role::Dialer).unwrap();
                stream.write_all(b"payload").unwrap();
            });
            let (mut stream, _) = listener.accept().unwrap();
            authenticate(&mut stream, Some(&secret), b"x", Role::Listener).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert_eq!(text, "payload");
        });
    }

    #[test]
    fn failures_are_told_apart() {
        let (listener, dialer) = authenticate_pair((Some("right"), "x"), (Some("wrong"), "x"));
        assert!(matches!((listener, dialer), (Err(AuthError::WrongMac), Err(AuthError::WrongMac))));
        let (listener, dialer) = authenticate_pair((Some("s"), "job 1"), (Some("s"), "job 2"));
        assert!(matches!((listener, dialer), (Err(AuthError::OtherJob), Err(AuthError::OtherJob))));
        let (listener, dialer) = authenticate_pair((None, "x"), (Some("s"), "x"));
        assert!(matches!((listener, dialer), (Err(AuthError::PeerWithoutSecret), Err(AuthError::WithoutSecret))));
    }

    /// The error of a listener with the secret `s` and the context `x` whose peer does `act` and then shuts down its side.
    fn attack_error(act: impl FnOnce(&mut UnixStream) + Send) -> AuthError {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                act(&mut theirs);
                theirs.shutdown(Shutdown::Write).unwrap();
                // Closing with unread bytes would reset the connection before the listener has read the peer's.
                let _ = theirs.read_to_end(&mut Vec::new());
            });
            authenticate(ours, Some(&Secret::new("s")), b"x", Role::Listener)
                .expect_err("an attacker does not authenticate")
        })
    }

    fn hello_of(stream: &mut UnixStream) -> [u8; HELLO_BYTES] {
        let mut hello = [0; HELLO_BYTES];
        stream.read_exact(&mut hello).unwrap();
        hello
    }

    #[test]
    fn a_reflected_hello_or_mac_is_refused() {
        let error = attack_error(|stream| {
            let hello = hello_of(stream);
            stream.write_all(&hello).unwrap();
        });
        assert!(matches!(error, AuthError::SameRole), "{error:?}");
        let error = attack_error(|stream| {
            let mut hello = hello_of(stream);
            hello[MAGIC.len() + 1] = Role::Dialer as u8;
            stream.write_all(&hello).unwrap();
            let mut mac = [0; MAC_BYTES];
            stream.read_exact(&mut mac).unwrap();
            stream.write_all(&mac).unwrap();
        });
        assert!(matches!(error, AuthError::WrongMac), "{error:?}");
    }

    #[test]
    fn a_recorded_conversation_is_refused() {
        // Records the bytes of a dialer that knows the secret.
        let (dialer, mut tap) = UnixStream::pair().unwrap();
        let (listener, mut forward) = UnixStream::pair().unwrap();
        let secret = Secret::new("s");
        let recorded = thread::scope(|scope| {
            scope.spawn(|| authenticate(dialer, Some(&secret), b"x", Role::Dialer).unwrap());
            scope.spawn(|| authenticate(listener, Some(&secret), b"x", Role::Listener).unwrap());
            let mut recorded = Vec::new();
            for n_bytes in [HELLO_BYTES, MAC_BYTES] {
                let mut message = vec![0; n_bytes];
                tap.read_exact(&mut message).unwrap();
                forward.write_all(&message).unwrap();
                recorded.extend_from_slice(&message);
                forward.read_exact(&mut message).unwrap();
                tap.write_all(&message).unwrap();
            }
            recorded
        });
        let error = attack_error(|stream| stream.write_all(&recorded).unwrap());
        assert!(matches!(error, AuthError::WrongMac), "{error:?}");
    }

    #[test]
    fn garbage_and_broken_messages_are_refused() {
        let error = attack_error(|stream| stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap());
        assert!(matches!(error, AuthError::NotCorro), "{error:?}");
        let error = attack_error(|stream| stream.write_all(b"corro\r\n\x09").unwrap());
        assert!(matches!(error, AuthError::Version { theirs: 9 }), "{error:?}");
        for n_bytes in [0, 4, 8, 20] {
            let hello = Hello { role: 1, has_secret: true, context: Sha256::digest(b"x").into(), nonce: [7; 32] };
            let error = attack_error(|stream| stream.write_all(&hello.encode()[..n_bytes]).unwrap());
            assert!(matches!(error, AuthError::Closed), "{n_bytes}: {error:?}");
        }
    }

    #[test]
    fn the_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some(Secret(..))");
    }

    #[test]
    fn bytes_do_not_move_between_signed_parts() {
        let secret = Secret::new("s");
        let signature = secret.sign(&[b"ab", b"c"]);
        assert!(secret.is_signed(&[b"ab", b"c"], &signature));
        assert!(!secret.is_signed(&[b"a", b"bc"], &signature));
        assert!(!secret.is_signed(&[b"ab", b"c"], &signature[..31]));
    }
}
