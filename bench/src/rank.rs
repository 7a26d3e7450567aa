//! The smallest process a job can run: it reports over a socket that it runs, and exits; and the listener of the benchmark that
//! receives the report. A mode of this binary, so that no interpreter's start is measured.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The hidden first argument.
pub const WORD: &str = "rank";
/// Reaching it means that the job did not start.
const DEADLINE: Duration = Duration::from_secs(30);

/// `rank ADDRESS:PORT SAMPLE`. A rank of a job also reports its number.
pub fn run(arguments: &[String]) -> ExitCode {
    let [ear, sample] = arguments else { return ExitCode::from(2) };
    let number = std::env::var("HOROVOD_RANK").unwrap_or_default();
    let sample = format!("{sample}/{number}");
    let say = |ear: SocketAddr| TcpStream::connect(ear).and_then(|mut ear| ear.write_all(sample.as_bytes()));
    match ear.parse().map(say) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Listens for ranks and records their times.
pub struct Ear {
    at: SocketAddr,
    heard: Receiver<(Instant, String)>,
}

impl Ear {
    pub fn open() -> Result<Self> {
        Self::open_at(Ipv4Addr::LOCALHOST.into())
    }

    /// For ranks on other machines.
    pub fn open_at(address: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).context("cannot listen for ranks")?;
        let at = listener.local_addr()?;
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (at, mut sample) = (Instant::now(), String::new());
                // A silent rank is detected by the waiting side.
                let _ = { stream }.read_to_string(&mut sample);
                if sender.send((at, sample)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { at, heard })
    }

    /// Command line of a rank.
    pub fn command(&self, exe: &Path, sample: &str) -> [String; 4] {
        [exe.display().to_string(), WORD.to_owned(), self.at.to_string(), sample.to_owned()]
    }

    /// The same from a shell, where there is nothing but bash.
    pub fn shell_line(&self, sample: &str) -> String {
        format!("printf %s \"{sample}/$HOROVOD_RANK\" > /dev/tcp/{}/{}", self.at.ip(), self.at.port())
    }

    /// Times of the first and the last of `count` ranks of this sample. A rank of another sample, or one seen before, was
    /// started twice: an error.
    pub fn wait(&self, sample: &str, count: usize) -> Result<(Instant, Instant)> {
        let (mut times, mut ranks) = (Vec::new(), Vec::new());
        while times.len() < count {
            let (at, said) = self.heard.recv_timeout(DEADLINE).with_context(|| {
                format!("{} of {count} ranks were heard within {} s", times.len(), DEADLINE.as_secs())
            })?;
            match said.split_once('/') {
                Some((of, rank)) if of == sample && (rank.is_empty() || !ranks.contains(&said)) => {}
                _ => bail!("rank {said} was heard while waiting for {sample}, after {ranks:?}"),
            }
            times.push(at);
            ranks.push(said);
        }
        Ok((times[0], times[count - 1]))
    }
}
