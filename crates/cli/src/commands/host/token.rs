//! `corro host token`: makes, lists and revokes the tokens with which machines join the server.

use clap::Args;
use corro_model::host::{HostToken, HostTokenCreated, HostTokenParameters};
use corro_model::ops::{HostTokensCreate, HostTokensDelete, HostTokensList, NoBody};

use crate::error::CliError;
use crate::output::{TableKind, escape_controls};
use crate::session::Session;
use crate::stdio::note;

#[derive(Args, Debug)]
pub struct TokenArgs {
    /// How long machines can join with the token: a number followed by s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_seconds)]
    ttl: u64,
    /// URL at which the machines reach the server [default: the server's own URL]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// List the tokens without their secrets
    #[arg(long, conflicts_with = "revoke")]
    list: bool,
    /// Revoke the token with this id
    #[arg(long, value_name = "ID")]
    revoke: Option<String>,
}

pub async fn run(session: &Session, args: TokenArgs) -> Result<(), CliError> {
    let client = session.client()?;
    if let Some(id) = args.revoke {
        let known: Vec<HostToken> = client.list::<HostTokensList, _>(&[], &[]).await?;
        if !known.iter().any(|token| token.id == id) {
            let message = format!("there is no join token {}", escape_controls(&id));
            return Err(CliError { exit: 3, ..CliError::new(message) }.hint("see 'corro host token --list'"));
        }
        client.call::<HostTokensDelete>(&[("token", &id)], &[], &NoBody {}).await?;
        return Ok(());
    }
    if args.list {
        let known: Vec<HostToken> = client.list::<HostTokensList, _>(&[], &[]).await?;
        if known.is_empty() {
            note("There is no join token. 'corro host token' makes one.");
        }
        return session.print_serialized(&known, Some(TableKind::HostToken));
    }
    let request = HostTokenParameters { ttl_seconds: Some(args.ttl), server: args.server };
    let made = client.call::<HostTokensCreate>(&[], &[], &request).await?;
    note_join_command(&made);
    session.print_serialized(&made, None)
}

/// Prints the command line for the machine that joins.
fn note_join_command(made: &HostTokenCreated) {
    let HostTokenCreated { server, token, expires, .. } = made;
    note(format_args!("The token is not shown again, and is valid until {expires}. On the machine that joins:"));
    note(format_args!("\n  corro agent join {server} --token {}\n", token.expose()));
    if ["http://127.", "https://127.", "http://localhost", "https://localhost"]
        .iter()
        .any(|local| server.starts_with(local))
    {
        note(format_args!(
            "note: {server} reaches the server from its own machine only. For other machines start it with --tls and --name, or give its URL with --server."
        ));
    }
}

/// Parses `90s`, `15m`, `24h`, `7d`, or a number of seconds.
fn parse_seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).filter(|seconds| *seconds > 0);
    number.ok_or_else(|| "write a duration as 90s, 15m, 24h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_a_unit() {
        for (text, expected) in [("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("5", 5)] {
            assert_eq!(parse_seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "h", "-1h", "0", "1.5h", "9999999999999999999d", "soon", "1ü"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
