//! `corro host`: machines that join a server by themselves. Tokens for them, what they have and carry, and taking them out of
//! service. The machine's own side is `corro agent join`.

use clap::{Args, Subcommand};
use corro_model::host::{DrainParameters, Host, HostToken, HostTokenCreated, HostTokenParameters};
use corro_model::ops::{
    HostTokensCreate, HostTokensDelete, HostTokensList, HostsCordon, HostsDrain, HostsGet, HostsList, HostsRemove,
    HostsUncordon, NoBody,
};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{TableKind, escape_controls};
use crate::session::{GlobalArgs, Session};
use crate::talk::say;

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
    /// The token carries the server's address, the fingerprint of its certificate authority and a secret. It is shown once, good
    /// for any number of machines until it ends, and survives a restart of the server. Hosts that joined with it stay when it ends
    /// or is revoked.
    #[command(
        after_help = "Examples:\n  corro host token\n  corro host token --ttl 2h --server https://gpu-box:8470\n  corro host token --list -o table\n  corro host token --revoke 1f2e3d4c"
    )]
    Token(TokenArgs),
    /// List the machines that have joined: what they have, what is free, and what they carry
    #[command(after_help = "Example:\n  corro host list -o table")]
    List,
    /// Show one host, with its GPUs, addresses, labels and nodes
    Show(WhichArgs),
    /// Let a host take no new nodes, and its nodes no new jobs; what runs goes on
    Cordon(WhichArgs),
    /// Let a host take nodes and jobs again
    Uncordon(WhichArgs),
    /// Take everything off a host: running jobs end, nothing new starts, then its nodes leave
    ///
    /// With --now running jobs get SIGTERM, and after the server's --preemption-grace SIGKILL, and wait again. The nodes are
    /// replaced on other hosts that have room. 'corro host uncordon' takes it back.
    #[command(after_help = "Examples:\n  corro host drain gpu-1\n  corro host drain gpu-1 --now")]
    Drain(DrainArgs),
    /// Forget a host: its credential is void, and its agent ends
    ///
    /// One that carries nodes is drained first; with --now their jobs go back to the queue.
    #[command(after_help = "Examples:\n  corro host remove gpu-1\n  corro host remove gpu-1 --now")]
    Remove(DrainArgs),
}

#[derive(Args, Debug)]
struct TokenArgs {
    /// How long machines may join with it: a number with s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = seconds)]
    ttl: u64,
    /// The URL at which the machines reach the server [default: as the server calls itself]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Show the tokens there are, without their secrets
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Let nobody join with the token of this id any more
    #[arg(long, value_name = "ID")]
    revoke: Option<String>,
}

#[derive(Args, Debug)]
struct WhichArgs {
    /// Name of the host, as 'corro host list' shows it
    #[arg(value_name = "HOST")]
    host: String,
}

#[derive(Args, Debug)]
struct DrainArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Send running jobs back to the queue
    #[arg(long)]
    now: bool,
}

pub async fn run(args: HostArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    let client = session.client()?;
    let hosts = Some(TableKind::Host);
    match args.command {
        HostCommand::Token(args) => token(&session, args).await,
        HostCommand::List => {
            let found: Vec<Host> = client.list::<HostsList, _>(&[], &[]).await?;
            if found.is_empty() {
                say("No machine has joined. 'corro host token' makes a token with which one can.");
            }
            print(&session, &found, hosts)
        }
        HostCommand::Show(WhichArgs { host }) => {
            let found = client.get::<HostsGet>(&[("host", &host)]).await.map_err(Failure::of_show)?;
            print(&session, &found, hosts)
        }
        HostCommand::Cordon(WhichArgs { host }) => {
            print(&session, &client.call::<HostsCordon>(&[("host", &host)], &[], &NoBody {}).await?, hosts)
        }
        HostCommand::Uncordon(WhichArgs { host }) => {
            print(&session, &client.call::<HostsUncordon>(&[("host", &host)], &[], &NoBody {}).await?, hosts)
        }
        HostCommand::Drain(DrainArgs { which, now }) => {
            let how = DrainParameters { now };
            print(&session, &client.call::<HostsDrain>(&[("host", &which.host)], &[], &how).await?, hosts)
        }
        HostCommand::Remove(DrainArgs { which: WhichArgs { host }, now }) => {
            // A name that is mistyped would look removed.
            client.get::<HostsGet>(&[("host", &host)]).await?;
            let query: &[_] = if now { &[("now", "true")] } else { &[] };
            client.call::<HostsRemove>(&[("host", &host)], query, &NoBody {}).await?;
            let shown = escape_controls(&host);
            say(format_args!("{shown} is removed as soon as nothing is left on it; its agent ends by itself."));
            Ok(())
        }
    }
}

async fn token(session: &Session, args: TokenArgs) -> Result<(), Failure> {
    let client = session.client()?;
    if let Some(id) = args.revoke {
        let known: Vec<HostToken> = client.list::<HostTokensList, _>(&[], &[]).await?;
        if !known.iter().any(|token| token.id == id) {
            let message = format!("there is no join token {}", escape_controls(&id));
            return Err(Failure { exit: 3, ..Failure::new(message) }.hint("see 'corro host token --list'"));
        }
        client.call::<HostTokensDelete>(&[("token", &id)], &[], &NoBody {}).await?;
        return Ok(());
    }
    if args.list {
        let known: Vec<HostToken> = client.list::<HostTokensList, _>(&[], &[]).await?;
        if known.is_empty() {
            say("There is no join token. 'corro host token' makes one.");
        }
        return print(session, &known, Some(TableKind::HostToken));
    }
    let request = HostTokenParameters { ttl_seconds: Some(args.ttl), server: args.server };
    let made = client.call::<HostTokensCreate>(&[], &[], &request).await?;
    explain(&made);
    print(session, &made, None)
}

fn explain(made: &HostTokenCreated) {
    let HostTokenCreated { server, token, expires, .. } = made;
    say(format_args!("The token is shown this once only, and is good until {expires}. On the machine that joins:"));
    say(format_args!("\n  corro agent join {server} --token {}\n", token.expose()));
    if ["http://127.", "https://127.", "http://localhost", "https://localhost"]
        .iter()
        .any(|own| server.starts_with(own))
    {
        say(format_args!(
            "note: {server} leads to the server on its own machine only. For others start it with --tls and --name, or name it with --server."
        ));
    }
}

fn print(session: &Session, value: &impl Serialize, table: Option<TableKind>) -> Result<(), Failure> {
    let value = serde_json::to_value(value).map_err(|error| Failure::of(&error))?;
    session.print_shaped(&value, table)
}

/// `90s`, `15m`, `24h`, `7d`, or seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).filter(|seconds| *seconds > 0);
    number.ok_or_else(|| "write a time as 90s, 15m, 24h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_a_unit() {
        for (text, expected) in [("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("5", 5)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "h", "-1h", "0", "1.5h", "9999999999999999999d", "soon", "1ü"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
