//! The `ssh` that a job's processes find: runs a command on another node of the job and forwards input, output, signals
//! and exit code. Runs as a process of the job and reads the job's nodes and secret from its environment.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use corro_launch::environment::SECRET_VARIABLE;

use super::NODES_VARIABLE;
use super::wire::{self, Frame, MAX_FRAME_BYTES, Request};

/// Exit code of `ssh` for its own failures.
const EXIT_FAILED: i32 = 255;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of `ssh` with a value. All others are flags; all are ignored.
const OPTIONS_WITH_VALUE: &str = "BbcDEeFIiJLlmOopQRSWw";

/// Whether the program was started under the name `ssh`.
pub fn is_invoked_as_ssh(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "ssh")
}

/// Parses `[options] HOST COMMAND…`, runs the command there and returns its exit code.
pub async fn run(words: Vec<String>) -> i32 {
    match connect_and_run(words).await {
        Ok(code) => code,
        Err(why) => {
            eprintln!("corro remote-start: {why}");
            EXIT_FAILED
        }
    }
}

async fn connect_and_run(words: Vec<String>) -> Result<i32, String> {
    let (host, command) = parse(words)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(nodes), Some(secret)) = (variable(NODES_VARIABLE), variable(SECRET_VARIABLE)) else {
        return Err("not a process of a job with several nodes".to_owned());
    };
    let address = find_node(&nodes, &host)?;
    let failed = |error: io::Error| format!("cannot start a command on {host} ({address}): {error}");
    let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(&address)).await;
    let mut stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| error.to_string())?;
    let nonce = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    let request = Request { command, nodes, nonce };
    let handshake = timeout(CONNECT_TIMEOUT, wire::client_handshake(&mut stream, &secret, &request)).await;
    handshake.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    relay(stream).await.map_err(|error| format!("the connection to {host} ended before the command did: {error}"))
}

async fn relay(stream: TcpStream) -> io::Result<i32> {
    let (mut from, to) = stream.into_split();
    let (frames, waiting) = mpsc::channel(4);
    tokio::spawn(send_frames(to, waiting));
    forward_input(frames.clone());
    forward_signals(&frames)?;
    loop {
        match wire::read_frame(&mut from).await? {
            // A closed stdout or stderr is ignored: the command continues until it notices.
            Frame::Data(1, bytes) => drop(write(io::stdout(), &bytes)),
            Frame::Data(2, bytes) => drop(write(io::stderr(), &bytes)),
            Frame::Exited(code) => return Ok(code),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Blocks while the reader is slow, which slows down the command as well.
fn write(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

async fn send_frames(mut to: OwnedWriteHalf, mut frames: mpsc::Receiver<Frame>) {
    while let Some(frame) = frames.recv().await
        && wire::write_frame(&mut to, &frame).await.is_ok()
    {}
    // Keeps the connection open: closing it would end the command.
    std::future::pending::<()>().await;
}

/// On a thread that is never joined: the process exits when the command has ended.
fn forward_input(frames: mpsc::Sender<Frame>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; MAX_FRAME_BYTES / 4];
        while let Ok(length) = io::stdin().read(&mut buffer)
            && length > 0
        {
            if frames.blocking_send(Frame::Data(0, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
        let _ = frames.blocking_send(Frame::EndOfInput);
    });
}

/// A launcher that signals the shim means the remote command.
fn forward_signals(frames: &mpsc::Sender<Frame>) -> io::Result<()> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let (mut arrivals, frames) = (signal(kind)?, frames.clone());
        tokio::spawn(async move {
            while arrivals.recv().await.is_some() {
                let _ = frames.send(Frame::Signal(kind.as_raw_value() as u8)).await;
            }
        });
    }
    Ok(())
}

/// The host, and the command's words joined by spaces as `ssh` does.
fn parse(words: Vec<String>) -> Result<(String, String), String> {
    let mut words = words.into_iter();
    let host = loop {
        let word = words.next().ok_or("missing host: give a node's address or name, then a command")?;
        match word.strip_prefix('-') {
            Some(flags) if !flags.is_empty() && flags != "-" => {
                let takes_value = flags.chars().position(|flag| OPTIONS_WITH_VALUE.contains(flag));
                // The value is the rest of the word or the next word.
                if takes_value.is_some_and(|at| at + 1 == flags.len()) {
                    words.next();
                }
            }
            Some("-") => {}
            _ => break word,
        }
    };
    let host = host.rsplit_once('@').map_or(host.as_str(), |(_, host)| host).to_owned();
    // Options may also follow the host.
    let rest: Vec<String> = words.skip_while(|word| matches!(word.as_str(), "-n" | "-x" | "-q" | "-T")).collect();
    if rest.is_empty() {
        return Err(format!(
            "missing command for {host}: interactive shells are not supported here, use 'corro batchai cluster node exec'"
        ));
    }
    Ok((host, rest.join(" ")))
}

/// Address of a node, given its id, its launch name or its address.
fn find_node(nodes: &str, host: &str) -> Result<String, String> {
    let known = || nodes.split(',').filter_map(|node| node.split_once('='));
    let address = |at: &str| at.rsplit_once(':').map(|(address, _)| address.trim_matches(['[', ']']).to_owned());
    let is_host =
        |(names, at): &(&str, &str)| names.split('|').any(|name| name == host) || address(at).as_deref() == Some(host);
    if let Some((_, at)) = known().find(is_host) {
        return Ok(at.to_owned());
    }
    let names: Vec<String> = known().filter_map(|(_, at)| address(at)).collect();
    Err(format!("'{host}' is not a node of this job; its nodes are {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_ssh_are_skipped() {
        let check = |line: &str, expected: Option<(&str, &str)>| {
            let words = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
            let expected = expected.map(|(host, command)| (host.to_owned(), command.to_owned()));
            assert_eq!(parse(words).ok(), expected, "{line}");
        };
        check("10.0.0.5 hostname -f", Some(("10.0.0.5", "hostname -f")));
        check("-x -q -p 23 -o BatchMode=yes root@10.0.0.5 orted -mca x", Some(("10.0.0.5", "orted -mca x")));
        check("-p23 -xoA=b h c", Some(("h", "c")));
        check("h -n c -n", Some(("h", "c -n")));
        check("-l me h c", Some(("h", "c")));
        check("h", None);
        check("-x", None);
    }

    #[test]
    fn nodes_are_found_by_address_and_id() {
        let nodes = "tvm-1|127.0.0.4=127.0.0.4:7,tvm-2|127.0.0.5=127.0.0.5:8,tvm-3|127.0.0.6=10.0.0.9:8";
        assert_eq!(find_node(nodes, "127.0.0.6").as_deref(), Ok("10.0.0.9:8"));
        assert_eq!(find_node(nodes, "10.0.0.9").as_deref(), Ok("10.0.0.9:8"));
        assert_eq!(find_node(nodes, "127.0.0.5").as_deref(), Ok("127.0.0.5:8"));
        assert_eq!(find_node(nodes, "tvm-1").as_deref(), Ok("127.0.0.4:7"));
        let error = find_node(nodes, "example.org").expect_err("not ours");
        assert_eq!(error, "'example.org' is not a node of this job; its nodes are 127.0.0.4, 127.0.0.5, 10.0.0.9");
    }
}
