//! What a client command has in hand: a client for the configured server and the way to print. Made once per command.
//! The client is made when it is first asked for: a command that has everything in its arguments needs no profile.

mod settings;

use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use corro_client::{Client, PATIENCE, Profile, Trust, profile};
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
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
    /// Id of the subscription; the server's own unless given
    #[arg(long, global = true, value_name = "ID")]
    subscription: Option<String>,
    /// Accepted for compatibility
    #[arg(long, global = true, hide = true)]
    verbose: bool,
    /// Accepted for compatibility
    #[arg(long, global = true, hide = true)]
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
        let mut client = Client::new(&profile)?.with_absence_notice(say_that_the_server_is_away);
        if let Some(subscription) = &self.subscription {
            client = client.with_subscription(subscription.clone());
        }
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
    fn the_output_format_may_be_configured() {
        let of = |name: &str| default_format(Some(name.to_owned()));
        assert_eq!(
            (default_format(None), of("Table"), of("tsv")),
            (Ok(Format::Json), Ok(Format::Table), Ok(Format::Tsv))
        );
        assert!(of("xml").is_err());
    }
}
