//! `corro up`: runs a server with local nodes until Ctrl-C, then stops the nodes too. With `--detach` the server runs in the background, in a process of
//! its own that calls this command again.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use corro_hosting::background::announce_ready;
use corro_hosting::embedded_server::{EmbeddedServer, NodeSource, ProfileUse};
use corro_hosting::local_admin_login::{LockOutcome, lock_data_dir};
use corro_hosting::server_args::EmbeddedServerArgs;
use corro_hosting::server_log::ServerLog;
use corro_hosting::server_record::{ServerRecord, StopRecord};
use corro_hosting::signals::wait_for_shutdown_signal;

use crate::background_server::{DetachedServer, IN_BACKGROUND, start_detached};
use crate::error::CliError;
use crate::stdio::{note, print};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro up
  corro up --detach
  corro up --data /srv/data --tls --listen 0.0.0.0:8470 --name gpu-box

Ctrl-C stops the server and its nodes, and so does 'corro stop'. Running jobs go
back to the queue.")]
pub struct UpArgs {
    /// Run the server in the background: return when it is ready. It logs to server.log in the data directory
    #[arg(long, short = 'd')]
    detach: bool,
    /// This process is the server that another one started with --detach
    #[arg(long = IN_BACKGROUND, hide = true)]
    in_background: bool,
    #[command(flatten)]
    server: EmbeddedServerArgs,
}

/// How often a starting server checks whether all of its parts are ready.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);

pub async fn run(args: UpArgs) -> Result<(), CliError> {
    match args {
        UpArgs { in_background: false, detach: true, server } => start_in_background(&server).await,
        UpArgs { in_background, server, .. } => run_server(&server, in_background).await,
    }
}

async fn start_in_background(args: &EmbeddedServerArgs) -> Result<(), CliError> {
    args.validate()?;
    let own_args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match start_detached(own_args, &args.data_path()?).await? {
        DetachedServer::Started { summary } => print(summary.trim_end()),
        DetachedServer::Found(server) => {
            let (data, pid) = (server.data.display(), server.process.pid());
            let url = server.url.as_deref().unwrap_or_default();
            print(format_args!("Corro already runs on {data} and listens on {url} (process {pid})."));
        }
    }
    Ok(())
}

async fn run_server(args: &EmbeddedServerArgs, in_background: bool) -> Result<(), CliError> {
    let began = Instant::now();
    if !in_background {
        args.log.init();
    }
    args.validate()?;
    let data = match lock_data_dir(args)? {
        LockOutcome::Locked(data) => data,
        LockOutcome::LoggedIn(login) => {
            print(login);
            return Ok(());
        }
    };
    let log = if in_background { Some(open_log(args, data.path())?) } else { None };
    // A signal during the start returns at once: no node runs before the server does.
    let stop = wait_for_shutdown_signal();
    tokio::pin!(stop);
    let embedded = tokio::select! {
        started = EmbeddedServer::start(args, NodeSource::Local, data) => started?,
        stopped = &mut stop => return Ok(stopped?),
    };
    let log_path = log.as_ref().map(ServerLog::path);
    let record = embedded.write_record(log_path.as_deref());
    if let Some(text) = root_note(rustix::process::geteuid().is_root()) {
        note(text);
    }
    match &log {
        None => print_summary(&summary(&embedded, began, None)),
        Some(log) => {
            let is_ready = tokio::select! {
                () = wait_until_ready(&embedded) => true,
                // The process that waits for this one was interrupted.
                _ = &mut stop => false,
            };
            if !is_ready {
                return stop_server(embedded, record).await;
            }
            let summary = summary(&embedded, began, Some(&log.path()));
            announce_ready(&summary, log).map_err(|error| CliError::new("cannot write to the log").cause(error))?;
            // The directory in which the server was started may be removed or unmounted.
            let _ = std::env::set_current_dir(embedded.data.path());
        }
    }
    stop.await?;
    let _ = writeln!(io::stderr(), "\nStopping the nodes …");
    stop_server(embedded, record).await
}

fn open_log(args: &EmbeddedServerArgs, data: &Path) -> Result<ServerLog, CliError> {
    let log = ServerLog::open(data)
        .map_err(|error| CliError::new(format!("cannot write a log to {}", data.display())).cause(error))?;
    args.log.init_to(log.clone());
    Ok(log)
}

async fn wait_until_ready(embedded: &EmbeddedServer) {
    while embedded.server.not_ready_reason().is_some() {
        tokio::time::sleep(READY_POLL_INTERVAL).await;
    }
}

/// Ends server and nodes in order, and records how. A second signal ends the process at once.
async fn stop_server(embedded: EmbeddedServer, record: Option<ServerRecord>) -> Result<(), CliError> {
    let EmbeddedServer { server, data, .. } = embedded;
    let stopped = tokio::select! {
        stopped = server.stop_with_nodes() => stopped.map_err(|error| CliError::from_error(error.as_ref()))?,
        signal = wait_for_shutdown_signal() => {
            signal?;
            return Err(CliError { exit: 130, ..CliError::new("stopped without waiting: nodes may still run") }
                .hint("the next 'corro up' on the same directory resumes or removes them"));
        }
    };
    let nodes_left: Vec<String> = stopped.left.iter().map(ToString::to_string).collect();
    let stop = StopRecord { requeued: stopped.requeued, nodes_left: nodes_left.clone(), nodes_go_on: false };
    let _ = writeln!(io::stderr(), "{}", stop.sentence());
    // Only 'corro stop' reads it, to say the same.
    let _ = record.map(|record| record.write_stop(data.path(), stop));
    match nodes_left.is_empty() {
        true => Ok(()),
        false => Err(nodes_left_error(&nodes_left)),
    }
}

pub fn nodes_left_error(nodes: &[String]) -> CliError {
    CliError::new(format!("these nodes could not be stopped: {}", nodes.join(", ")))
}

/// The URL, the paths and what to do next. `log` is the log of a server in the background.
fn summary(embedded: &EmbeddedServer, began: Instant, log: Option<&Path>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (url, took) = (embedded.public_url(), began.elapsed().as_millis());
    let mut text = format!("Corro {version} listens on {url} (ready in {took} ms)\n");
    // Writing to a string never fails.
    let _ = writeln!(text, "  pages    {url}/ui/ ('corro dashboard --open' logs in and shows them)");
    let _ = writeln!(text, "{}", embedded.describe());
    let Some(log) = log else {
        text.push_str("\nTry 'corro group create --name demo --location eastus' in another terminal. Ctrl-C stops.\n");
        return text;
    };
    let data = match &embedded.profile_use {
        ProfileUse::Default { .. } => String::new(),
        ProfileUse::OnRequest { .. } => format!(" --data {}", embedded.data.path().display()),
    };
    let _ = writeln!(text, "  log      {}", log.display());
    let _ = writeln!(
        text,
        "\nThe server runs in the background. See it with 'corro status{data}', stop it with 'corro stop{data}'."
    );
    text
}

/// Write errors are ignored: a closed standard output must not end the server.
fn print_summary(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Warns about jobs that run as root. Isolation hides directories from them but keeps the user id, so they own root's files in any mode.
fn root_note(is_root: bool) -> Option<&'static str> {
    is_root.then_some(
        "note: this server runs as root, so jobs without a container run as root too, even if isolated. \
         See 'corro docs isolation'.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_is_warned() {
        assert_eq!(root_note(false), None);
        let text = root_note(true).expect("a note");
        assert!(text.contains("jobs without a container run as root") && !text.contains('\n'), "{text}");
    }
}
