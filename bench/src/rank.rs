//! The smallest process a job can run: it reports over a socket that it runs, and exits; and the listener of the benchmark that
//! receives the report. A mode of this binary, so that no interpreter's start is measured.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Hidden subcommand of this binary.
pub const SUBCOMMAND: &str = "rank";
/// Timeout for the report of a rank; after it the job counts as not started.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);

/// `rank ADDRESS:PORT SAMPLE`. A rank of a job also reports its number.
pub fn run(arguments: &[String]) -> ExitCode {
    let [address, sample] = arguments else { return ExitCode::from(2) };
    let number = std::env::var("HOROVOD_RANK").unwrap_or_default();
    let sample = format!("{sample}/{number}");
    let report = |to: SocketAddr| TcpStream::connect(to).and_then(|mut stream| stream.write_all(sample.as_bytes()));
    match address.parse().map(report) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// TCP listener that records the arrival time of each rank's report.
pub struct RankListener {
    address: SocketAddr,
    /// Arrival time and `SAMPLE/RANK`.
    reports: Receiver<(Instant, String)>,
}

impl RankListener {
    pub fn open() -> Result<Self> {
        Self::open_at(Ipv4Addr::LOCALHOST.into())
    }

    /// Like `open`, at an address that ranks on other machines can reach.
    pub fn open_at(address: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).context("cannot listen for ranks")?;
        let address = listener.local_addr()?;
        let (sender, reports) = channel();
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
        Ok(Self { address, reports })
    }

    /// Command line of a rank that reports to this listener.
    pub fn command(&self, exe: &Path, sample: &str) -> [String; 4] {
        [exe.display().to_string(), SUBCOMMAND.to_owned(), self.address.to_string(), sample.to_owned()]
    }

    /// Shell line with the effect of `command`, for containers that have nothing but bash.
    pub fn shell_line(&self, sample: &str) -> String {
        format!("printf %s \"{sample}/$HOROVOD_RANK\" > /dev/tcp/{}/{}", self.address.ip(), self.address.port())
    }

    /// Times of the first and the last of `count` ranks of this sample. A rank of another sample, or one seen before, was
    /// started twice, which is an error.
    pub fn wait(&self, sample: &str, count: usize) -> Result<(Instant, Instant)> {
        let (mut times, mut ranks) = (Vec::new(), Vec::new());
        while times.len() < count {
            let (at, report) = self.reports.recv_timeout(REPORT_TIMEOUT).with_context(|| {
                format!("{} of {count} ranks reported within {} s", times.len(), REPORT_TIMEOUT.as_secs())
            })?;
            match report.split_once('/') {
                Some((of, rank)) if of == sample && (rank.is_empty() || !ranks.contains(&report)) => {}
                _ => bail!("rank {report} reported while waiting for {sample}, after {ranks:?}"),
            }
            times.push(at);
            ranks.push(report);
        }
        Ok((times[0], times[count - 1]))
    }
}
