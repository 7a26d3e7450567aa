//! Wire protocol of remote execution. Handshake: both sides prove knowledge of the job's secret by HMAC-SHA256 over
//! nonces, the client's also over every byte of its request. Then frames. The secret itself is never sent.

use std::io;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Size of the server's nonce.
pub const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Limit of a frame's payload.
pub const MAX_FRAME_BYTES: usize = 64 << 10;

/// A command to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Command line for a shell, as `ssh` takes it.
    pub command: String,
    /// Addresses of the job's nodes, for commands that this one starts in turn.
    pub nodes: String,
    /// The client's nonce, which binds the server's proof to this client.
    pub nonce: String,
}

/// A message after the handshake. `Data` on stream 0 is the command's input, on 1 and 2 its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Data(u8, Vec<u8>),
    /// End of the command's input.
    EndOfInput,
    Signal(u8),
    /// Exit code as a shell reports it.
    Exited(i32),
}

/// Client side: authenticates to the server and verifies the server's proof.
pub async fn client_handshake(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secret: &str,
    request: &Request,
) -> io::Result<()> {
    let mut theirs = [0; NONCE_BYTES];
    stream.read_exact(&mut theirs).await?;
    let body = serde_json::to_vec(request)?;
    if body.len() > MAX_REQUEST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is too long"));
    }
    let mut message = (body.len() as u32).to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message.extend_from_slice(&handshake_mac(secret, b"helper", &[&theirs, &body]).finalize().into_bytes());
    stream.write_all(&message).await?;
    let mut answer = [0; MAC_BYTES];
    stream.read_exact(&mut answer).await?;
    let verified = handshake_mac(secret, b"agent", &[&theirs, request.nonce.as_bytes()]).verify_slice(&answer);
    verified.map_err(|_| {
        io::Error::new(io::ErrorKind::PermissionDenied, "the server could not prove that it belongs to this job")
    })
}

/// Server side. On an error the client learns nothing but the end of the connection.
pub async fn server_handshake(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secret: &str,
    nonce: [u8; NONCE_BYTES],
) -> io::Result<Request> {
    stream.write_all(&nonce).await?;
    let length = stream.read_u32().await? as usize;
    if length > MAX_REQUEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let mut theirs = [0; MAC_BYTES];
    stream.read_exact(&mut theirs).await?;
    let verified = handshake_mac(secret, b"helper", &[&nonce, &body]).verify_slice(&theirs);
    verified.map_err(|_| io::Error::from(io::ErrorKind::PermissionDenied))?;
    let request: Request = serde_json::from_slice(&body)?;
    let answer = handshake_mac(secret, b"agent", &[&nonce, request.nonce.as_bytes()]).finalize().into_bytes();
    stream.write_all(&answer).await?;
    Ok(request)
}

/// Writes a frame: tag, length as 32-bit big-endian, payload.
pub async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    let (tag, payload): (u8, &[u8]) = match frame {
        Frame::Data(number, bytes) => (*number, bytes),
        Frame::EndOfInput => (END_OF_INPUT, &[]),
        Frame::Signal(signal) => (SIGNAL, &[*signal]),
        Frame::Exited(code) => (EXITED, &code.to_be_bytes()),
    };
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend_from_slice(payload);
    stream.write_all(&bytes).await
}

/// Reads the next frame; an error at the end of the stream or for an invalid frame. Not cancel safe.
pub async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let tag = stream.read_u8().await?;
    let length = stream.read_u32().await? as usize;
    if length > MAX_FRAME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok(match (tag, &payload[..]) {
        (0..=2, _) => Frame::Data(tag, payload),
        (END_OF_INPUT, []) => Frame::EndOfInput,
        (SIGNAL, [signal]) => Frame::Signal(*signal),
        (EXITED, [a, b, c, d]) => Frame::Exited(i32::from_be_bytes([*a, *b, *c, *d])),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    })
}

const END_OF_INPUT: u8 = 3;
const SIGNAL: u8 = 4;
const EXITED: u8 = 5;

fn handshake_mac(secret: &str, side: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::new_from_slice(secret.as_bytes()).expect("a key of any length will do");
    mac.update(b"corro remote start ");
    mac.update(side);
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    fn request() -> Request {
        Request { command: "echo $A".into(), nodes: "n=1".into(), nonce: "abc".into() }
    }

    #[tokio::test]
    async fn both_sides_prove_the_secret() {
        let (mut here, mut there) = duplex(1 << 16);
        let request = request();
        let (asked, heard) = tokio::join!(
            client_handshake(&mut here, "s3", &request),
            server_handshake(&mut there, "s3", [7; NONCE_BYTES])
        );
        asked.expect("it is answered");
        assert_eq!(heard.expect("it is believed"), request);
    }

    #[tokio::test]
    async fn peers_without_the_secret_are_rejected() {
        let (mut here, mut there) = duplex(1 << 16);
        let request = request();
        let helper = async {
            let asked = client_handshake(&mut here, "guess", &request).await;
            drop(here);
            asked
        };
        let agent = async {
            let heard = server_handshake(&mut there, "s3", [7; NONCE_BYTES]).await;
            drop(there);
            heard
        };
        let (asked, heard) = tokio::join!(helper, agent);
        assert_eq!(heard.expect_err("refused").kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(asked.expect_err("no answer").kind(), io::ErrorKind::UnexpectedEof);
        // A server without the secret that answers with something.
        let (mut here, mut there) = duplex(1 << 16);
        there.write_all(&[0; NONCE_BYTES + MAC_BYTES]).await.expect("room");
        let asked = client_handshake(&mut here, "s3", &request).await;
        assert_eq!(asked.expect_err("not believed").kind(), io::ErrorKind::PermissionDenied);
    }

    #[tokio::test]
    async fn frames_arrive_as_they_were_sent() {
        let (mut here, mut there) = duplex(1 << 16);
        let frames = [Frame::Data(0, vec![1, 2]), Frame::EndOfInput, Frame::Signal(15), Frame::Exited(-3)];
        for frame in &frames {
            write_frame(&mut here, frame).await.expect("room");
            assert_eq!(&read_frame(&mut there).await.expect("whole"), frame);
        }
        here.write_all(&[1, 0xff, 0, 0, 0]).await.expect("room");
        assert_eq!(read_frame(&mut there).await.expect_err("too long").kind(), io::ErrorKind::InvalidData);
    }
}
