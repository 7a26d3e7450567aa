//! What a client command has in hand: a client for the configured server and the way to print. Made once per command.
//! The client is made when it is first asked for: a command that has everything in its arguments needs no profile.

mod settings;

use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use corro_client::{Client, PATIENCE, Profile, Trust, profile};
use corro_model::arm::SUBSCRIPTION_NAME;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::logging;
use crate::output::{self, Format, Query, Shape, TableKind};
use crate::talk::say;

pub use settings::setting;

/// The arguments every command of the Azure-compatible groups takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global Arguments")]
pub struct GlobalArgs {
    /// How to print the answer: json, jsonc, table, tsv, yaml or none [default: AZURE_CORE_OUTPUT, or json]
    #[arg(
        long,
        short = 'o',
        global = true,
        value_enum,
        ignore_case = true,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    output: Option<Format>,
    /// JMESPath expression, applied to the answer before it is printed
    #[arg(long, global = true, value_name = "JMESPATH")]
    query: Option<String>,
    /// Name or id of the subscription; a server has one, which is used unless given
    #[arg(long, global = true, value_name = "SUBSCRIPTION")]
    subscription: Option<String>,
    /// Tell every request and its answer on standard error
    #[arg(long, global = true)]
    verbose: bool,
    /// The same, with what is in them; secrets are left out
    #[arg(long, global = true)]
    debug: bool,
}

pub struct Session {
    client: OnceLock<Client>,
    subscription: Option<String>,
    output: Output,
}

/// How the user wants answers printed.
pub struct Output {
    format: Format,
    query: Option<Query>,
}

impl Session {
    /// A wrong query is reported before anything is asked of the server.
    pub fn open(args: &GlobalArgs) -> Result<Session, Failure> {
        if args.verbose || args.debug {
            logging::tell_requests(args.debug);
        }
        let query = args.query.as_deref().map(Query::parse).transpose()?;
        let format = match args.output {
            Some(format) => format,
            None => default_format(setting("core", "output"))?,
        };
        let output = Output { format, query };
        Ok(Session { client: OnceLock::new(), subscription: args.subscription.clone(), output })
    }

    /// The client for the server of this machine's profile.
    pub fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let profile = Profile::load(&profile::config_dir()?)?;
        check_subscription(self.subscription.as_deref(), &profile.subscription)?;
        let client = Client::new(&profile)?.with_absence_notice(say_that_the_server_is_away);
        Ok(self.client.get_or_init(|| client))
    }

    /// Whose certificates are believed: as the profile says, if there is one.
    pub fn trust(&self) -> Trust {
        let profile = profile::config_dir().and_then(|dir| Profile::load(&dir));
        profile.map(|profile| profile.trust()).unwrap_or_default()
    }

    /// Prints a resource, or a list of them, as `az` shows it.
    pub fn print(&self, shape: Shape, table: Option<TableKind>, wire: &impl Serialize) -> Result<(), Failure> {
        let wire = serde_json::to_value(wire).map_err(|error| Failure::of(&error))?;
        self.output.print(&shape.apply(&wire), table)
    }

    /// Prints a value that is no resource.
    pub fn print_value(&self, value: &Value) -> Result<(), Failure> {
        self.output.print(value, None)
    }

    /// Prints resources of several shapes, each of them shaped already.
    pub fn print_shaped(&self, value: &Value, table: Option<TableKind>) -> Result<(), Failure> {
        self.output.print(value, table)
    }
}

impl Output {
    fn print(&self, value: &Value, table: Option<TableKind>) -> Result<(), Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        Ok(output::print(&mut out, self.format, self.query.as_ref(), value, table)?)
    }
}

/// Said once by whoever waits for a server that restarts.
pub fn say_that_the_server_is_away() {
    say(format_args!("corro: the server does not answer; trying again for {} seconds", PATIENCE.as_secs()));
}

/// A server has one subscription; another one would only be answered with something that was not found.
fn check_subscription(given: Option<&str>, own: &str) -> Result<(), Failure> {
    match given {
        Some(given) if ![own, SUBSCRIPTION_NAME].iter().any(|known| known.eq_ignore_ascii_case(given)) => {
            let message = format!("Subscription '{given}' not found. Check the spelling and casing and try again.");
            Err(Failure::new(message).hint(format!("the server's subscription is {own}, named {SUBSCRIPTION_NAME}")))
        }
        _ => Ok(()),
    }
}

fn default_format(configured: Option<String>) -> Result<Format, Failure> {
    let Some(name) = configured else { return Ok(Format::Json) };
    Format::from_str(&name, true).map_err(|_| {
        Failure::new(format!("the configured output format '{name}' is not known"))
            .hint("set AZURE_CORE_OUTPUT, or output in the core section of your az configuration file, to json")
    })
}

/// An environment variable that is set to something.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn home_dir() -> Result<PathBuf, Failure> {
    env("HOME")
        .map(PathBuf::from)
        .ok_or_else(|| Failure::new("the variable HOME is not set").hint("set it to your home directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subscription_is_the_servers_own() {
        assert_eq!(check_subscription(None, "1-2"), Ok(()));
        assert_eq!(check_subscription(Some("1-2"), "1-2"), Ok(()));
        assert_eq!(check_subscription(Some("corro"), "1-2"), Ok(()));
        let error = check_subscription(Some("1-3"), "1-2").expect_err("another one");
        assert_eq!(error.message, "Subscription '1-3' not found. Check the spelling and casing and try again.");
    }

    #[test]
    fn the_output_format_may_be_configured() {
        let of = |name: &str| default_format(Some(name.to_owned()));
        assert_eq!(
            (default_format(None), of("Table"), of("tsv")),
            (Ok(Format::Json), Ok(Format::Table), Ok(Format::Tsv))
        );
        assert!(of("xml").is_err());
    }
}
