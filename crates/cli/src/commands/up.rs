//! `corro up`: runs a server with local nodes until Ctrl-C, then stops the nodes too.

use std::io::{self, Write};
use std::time::Instant;

use clap::Args;
use corro_hosting::embedded_server::{EmbeddedServer, NodeSource};
use corro_hosting::local_admin_login::{LockOutcome, lock_data_dir};
use corro_hosting::server_args::EmbeddedServerArgs;
use corro_hosting::signals::wait_for_shutdown_signal;

use crate::error::CliError;
use crate::stdio::{note, print};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro up\n  corro up --data /srv/data --tls --listen 0.0.0.0:8470 --name gpu-box\n\nCtrl-C stops the server and its nodes. Running jobs go back to the queue."
)]
pub struct UpArgs {
    #[command(flatten)]
    server: EmbeddedServerArgs,
}

pub async fn run(args: UpArgs) -> Result<(), CliError> {
    let began = Instant::now();
    args.server.log.init();
    args.server.validate()?;
    let data = match lock_data_dir(&args.server)? {
        LockOutcome::Locked(data) => data,
        LockOutcome::LoggedIn(login) => {
            print(login);
            return Ok(());
        }
    };
    // A signal during the start returns at once: no node runs before the server does.
    let stop = wait_for_shutdown_signal();
    tokio::pin!(stop);
    let embedded = tokio::select! {
        started = EmbeddedServer::start(&args.server, NodeSource::Local, data) => started?,
        stopped = &mut stop => return Ok(stopped?),
    };
    print_summary(&embedded, began);
    if let Some(text) = root_note(rustix::process::geteuid().is_root()) {
        note(text);
    }
    stop.await?;
    let _ = writeln!(io::stderr(), "\nStopping the nodes …");
    let EmbeddedServer { server, .. } = embedded;
    let stopped = tokio::select! {
        stopped = server.stop_with_nodes() => stopped.map_err(|error| CliError::from_error(error.as_ref()))?,
        signal = wait_for_shutdown_signal() => {
            signal?;
            return Err(CliError { exit: 130, ..CliError::new("stopped without waiting: nodes may still run") }
                .hint("the next 'corro up' on the same directory resumes or removes them"));
        }
    };
    let _ = match stopped.requeued {
        0 => writeln!(io::stderr(), "Stopped."),
        1 => writeln!(
            io::stderr(),
            "Stopped. One running job went back to the queue: it starts again with the next 'corro up'."
        ),
        n => writeln!(
            io::stderr(),
            "Stopped. {n} running jobs went back to the queue: they start again with the next 'corro up'."
        ),
    };
    if !stopped.left.is_empty() {
        let nodes = stopped.left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(CliError::new(format!("these nodes could not be stopped: {nodes}")));
    }
    Ok(())
}

/// Prints the URL and the paths. Write errors are ignored: a closed standard output must not end the server.
fn print_summary(embedded: &EmbeddedServer, began: Instant) {
    let mut out = io::stdout().lock();
    let version = env!("CARGO_PKG_VERSION");
    let (url, took) = (embedded.public_url(), began.elapsed().as_millis());
    let _ = writeln!(out, "Corro {version} listens on {url} (ready in {took} ms)");
    let _ = writeln!(out, "  pages    {url}/ui/ ('corro dashboard --open' logs in and shows them)");
    let _ = writeln!(out, "{}", embedded.describe());
    let _ =
        writeln!(out, "\nTry 'corro group create --name demo --location eastus' in another terminal. Ctrl-C stops.");
    let _ = out.flush();
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
