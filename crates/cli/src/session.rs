//! State of a client command: the client for the configured server and the output format. The client is created on first use, because a command with
//! a connection string needs no profile.

mod settings;

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use corro_client::{Client, Profile, ProfileError, RECONNECT_TIMEOUT, Trust, profile};
use corro_hosting::local_admin_login::{LocalServer, find_local_server};
use corro_hosting::logging;
use corro_model::arm::SUBSCRIPTION_NAME;
use serde::Serialize;
use serde_json::Value;

use crate::error::CliError;
use crate::output::{self, Format, Query, Shape, TableKind};
use crate::stdio::{filtered_stdout, note};

pub use settings::{Ini, az_config_dir, az_config_file, file_setting, setting, variable_name};

/// Arguments of all commands of the Azure-compatible groups.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global Arguments")]
pub struct GlobalArgs {
    /// Output format: json, jsonc, table, tsv, yaml or none [default: $AZURE_CORE_OUTPUT, or json]
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
    /// JMESPath expression that selects what to print. See jmespath.org
    #[arg(long, global = true, value_name = "JMESPATH")]
    query: Option<String>,
    /// Name or id of the subscription; a server has only one
    #[arg(long, global = true, value_name = "SUBSCRIPTION")]
    subscription: Option<String>,
    /// Log requests and responses to standard error
    #[arg(long, global = true)]
    verbose: bool,
    /// Log requests and responses with their bodies, but without secrets
    #[arg(long, global = true)]
    debug: bool,
}

pub struct Session {
    client: OnceLock<Client>,
    subscription: Option<String>,
    output: Output,
}

/// Format and query of results.
pub struct Output {
    format: Format,
    query: Option<Query>,
}

impl GlobalArgs {
    /// Whether `--output` or `--query` was given.
    pub fn is_output_chosen(&self) -> bool {
        self.output.is_some() || self.query.is_some()
    }
}

impl GlobalArgs {
    pub fn has_query(&self) -> bool {
        self.query.is_some()
    }
}

impl Session {
    /// An invalid query is reported before the first request.
    pub fn open(args: &GlobalArgs) -> Result<Session, CliError> {
        if args.verbose || args.debug {
            logging::init_http_log(args.debug);
        }
        let query = args.query.as_deref().map(Query::parse).transpose()?;
        let format = match args.output {
            Some(format) => format,
            None => default_format(setting("core", "output"))?,
        };
        let output = Output { format, query };
        Ok(Session { client: OnceLock::new(), subscription: args.subscription.clone(), output })
    }

    /// The client for the server of the profile.
    pub fn client(&self) -> Result<&Client, CliError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let profile = profile()?;
        check_subscription(self.subscription.as_deref(), &profile.subscription)?;
        let client = Client::new(&profile)?.with_absence_notice(note_server_unreachable);
        Ok(self.client.get_or_init(|| client))
    }

    /// Trusted certificates: `CORRO_CA`, else the profile's, else the system's.
    pub fn trust(&self) -> Result<Trust, CliError> {
        if let Some(file) = env("CORRO_CA") {
            return Trust::from_file(Path::new(&file)).map_err(|error| CliError::from_error(&error));
        }
        let profile = profile::config_dir().and_then(|dir| Profile::load(&dir));
        Ok(profile.map(|profile| profile.trust()).unwrap_or_default())
    }

    /// Prints a resource, or a list of them, as `az` does.
    pub fn print(&self, shape: Shape, table: Option<TableKind>, wire: &impl Serialize) -> Result<(), CliError> {
        let wire = serde_json::to_value(wire).map_err(|error| CliError::from_error(&error))?;
        self.output.print(&shape.apply(&wire), table)
    }

    /// Prints a value that is no resource.
    pub fn print_value(&self, value: &Value) -> Result<(), CliError> {
        self.output.print(value, None)
    }

    /// Whether the format is a table.
    pub fn prints_table(&self) -> bool {
        self.output.format == Format::Table
    }

    /// Prints a value that needs no shape of `az`.
    pub fn print_serialized(&self, value: &impl Serialize, table: Option<TableKind>) -> Result<(), CliError> {
        let value = serde_json::to_value(value).map_err(|error| CliError::from_error(&error))?;
        self.output.print(&value, table)
    }

    /// Prints resources of several shapes, each of them shaped already.
    pub fn print_shaped(&self, value: &Value, table: Option<TableKind>) -> Result<(), CliError> {
        self.output.print(value, table)
    }
}

