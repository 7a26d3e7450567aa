//! The host discovery script of an elastic training: called every second under a guard, its output is the list of hosts. A failure of the first call is
//! an error; later ones are reported once each and change nothing.

use std::time::Duration;

use corro_elastic::parse_hosts;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::confinement::Confinement;
use crate::gang::GangSpec;
use crate::lines::{Mode, pump};
use crate::process::Launcher;
use crate::process_spec::ProcessSpec;
use crate::rank_assignment::Host;
use crate::tail::Tail;

/// A script that runs longer has failed.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// What an error quotes of the script's stderr.
const MAX_TAIL_BYTES: usize = 400;

/// A host discovery script.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// A file, or a command line for the shell.
    pub script: String,
    /// Slots of hosts that the script lists without a number.
    pub default_slots: Option<usize>,
    /// Time between two calls.
    pub interval: Duration,
    /// Why processes cannot be started on a host.
    pub check_host: fn(&str) -> Result<(), String>,
}

/// Calls a script.
#[derive(Clone)]
pub(super) struct Finder {
    launcher: Launcher,
    discovery: Discovery,
    process: ProcessSpec,
}

/// Changes of the hosts. Dropping it ends the calls.
pub(super) struct Listing {
    results: mpsc::Receiver<Result<Vec<Host>, String>>,
    _calls: JoinSet<()>,
}

impl Discovery {
    pub(super) fn finder(&self, launcher: &Launcher, gang: &GangSpec, tag: &str) -> Finder {
        let file = gang.cwd.join(&self.script);
        let argv = match file.is_file() {
            true => vec![file.to_string_lossy().into_owned()],
            false => vec!["sh".to_owned(), "-c".to_owned(), self.script.clone()],
        };
        let (env, cwd, tag) = (gang.env.clone(), gang.cwd.clone(), format!("{tag}/discovery"));
        let process = ProcessSpec { argv, env, cwd, tag, confinement: Confinement::default() };
        Finder { launcher: launcher.clone(), discovery: self.clone(), process }
    }
}

impl Finder {
    /// Calls the script once. The error says why the hosts are not known.
    pub(super) async fn list(&self) -> Result<Vec<Host>, String> {
        let output = timeout(SCRIPT_TIMEOUT, self.output()).await;
        let output = output.map_err(|_| format!("it was still running after {} s", SCRIPT_TIMEOUT.as_secs()))??;
        let hosts = parse_hosts(&output, self.discovery.default_slots).map_err(|error| error.to_string())?;
        for host in &hosts {
            (self.discovery.check_host)(&host.name)?;
        }
        Ok(hosts.into_iter().map(|host| Host { name: host.name, slots: host.slots }).collect())
    }

    async fn output(&self) -> Result<String, String> {
        let mut process =
            self.launcher.spawn(self.process.clone()).await.map_err(|error| corro_base::error_chain::join(&error))?;
        let stdout = process.stdout.take().expect("a new process has its output");
        let stderr = process.stderr.take().expect("a new process has its output");
        let (mut text, mut is_too_long, mut tail) = (Vec::new(), false, Tail::new(3, MAX_TAIL_BYTES));
        let collect = |bytes: &[u8]| {
            is_too_long |= text.len() + bytes.len() > MAX_OUTPUT_BYTES;
            if !is_too_long {
                text.extend_from_slice(bytes);
            }
            Ok(())
        };
        let (exit, _, _) = tokio::join!(
            process.wait(),
            pump(stdout, Mode::Raw, None, collect),
            pump(stderr, Mode::Raw, Some(&mut tail), |_| Ok(())),
        );
        let exit = exit.map_err(|error| format!("it cannot be waited for: {error}"))?;
        if !exit.success() {
            let tail = tail.lines().join(" ");
            return Err(format!("it ended with {exit}{}{tail}", if tail.is_empty() { "" } else { ": " }));
        }
        if is_too_long {
            return Err(format!("it wrote more than {MAX_OUTPUT_BYTES} bytes"));
        }
        String::from_utf8(text).map_err(|_| "its output is not UTF-8".to_owned())
    }

    /// Calls the script again and again.
    pub(super) fn watch(self) -> Listing {
        let (sender, results) = mpsc::channel(1);
        let mut calls = JoinSet::new();
        calls.spawn(async move {
            let mut last = None;
            loop {
                sleep(self.discovery.interval).await;
                let result = self.list().await;
                if last.as_ref() == Some(&result) {
                    continue;
                }
                last = Some(result.clone());
                if sender.send(result).await.is_err() {
                    return;
                }
            }
        });
        Listing { results, _calls: calls }
    }
}

impl Listing {
    /// The next list of hosts, or why there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Vec<Host>, String> {
        match self.results.recv().await {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }
}
