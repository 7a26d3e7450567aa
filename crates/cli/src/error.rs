//! The error that every command returns and `main` reports: the message on standard error and the exit code. Exit codes: 1 the command
//! failed, 2 the command line is wrong, 3 `show` or the name of a short command found nothing, 130 Ctrl-C.

mod hints;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

use corro_agent::host::HostError;
use corro_base::error_chain;
use corro_client::{ClientError, ProfileError};
use corro_hosting::{HostingError, ProviderError};
use corro_model::{ApiError, docs_keys};

use crate::output::{OutputError, QueryError, escape_controls};
use crate::prompt::ConfirmError;
use crate::ssh_keys::SshKeyError;
use crate::stdio::with_program_name;

pub use hints::HintContext;

/// Separates message and hint in the text of an `anyhow` error.
const HINT_SEPARATOR: &str = "\n\nhint: ";

#[derive(Debug, PartialEq, Eq)]
pub struct CliError {
    pub exit: u8,
    /// The failed operation. Empty if nothing is to be printed.
    pub message: String,
    /// Causes, outermost first.
    pub causes: Vec<String>,
    /// Remedy for the user.
    pub hint: Option<String>,
    /// Key of the documentation about this error.
    pub docs_key: Option<&'static str>,
    /// Flags that the usage line after the error shows. Empty: no usage line.
    pub usage_flags: Vec<&'static str>,
    /// Whether the same request may succeed a little later: the server was not reached, or starts or stops.
    pub is_transient: bool,
}

impl CliError {
    pub fn new(message: impl Into<String>) -> CliError {
        CliError {
            exit: 1,
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            docs_key: None,
            usage_flags: Vec::new(),
            is_transient: false,
        }
    }

