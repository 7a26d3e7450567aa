//! `corro host`: machines that have joined the server: list, cordon, drain and remove them. A machine joins with `corro agent join`.

pub mod token;

use clap::{Args, Subcommand};
use corro_model::host::{DrainParameters, Host};
use corro_model::ops::{HostsCordon, HostsDrain, HostsGet, HostsList, HostsRemove, HostsUncordon, NoBody};

use crate::error::CliError;
use crate::output::{TableKind, escape_controls};
use crate::session::{GlobalArgs, Session};
use crate::stdio::note;

#[derive(Args, Debug)]
pub struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum HostCommand {
    /// Create a token for joining machines to this server, and print the join command
    ///
    /// The token contains the server's address, the fingerprint of its certificate authority and a secret. It is shown only
    /// once. Any number of machines can join with it until it expires, also after a restart of the server. Hosts that have
    /// joined stay when the token expires or is revoked.
    #[command(
        after_help = "Examples:\n  corro host token\n  corro host token --ttl 2h --server https://gpu-box:8470\n  corro host token --list -o table\n  corro host token --revoke 1f2e3d4c"
    )]
    Token(token::TokenArgs),
    /// List the hosts with their capacity, free resources and nodes
    #[command(after_help = "Example:\n  corro host list -o table")]
    List,
    /// Show a host with its GPUs, addresses, labels and nodes
    Show(HostNameArgs),
    /// Stop placing nodes and jobs on a host. Running jobs continue
    Cordon(HostNameArgs),
    /// Allow new nodes and jobs on a host again
    Uncordon(HostNameArgs),
    /// Drain a host: wait for its running jobs to end, then remove its nodes
    ///
    /// No new jobs start on the host meanwhile. The nodes are replaced on other hosts that have capacity. With --now, running
    /// jobs are stopped and go back to the queue: they get SIGTERM, then SIGKILL after the server's --preemption-grace.
    /// 'corro host uncordon' allows new nodes and jobs again.
    #[command(after_help = "Examples:\n  corro host drain gpu-1\n  corro host drain gpu-1 --now")]
    Drain(DrainArgs),
    /// Remove a host from the server. Its credential is revoked and its agent exits
    ///
    /// A host that still has nodes is not removed. Drain it first, or use --now to send its jobs back to the queue.
    #[command(after_help = "Examples:\n  corro host remove gpu-1\n  corro host remove gpu-1 --now")]
    Remove(DrainArgs),
}

#[derive(Args, Debug)]
struct HostNameArgs {
    /// Name of the host, as listed by 'corro host list'
    #[arg(value_name = "HOST")]
    host: String,
}

#[derive(Args, Debug)]
struct DrainArgs {
    #[command(flatten)]
    name: HostNameArgs,
    /// Do not wait for running jobs: send them back to the queue
    #[arg(long)]
    now: bool,
}

pub async fn run(args: HostArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let client = session.client()?;
    let hosts = Some(TableKind::Host);
    match args.command {
        HostCommand::Token(args) => token::run(&session, args).await,
        HostCommand::List => {
            let found: Vec<Host> = client.list::<HostsList, _>(&[], &[]).await?;
            if found.is_empty() {
                note("No machine has joined yet: 'corro host token' makes a token for one.");
            }
            session.print_serialized(&found, hosts)
        }
        HostCommand::Show(HostNameArgs { host }) => {
            let found = client.get::<HostsGet>(&[("host", &host)]).await.map_err(CliError::from_show)?;
            session.print_serialized(&found, hosts)
        }
        HostCommand::Cordon(HostNameArgs { host }) => {
            session.print_serialized(&client.call::<HostsCordon>(&[("host", &host)], &[], &NoBody {}).await?, hosts)
        }
        HostCommand::Uncordon(HostNameArgs { host }) => {
            session.print_serialized(&client.call::<HostsUncordon>(&[("host", &host)], &[], &NoBody {}).await?, hosts)
        }
        HostCommand::Drain(DrainArgs { name, now }) => {
            let parameters = DrainParameters { now };
            session
                .print_serialized(&client.call::<HostsDrain>(&[("host", &name.host)], &[], &parameters).await?, hosts)
        }
        HostCommand::Remove(DrainArgs { name: HostNameArgs { host }, now }) => {
            // Removing is idempotent, so a mistyped name would look removed.
            client.get::<HostsGet>(&[("host", &host)]).await?;
            let query: &[_] = if now { &[("now", "true")] } else { &[] };
            client.call::<HostsRemove>(&[("host", &host)], query, &NoBody {}).await?;
            let shown = escape_controls(&host);
            note(format_args!("{shown} is removed as soon as no node is left on it; its agent ends by itself."));
            Ok(())
        }
    }
}