impl Output {
    fn print(&self, value: &Value, table: Option<TableKind>) -> Result<(), CliError> {
        let mut out = BufWriter::new(filtered_stdout());
        Ok(output::print(&mut out, self.format, self.query.as_ref(), value, table)?)
    }
}

/// The profile of this user. The error for a missing one says how to log in.
pub fn profile() -> Result<Profile, CliError> {
    let dir = profile::config_dir()?;
    Profile::load(&dir).map_err(|error| match error {
        ProfileError::Missing { path } => {
            not_logged_in(&path, env("CORRO_SERVER").as_deref(), find_local_server(&dir).as_ref())
        }
        other => other.into(),
    })
}

/// `configured` is `CORRO_SERVER`, `local` the server on this machine.
fn not_logged_in(path: &Path, configured: Option<&str>, local: Option<&LocalServer>) -> CliError {
    let matching =
        local.filter(|local| configured.is_none_or(|configured| configured.trim_end_matches('/') == local.url));
    let message = |server: &str| format!("not logged in to {server}: {} does not exist", path.display());
    match (matching, configured) {
        (Some(LocalServer { url, has_readable_login: true }), _) => CliError::new(message(url))
            .hint("the server runs on this machine: log in to it again with 'corro up'")
            .docs("not-logged-in"),
        (Some(LocalServer { url, has_readable_login: false }), _) => CliError::new(message(url))
            .hint("the server runs on this machine: stop it and start it again with 'corro up', which logs you in")
            .docs("not-logged-in"),
        (None, Some(server)) => CliError::new(message(server))
            .hint(format!(
                "log in with 'corro login --service-principal -u ID -t TENANT --server {server}'; \
             an owner makes such a login with 'corro ad sp create-for-rbac'"
            ))
            .docs("not-logged-in"),
        (None, None) => ProfileError::Missing { path: path.to_owned() }.into(),
    }
}

/// Printed once by commands that wait for a server that restarts.
pub fn note_server_unreachable() {
    note(format_args!("corro: the server does not answer; trying again for {} seconds", RECONNECT_TIMEOUT.as_secs()));
}

/// Rejects another subscription than the only one of the server.
fn check_subscription(given: Option<&str>, own: &str) -> Result<(), CliError> {
    match given {
        Some(given) if ![own, SUBSCRIPTION_NAME].iter().any(|known| known.eq_ignore_ascii_case(given)) => {
            let message = format!("Subscription '{given}' not found. Check the spelling and casing and try again.");
            Err(CliError::new(message).hint(format!("the server's subscription is {own}, named {SUBSCRIPTION_NAME}")))
        }
        _ => Ok(()),
    }
}

fn default_format(configured: Option<String>) -> Result<Format, CliError> {
    let Some(name) = configured else { return Ok(Format::Json) };
    Format::from_str(&name, true).map_err(|_| {
        CliError::new(format!("unknown output format '{name}' in the configuration"))
            .hint("set AZURE_CORE_OUTPUT, or output in the core section of your az configuration file, to json")
    })
}

/// An environment variable that is set and not empty.
pub fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn home_dir() -> Result<PathBuf, CliError> {
    env("HOME")
        .map(PathBuf::from)
        .ok_or_else(|| CliError::new("the variable HOME is not set").hint("set it to your home directory"))
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
    fn the_error_without_a_profile_says_how_to_log_in() {
        let check = |configured: Option<&str>, local: Option<bool>, message: &str, hint: &str| {
            let local = local
                .map(|has_readable_login| LocalServer { url: "http://127.0.0.1:1".to_owned(), has_readable_login });
            let failure = not_logged_in(Path::new("p"), configured, local.as_ref());
            assert_eq!(failure.message, message);
            let text = failure.hint.unwrap_or_default();
            assert!(text.contains(hint), "{text}");
        };
        check(None, None, "No Corro server is configured: p does not exist", "start a server on this machine");
        check(None, Some(true), "not logged in to http://127.0.0.1:1: p does not exist", "again with 'corro up'");
        check(None, Some(false), "not logged in to http://127.0.0.1:1: p does not exist", "stop it and start");
        let there = "not logged in to https://box:1: p does not exist";
        for local in [None, Some(true)] {
            check(Some("https://box:1"), local, there, "corro login --service-principal -u ID");
        }
        let here = "not logged in to http://127.0.0.1:1: p does not exist";
        check(Some("http://127.0.0.1:1/"), Some(true), here, "again with 'corro up'");
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
