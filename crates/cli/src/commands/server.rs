//! `corro server`: runs a server without local nodes. Machines join it with `corro agent` and the join token, or `--provider` makes nodes (Slurm,
//! Kubernetes).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::Args;
use corro_hosting::embedded_server::{EmbeddedServer, NodeSource};
use corro_hosting::isolation::IsolationArg;
use corro_hosting::local_admin_login::{LockOutcome, lock_data_dir};
use corro_hosting::providers::{ProviderArg, ProviderArgs, kubernetes};
use corro_hosting::server_args::EmbeddedServerArgs;
use corro_hosting::server_record::StopRecord;
use corro_hosting::signals::wait_for_shutdown_signal;
use corro_model::Secret;

use crate::error::CliError;
use crate::stdio::print;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro server --data /srv/data --tls --listen 0.0.0.0:8470 --name gpu-box
  corro server --data /srv/data --tls --listen 0.0.0.0:8470 --name gpu-box \\
      --provider slurm --slurm-partition gpu --slurm-time 8:00:00

In the first example machines join with the command that 'corro host token'
prints. In the second the server submits a Slurm job for each node.")]
pub struct ServerArgs {
    #[command(flatten)]
    server: EmbeddedServerArgs,

    #[command(flatten)]
    nodes: ProviderArgs,
}

pub async fn run(args: ServerArgs) -> Result<(), CliError> {
    args.server.log.init();
    args.server.validate()?;
    args.nodes.validate()?;
    if args.server.isolation.isolation == Some(IsolationArg::Off) {
        let message = "--isolation off is chosen on the machine where jobs run: use it with 'corro agent' there";
        return Err(CliError::usage(message).hint("--isolation auto lets jobs run that cannot be isolated"));
    }
    let data = match lock_data_dir(&args.server)? {
        LockOutcome::Locked(data) => data,
        LockOutcome::LoggedIn(login) => {
            print(login);
            return Ok(());
        }
    };
    let token_path = data.path().join("join-token");
    let node_source = match args.nodes.provider {
        ProviderArg::Joined => NodeSource::Joined(read_or_create_join_token(&token_path)?),
        ProviderArg::Slurm => {
            let search = std::env::var("PATH").unwrap_or_default();
            NodeSource::Slurm(args.nodes.slurm.to_options(&search)?)
        }
        ProviderArg::Kubernetes => {
            NodeSource::Kubernetes(Box::new(kubernetes::PreparedProvider::new(&args.nodes.kubernetes, &args.server)?))
        }
    };
    let stop = wait_for_shutdown_signal();
    tokio::pin!(stop);
    let embedded = tokio::select! {
        started = EmbeddedServer::start(&args.server, node_source, data) => started?,
        stopped = &mut stop => return Ok(stopped?),
    };
    let record = embedded.write_record(None);
    print_summary(&embedded, args.nodes.provider, &token_path);
    stop.await?;
    let EmbeddedServer { server, data, .. } = embedded;
    server.stop().await;
    let stop = StopRecord { requeued: 0, nodes_left: Vec::new(), nodes_go_on: true };
    let _ = writeln!(io::stderr(), "\n{}", stop.sentence());
    // Only 'corro stop' reads it, to say the same.
    let _ = record.map(|record| record.write_stop(data.path(), stop));
    Ok(())
}

/// Prints the URL, the paths and how to add nodes. Write errors are ignored.
fn print_summary(embedded: &EmbeddedServer, provider: ProviderArg, token_path: &Path) {
    let mut out = io::stdout().lock();
    let (version, url) = (env!("CARGO_PKG_VERSION"), embedded.public_url());
    let _ = writeln!(out, "Corro {version} listens on {url}");
    let _ = writeln!(out, "{}", embedded.describe());
    let trust =
        embedded.tls_trust.as_ref().map_or_else(String::new, |v| format!(" --ca-fingerprint {}", v.fingerprint));
    let token_path = token_path.display();
    let _ = match provider {
        ProviderArg::Joined => writeln!(
            out,
            "\nAdd a node: corro agent --server {url}{trust} --data DIR --join-token-file {token_path}\n\
             Add a machine that runs as many nodes as fit: 'corro host token' shows the command for it"
        ),
        ProviderArg::Slurm => writeln!(out, "\nNodes are Slurm allocations, whose agents look for the server at {url}"),
        ProviderArg::Kubernetes => writeln!(out, "\nNodes are pods"),
    };
    let _ = out.flush();
}

/// Reads the join token; creates it, with mode 0600, on the first start.
fn read_or_create_join_token(path: &Path) -> Result<Secret, CliError> {
    let failed = |error: io::Error| CliError::new(format!("cannot read or create {}: {error}", path.display()));
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(Secret::new(text.trim())),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let token = corro_server::new_join_token();
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{}", token.expose()).map_err(failed)?;
    Ok(token)
}