    /// An error in the command line.
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError { exit: 2, ..CliError::new(message) }
    }

    /// Missing arguments, worded as by `az`. `required` are all arguments that the command requires, given or not.
    pub fn missing_arguments(missing: &[&'static str], required: &[&'static str]) -> CliError {
        let message = format!("the following arguments are required: {}", missing.join(", "));
        CliError { usage_flags: required.to_vec(), ..CliError::usage(message) }
    }

    /// Only an exit code: everything has been printed already.
    pub fn silent(exit: u8) -> CliError {
        CliError { exit, ..CliError::new("") }
    }

    /// The message of `error`, with its sources as causes.
    pub fn from_error(error: &(dyn Error + 'static)) -> CliError {
        CliError { causes: error_chain::causes(error), ..CliError::new(error.to_string()) }
    }

    /// The error of writing to standard output. A reader that has closed it, such as `head`, is no failure.
    pub fn from_output(error: io::Error) -> CliError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::silent(0),
            _ => CliError::new("cannot write to standard output").cause(error),
        }
    }

    /// Appends a cause.
    pub fn cause(mut self, cause: impl fmt::Display) -> CliError {
        self.causes.push(cause.to_string());
        self
    }

    pub fn hint(self, hint: impl Into<String>) -> CliError {
        CliError { hint: Some(hint.into()), ..self }
    }

    /// Refers to an entry of the documentation.
    pub fn docs(self, key: &'static str) -> CliError {
        CliError { docs_key: Some(key), ..self }
    }

    /// The error of a request about a resource. The hint is a command line with the names in `context`.
    pub fn for_request(context: HintContext<'_>, error: ClientError) -> CliError {
        let hint = error.api().and_then(|error| hints::hint(&error.code, context));
        let cli_error = CliError::from(error);
        CliError { hint: hint.or(cli_error.hint), ..cli_error }
    }

    /// Replaces the name of an API field by that of the option that sets it. `options` are pairs of the last segment of a field and
    /// its option.
    pub fn with_option_names(self, target: Option<&str>, options: &[(&str, &str)]) -> CliError {
        let Some(field) = target.filter(|field| !field.is_empty()) else { return self };
        let plain = self.message.strip_suffix(&format!(" ({field})")).unwrap_or(&self.message).to_owned();
        let named = options.iter().fold(plain.clone(), |text, (word, option)| text.replace(word, option));
        if named != plain {
            return CliError { message: named, ..self };
        }
        match options.iter().find(|(word, _)| field.rsplit('.').next() == Some(word)) {
            Some((_, option)) => CliError { message: format!("argument {option}: {plain}"), ..self },
            None => self,
        }
    }

    /// The error of a `show` command, which exits with 3 if the resource does not exist.
    pub fn from_show(error: ClientError) -> CliError {
        let exit = if error.is_not_found() { 3 } else { 1 };
        CliError { exit, ..CliError::from(error) }
    }

    /// Prints the error to standard error. Control characters are escaped, since texts may come from a server or a file.
    pub fn report(&self) {
        if !self.message.is_empty() {
            let text: String = with_program_name(&self.to_string()).split_inclusive('\n').map(escape_line).collect();
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

fn escape_line(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => escape_controls(line) + "\n",
        None => escape_controls(line),
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        for cause in &self.causes {
            writeln!(f, "  because: {cause}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "\nhint: {hint}")?;
        }
        if let Some(key) = &self.docs_key {
            let gap = if self.hint.is_none() { "\n" } else { "" };
            writeln!(f, "{gap}see 'corro docs {key}'")?;
        }
        Ok(())
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> CliError {
        let is_transient = error.is_transient();
        let hint = match &error {
            ClientError::Api(error) => return CliError { is_transient, ..CliError::from(error.clone()) },
            ClientError::Unreachable { .. } => {
                Some("start it with 'corro up', or with 'corro files' if it serves files only")
            }
            ClientError::Broken { .. } => Some(
                "check whether it still runs, and start it with 'corro up', or with 'corro files' if it serves \
                 files only",
            ),
            ClientError::Untrusted { .. } => Some(
                "trust its certificate authority with CORRO_CA=FILE or 'corro login --ca FILE': 'corro up --tls' shows the file on the server's machine",
            ),
            ClientError::NotTls { .. } => Some("write its address with http://, or start it with --tls"),
            ClientError::LoginRefused { .. } => Some(
                "log in again with 'corro login', or run 'corro up' again on the server's machine, where the administrator's login is kept",
            ),
            ClientError::UnexpectedAnswer { .. } | ClientError::UnexpectedFileAnswer { .. } => {
                Some("use the same version of corro for server and client")
            }
            ClientError::NotAPlainFile { .. } => Some("give another file, or a directory, with --dest"),
            ClientError::InvalidServer { .. } => Some("write it as http://127.0.0.1:8470 or https://gpu-box:8470"),
            ClientError::ChangedDuringDownload { .. } | ClientError::SourceShrank { .. } => {
                Some("try again when no program writes to it")
            }
            _ => None,
        };
        let mut cli_error = CliError::from_error(&error);
        if let ClientError::Unreachable { .. } = error {
            // The causes in between are internals of the HTTP library.
            cli_error.causes.drain(..cli_error.causes.len().saturating_sub(1));
        }
        CliError { hint: hint.map(str::to_owned), docs_key: client_docs_key(&error), is_transient, ..cli_error }
    }
}

fn client_docs_key(error: &ClientError) -> Option<&'static str> {
    match error {
        ClientError::Unreachable { .. } => Some("server-unreachable"),
        ClientError::Broken { .. } => Some("connection-broke"),
        ClientError::Untrusted { .. } => Some("certificate-not-trusted"),
        ClientError::NotTls { .. } => Some("server-not-tls"),
        ClientError::LoginRefused { .. } => Some("login-refused"),
        ClientError::UnexpectedAnswer { .. } | ClientError::UnexpectedFileAnswer { .. } => Some("version-mismatch"),
        _ => None,
    }
}

impl From<ApiError> for CliError {
    fn from(error: ApiError) -> CliError {
        let message = match &error.target {
            Some(target) if !error.message.contains(target.as_str()) => format!("{} ({target})", error.message),
            _ => error.message.clone(),
        };
        let docs_key = docs_keys::find(docs_keys::API_ERRORS, &error.code);
        CliError { hint: hints::hint(&error.code, HintContext::default()), docs_key, ..CliError::new(message) }
    }
}

impl From<ProfileError> for CliError {
    fn from(error: ProfileError) -> CliError {
        let hint = match &error {
            ProfileError::Missing { .. } => Some(
                "start a server on this machine with 'corro up' (with its --data DIR, to get back to one that runs), \
                 or log in to another with 'corro login'",
            ),
            ProfileError::Invalid { .. } => Some("write it again with 'corro up'"),
            _ => None,
        };
        let docs_key = match &error {
            ProfileError::Missing { .. } => Some("no-server-configured"),
            ProfileError::Invalid { .. } => Some("profile-invalid"),
            _ => None,
        };
        CliError { hint: hint.map(str::to_owned), docs_key, ..CliError::from_error(&error) }
    }
}

impl From<HostError> for CliError {
    fn from(error: HostError) -> CliError {
        let hint = match &error {
            HostError::Untrusted { .. } => Some(
                "possible man-in-the-middle, or the server has a new certificate authority: make a new token with 'corro host token'",
            ),
            HostError::Unreachable { .. } => Some(
                "check that the server runs and that this machine can reach it; only outbound connections are needed",
            ),
            _ => None,
        };
        CliError { hint: hint.map(str::to_owned), ..CliError::from_error(&error) }
    }
}

impl From<HostingError> for CliError {
    fn from(error: HostingError) -> CliError {
        let exit = if error.is_usage() { 2 } else { 1 };
        CliError { exit, hint: error.hint(), ..CliError::from_error(&error) }
    }
}

impl From<ProviderError> for CliError {
    fn from(error: ProviderError) -> CliError {
        HostingError::from(error).into()
    }
}

impl From<QueryError> for CliError {
    fn from(error: QueryError) -> CliError {
        let exit = if matches!(error, QueryError::Invalid { .. }) { 2 } else { 1 };
        CliError { exit, causes: vec![error.position().to_owned()], ..CliError::new(error.to_string()) }
            .hint("expressions are explained at https://jmespath.org")
    }
}

impl From<OutputError> for CliError {
    fn from(error: OutputError) -> CliError {
        match error {
            OutputError::Query(error) => error.into(),
            // The reader has closed the pipe, as `head` does.
            OutputError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => CliError::silent(0),
            other => CliError::from_error(&other),
        }
    }
}

impl From<ConfirmError> for CliError {
    fn from(error: ConfirmError) -> CliError {
        CliError::from_error(&error)
    }
}

impl From<SshKeyError> for CliError {
    fn from(error: SshKeyError) -> CliError {
        let hint = match &error {
            SshKeyError::IncorrectPublicKey => {
                Some("give the text or the file of a public key that begins with 'ssh-rsa'".to_owned())
            }
            SshKeyError::UnreadablePrivateKey { path, .. } => {
                Some(format!("write its public half with 'ssh-keygen -y -f {0} > {0}.pub'", path.display()))
            }
            _ => None,
        };
        CliError { hint, ..CliError::from_error(&error) }
    }
}

impl From<anyhow::Error> for CliError {
    /// The hint is at the end of the text, after [`HINT_SEPARATOR`].
    fn from(error: anyhow::Error) -> CliError {
        let mut cli_error = CliError::from_error(error.as_ref());
        if let Some((message, hint)) = cli_error.message.split_once(HINT_SEPARATOR) {
            let (message, hint) = (message.to_owned(), hint.to_owned());
            cli_error.message = message;
            cli_error.hint = Some(hint);
        }
        cli_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_causes_and_hint_are_printed() {
        let cli_error =
            CliError { causes: vec!["disk full".into(), "quota".into()], ..CliError::new("cannot write x") }
                .hint("make room");
        assert_eq!(
            cli_error.to_string(),
            "error: cannot write x\n  because: disk full\n  because: quota\n\nhint: make room\n"
        );
    }

    #[test]
    fn a_hint_inside_an_anyhow_error_is_separated() {
        let cli_error = CliError::from(anyhow::anyhow!("disk full").context("cannot write x\n\nhint: make room"));
        assert_eq!(cli_error.to_string(), "error: cannot write x\n  because: disk full\n\nhint: make room\n");
    }

    #[test]
    fn every_docs_key_is_in_the_documentation() {
        let own =
            ["not-logged-in", "no-server-configured", "profile-invalid", "server-unreachable", "connection-broke"];
        let more = ["certificate-not-trusted", "server-not-tls", "login-refused", "version-mismatch", "job-file"];
        let tables = docs_keys::JOB_ERRORS.iter().chain(docs_keys::API_ERRORS).map(|(_, key)| *key);
        for key in tables.chain(own).chain(more).chain(corro_model::explain::docs_keys()) {
            assert!(corro_docs::lookup::find(key).is_some(), "the documentation has no '{key}'");
        }
    }

    #[test]
    fn fields_are_replaced_by_options() {
        let options = [("initialNodeCount", "--target"), ("accessTier", "--access-tier")];
        let said = |field: &str, message: &str| {
            let error = ApiError::invalid(field, message);
            let target = error.target.clone();
            CliError::from(error).with_option_names(target.as_deref(), &options).message
        };
        assert_eq!(said("properties.a.initialNodeCount", "initialNodeCount is 5: use less"), "--target is 5: use less");
        assert_eq!(said("properties.accessTier", "'x' is none"), "argument --access-tier: 'x' is none");
        assert_eq!(said("properties.other", "wrong"), "wrong (properties.other)");
    }

    #[test]
    fn api_errors_keep_their_message_and_name_the_field() {
        let cli_error = CliError::from(ApiError::invalid("properties.nodeCount", "a job needs at least 1 node"));
        assert_eq!(cli_error.message, "a job needs at least 1 node (properties.nodeCount)");
        let missing = ClientError::Api(ApiError::job_not_found("j"));
        assert_eq!(
            (CliError::from(missing).exit, CliError::from_show(ClientError::Api(ApiError::job_not_found("j"))).exit),
            (1, 3)
        );
    }
}
