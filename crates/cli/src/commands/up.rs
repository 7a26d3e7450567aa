//! `corro up`: everything in one process and its nodes beside it. Starts, says where it listens, ends on Ctrl-C.

use std::io::{self, Write};
use std::time::Instant;

use clap::Args;
use corro_hosting::embedded_server::{EmbeddedServer, NodeSource};
use corro_hosting::local_admin_login::{LockOutcome, lock_data_dir};
use corro_hosting::server_args::EmbeddedServerArgs;
use corro_hosting::signals::wait_for_shutdown_signal;

use crate::error::CliError;
use crate::stdio::print;

#[derive(Args, Debug)]
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
    // A signal during the start ends it: until the server is there, nothing runs outside this process.
    let stop = wait_for_shutdown_signal();
    tokio::pin!(stop);
    let embedded = tokio::select! {
        started = EmbeddedServer::start(&args.server, NodeSource::Local, data) => started?,
        stopped = &mut stop => return Ok(stopped?),
    };
    greet(&embedded, began);
    stop.await?;
    let _ = writeln!(io::stderr(), "\nStopping the nodes …");
    let EmbeddedServer { server, .. } = embedded;
    let stopped = tokio::select! {
        stopped = server.stop_with_nodes() => stopped.map_err(|error| CliError::from_error(error.as_ref()))?,
        asked = wait_for_shutdown_signal() => {
            asked?;
            return Err(CliError { exit: 130, ..CliError::new("stopped at once: nodes may still run") }
                .hint("the next 'corro up' on the same directory finds them or removes what is left"));
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
        return Err(CliError::new(format!("these nodes could not be ended: {nodes}")));
    }
    Ok(())
}

/// Whoever reads this may have gone away; the server stays.
fn greet(embedded: &EmbeddedServer, began: Instant) {
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
