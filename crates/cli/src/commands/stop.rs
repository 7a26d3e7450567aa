//! `corro stop`: ends the server of a data directory on this machine in order, as Ctrl-C in its terminal does, and waits for its end. The process is
//! found by the lock that it holds, so no other process is ever signalled. Without a running server there is nothing to do, which is no error.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use corro_client::{Profile, profile};
use corro_hosting::server_process::ServerProcess;
use corro_hosting::server_record::{RunningServer, ServerRecord};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::timeout;

use crate::background_server::data_directory;
use crate::commands::up::nodes_left_error;
use crate::error::CliError;
use crate::progress::Spinner;
use crate::stdio::{note, print};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro stop
  corro stop --data /srv/data

Nodes on this machine end, and running jobs go back to the queue: they start
again with the next 'corro up'. Ctrl-C while the command waits has the same
effect as --now.")]
pub struct StopArgs {
    /// Data directory of the server [default: that of the server you are logged in to, else ~/.corro/data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Do not wait for the nodes: they may still run for a while
    #[arg(long)]
    now: bool,
}

/// A server that ends its nodes in order needs less than a minute.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
/// Time for a server that does not wait for its nodes; then it is killed.
const NOW_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of the signals to such a server: the first one begins the stop, and a later one ends it.
const NOW_SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// How the wait for the end of a server ended.
#[derive(Debug, PartialEq, Eq)]
enum Wait {
    Ended,
    Timeout,
    Interrupted,
}

pub async fn run(args: StopArgs) -> Result<(), CliError> {
    let data = data_directory(args.data.as_deref())?;
    let found = RunningServer::find(&data).map_err(|error| {
        CliError::from_error(&error).hint("run the command as the user who started the server, on the same machine")
    })?;
    let Some(server) = found else {
        print(format_args!("No server is running on {}.", data.display()));
        if args.data.is_none() {
            note_other_server();
        }
        return Ok(());
    };
    let process = &server.process;
    if args.now {
        end_now(process).await?;
        print_end(&server, true)?;
        return Ok(());
    }
    note(format_args!("Stopping the server of {} (process {}) ...", server.data.display(), process.pid()));
    // From here on Ctrl-C is a wish about the server.
    let mut interrupts = signal(SignalKind::interrupt()).map_err(|error| CliError::from_error(&error))?;
    request_stop(process)?;
    match wait_for_end(process, &mut interrupts).await? {
        Wait::Ended => print_end(&server, false),
        Wait::Interrupted => {
            end_now(process).await?;
            Err(CliError { exit: 130, ..CliError::new("stopped without waiting: nodes may still run") }
                .hint("the next 'corro up' on the same directory resumes or removes them"))
        }
        Wait::Timeout => Err(CliError::new(format!(
            "the server has not ended within {} seconds: it still waits for its nodes",
            STOP_TIMEOUT.as_secs()
        ))
        .hint("go on waiting with 'corro stop', or end it without its nodes with 'corro stop --now'")),
    }
}

/// Says which server commands use, if that is one of another machine.
fn note_other_server() {
    let profile = profile::config_dir().and_then(|dir| Profile::load(&dir));
    if let Some(profile) = profile.ok().filter(|profile| profile.data_directory.is_none()) {
        note(format_args!("You are logged in to {}. A server is stopped on its own machine.", profile.server));
    }
}

/// SIGCONT follows, because a stopped process handles no signals.
fn request_stop(process: &ServerProcess) -> Result<(), CliError> {
    let sent = process.signal(Signal::TERM).and_then(|()| process.signal(Signal::CONT));
    sent.map_err(|error| CliError::new(format!("cannot stop the process {}", process.pid())).cause(error))
}

async fn wait_for_end(process: &ServerProcess, interrupts: &mut unix::Signal) -> Result<Wait, CliError> {
    let _spinner = Spinner::start("Waiting for its nodes to end");
    tokio::select! {
        ended = timeout(STOP_TIMEOUT, process.wait_for_end()) => match ended {
            Ok(ended) => ended.map(|()| Wait::Ended).map_err(|error| {
                CliError::new(format!("cannot wait for the end of the process {}", process.pid())).cause(error)
            }),
            Err(_) => Ok(Wait::Timeout),
        },
        _ = interrupts.recv() => Ok(Wait::Interrupted),
    }
}

/// Ends the server without waiting for its nodes.
async fn end_now(process: &ServerProcess) -> Result<(), CliError> {
    let signals = async {
        loop {
            request_stop(process)?;
            tokio::time::sleep(NOW_SIGNAL_INTERVAL).await;
        }
    };
    let cannot_wait = |error| CliError::new("cannot wait for the end of the server").cause(error);
    tokio::select! {
        ended = timeout(NOW_TIMEOUT, process.wait_for_end()) => match ended {
            Ok(ended) => ended.map_err(cannot_wait),
            Err(_) => {
                let killed = process.signal(Signal::KILL);
                killed.map_err(|error| CliError::new("cannot kill the server").cause(error))?;
                process.wait_for_end().await.map_err(cannot_wait)
            }
        },
        error = signals => error,
    }
}

/// Prints how the server ended, from its record.
fn print_end(server: &RunningServer, now: bool) -> Result<(), CliError> {
    let Some(before) = &server.record else {
        // It was not ready yet, or has a version that keeps no record.
        print("Stopped.");
        return Ok(());
    };
    let after = ServerRecord::read(&server.data);
    let is_same = |record: &ServerRecord| (record.pid, record.start_ticks) == (before.pid, before.start_ticks);
    match after.filter(is_same).and_then(|record| record.stop) {
        Some(stop) => {
            print(stop.sentence());
            if stop.nodes_left.is_empty() { Ok(()) } else { Err(nodes_left_error(&stop.nodes_left)) }
        }
        None if now => {
            print("Stopped without waiting: nodes may still run. The next 'corro up' resumes or removes them.");
            Ok(())
        }
        None => Err(CliError::new("the server ended before all its nodes had ended")
            .hint("the next 'corro up' on the same directory resumes or removes them")),
    }
}
