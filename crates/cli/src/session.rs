//! What a client command has in hand: a client for the configured server and the way to print. Made once per command.

use std::io::{self, BufWriter};
use std::path::PathBuf;

use clap::Args;
use corro_client::{Client, Profile, profile};
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, Format, Query, Shape, TableKind};

/// The arguments every command of the Azure-compatible groups takes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global Arguments")]
pub struct GlobalArgs {
    /// How to print the answer: json, jsonc, table, tsv, yaml or none
    #[arg(
        long,
        short = 'o',
        global = true,
        value_enum,
        ignore_case = true,
        default_value = "json",
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    output: Format,
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
    pub client: Client,
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
        let profile = Profile::load(&profile::config_dir()?)?;
        let mut client = Client::new(&profile)?;
        if let Some(subscription) = &args.subscription {
            client = client.with_subscription(subscription.clone());
        }
        Ok(Session { client, output: Output { format: args.output, query } })
    }

    /// Prints a resource, or a list of them, as `az` shows it.
    pub fn print(&self, shape: Shape, table: Option<TableKind>, wire: &impl Serialize) -> Result<(), Failure> {
        let wire = serde_json::to_value(wire).map_err(|error| Failure::of(&error))?;
        self.output.print(&shape.apply(&wire), table)
    }

    /// What `show` found: one object for one resource, a list for several ids.
    pub fn print_found(
        &self,
        shape: Shape,
        table: TableKind,
        found: &[impl Serialize],
        n_ids: usize,
    ) -> Result<(), Failure> {
        match found {
            [one] if n_ids < 2 => self.print(shape, Some(table), one),
            several => self.print(shape, Some(table), &several),
        }
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

/// An environment variable that is set to something.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn home_dir() -> Result<PathBuf, Failure> {
    env("HOME")
        .map(PathBuf::from)
        .ok_or_else(|| Failure::new("the variable HOME is not set").hint("set it to your home directory"))
}
