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
    /// Make a token with which machines join this server, and show the command for them
    ///
    /// The token carries the server's address, the fingerprint of its certificate authority and a secret. It is shown once, valid for
    /// any number of machines until it expires, and survives a restart of the server. Hosts that joined with it stay when it expires
    /// or is revoked.
    #[command(
        after_help = "Examples:\n  corro host token\n  corro host token --ttl 2h --server https://gpu-box:8470\n  corro host token --list -o table\n  corro host token --revoke 1f2e3d4c"
    )]
    Token(token::TokenArgs),
    /// List the machines that have joined: what they have, what is free, and what they carry
    #[command(after_help = "Example:\n  corro host list -o table")]
    List,
    /// Show one host, with its GPUs, addresses, labels and nodes
    Show(HostNameArgs),
    /// Place no new nodes on a host and no new jobs on its nodes; running jobs go on
    Cordon(HostNameArgs),
    /// Allow nodes and jobs on a host again
    Uncordon(HostNameArgs),
    /// Empty a host: wait for its running jobs, start nothing new, then remove its nodes
    ///
    /// With --now running jobs get SIGTERM, and after the server's --preemption-grace SIGKILL, and wait again. The nodes are
    /// replaced on other hosts that have capacity. 'corro host uncordon' undoes it.
    #[command(after_help = "Examples:\n  corro host drain gpu-1\n  corro host drain gpu-1 --now")]
    Drain(DrainArgs),
    /// Remove a host: its credential is revoked, and its agent ends
    ///
    /// A host that carries nodes is refused: drain it first, or give --now, which sends their jobs back to the queue.
    #[command(after_help = "Examples:\n  corro host remove gpu-1\n  corro host remove gpu-1 --now")]
    Remove(DrainArgs),
}

#[derive(Args, Debug)]
struct HostNameArgs {
    /// Name of the host, as 'corro host list' shows it
    #[arg(value_name = "HOST")]
    host: String,
}

#[derive(Args, Debug)]
struct DrainArgs {
    #[command(flatten)]
    name: HostNameArgs,
    /// Send running jobs back to the queue
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
