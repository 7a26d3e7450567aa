//! How a command fails: what is said on standard error and the exit code. Every command returns a `Failure`; `main`
//! shows it. Exit codes: 1 the command failed, 2 the command line is wrong, 3 `show` found nothing,
//! 130 Ctrl-C.

mod hints;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

use corro_client::{ClientError, ProfileError};
use corro_model::ApiError;

use crate::output::{OutputError, QueryError, escape_controls};
use crate::prompt::NotConfirmed;
use crate::ssh_keys::SshKeyError;
use crate::talk::as_called;

pub use hints::Place;

const HINT_MARK: &str = "\n\nhint: ";

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    pub exit: u8,
    /// What was attempted and failed. Empty: nothing is said, only the exit code counts.
    pub message: String,
    /// Why, outermost first.
    pub causes: Vec<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The flags that the usage line below it shows; none, and there is no such line.
    pub needs: Vec<&'static str>,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { exit: 1, message: message.into(), causes: Vec::new(), hint: None, needs: Vec::new() }
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: 2, ..Failure::new(message) }
    }

    /// Arguments are missing, in the words of `az`. `needed` are those that the command cannot do without, given or not.
    pub fn missing(missing: &[&'static str], needed: &[&'static str]) -> Failure {
        let message = format!("the following arguments are required: {}", missing.join(", "));
        Failure { needs: needed.to_vec(), ..Failure::usage(message) }
    }

    /// Everything has been said already.
    pub fn silent(exit: u8) -> Failure {
        Failure { exit, ..Failure::new("") }
    }

    /// The message of `error` and of every error behind it.
    pub fn of(error: &(dyn Error + 'static)) -> Failure {
        let mut causes = Vec::new();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some libraries repeat their cause in their own text.
            if !causes.last().is_some_and(|last: &String| last.contains(&text)) {
                causes.push(text);
            }
            cause = error.source();
        }
        Failure { causes, ..Failure::new(error.to_string()) }
    }

    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// The error of a request about something at `place`, which the hint repeats.
    pub fn at(place: Place<'_>, error: ClientError) -> Failure {
        let hint = error.api().and_then(|error| hints::hint(&error.code, place));
        let failure = Failure::from(error);
        Failure { hint: hint.or(failure.hint), ..failure }
    }

    /// The error in the words of the command line: a field is named by the option that sets it. `options` are pairs of the
    /// last word of a field and its option.
    pub fn in_options(self, target: Option<&str>, options: &[(&str, &str)]) -> Failure {
        let Some(field) = target.filter(|field| !field.is_empty()) else { return self };
        let plain = self.message.strip_suffix(&format!(" ({field})")).unwrap_or(&self.message).to_owned();
        let named = options.iter().fold(plain.clone(), |text, (word, option)| text.replace(word, option));
        if named != plain {
            return Failure { message: named, ..self };
        }
        match options.iter().find(|(word, _)| field.rsplit('.').next() == Some(word)) {
            Some((_, option)) => Failure { message: format!("argument {option}: {plain}"), ..self },
            None => self,
        }
    }

    /// `show` has its own exit code for what is not there.
    pub fn of_show(error: ClientError) -> Failure {
        let exit = if error.is_not_found() { 3 } else { 1 };
        Failure { exit, ..Failure::from(error) }
    }

    /// Says it on standard error.
    pub fn report(&self) {
        if !self.message.is_empty() {
            // What a server or a file says is shown, not obeyed. Nobody is left to tell when standard error is
            // gone.
            let text: String = as_called(&self.to_string()).split_inclusive('\n').map(safe_line).collect();
            let _ = io::stderr().write_all(text.as_bytes());
        }
    }
}

fn safe_line(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => escape_controls(line) + "\n",
        None => escape_controls(line),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        for cause in &self.causes {
            writeln!(f, "  because: {cause}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let hint = match &error {
            ClientError::Api(error) => return Failure::from(error.clone()),
            ClientError::Unreachable { .. } => {
                Some("start it with 'corro up', or with 'corro files' if it serves files only")
            }
            ClientError::Broken { .. } => Some(
                "see whether it still runs, and start it with 'corro up', or with 'corro files' if it serves files only",
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
                Some("try again when nobody writes to it")
            }
            _ => None,
        };
        let mut failure = Failure::of(&error);
        if let ClientError::Unreachable { .. } = error {
            // What lies between is how the library went about it: only the last cause tells anything.
            failure.causes.drain(..failure.causes.len().saturating_sub(1));
        }
        Failure { hint: hint.map(str::to_owned), ..failure }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        let message = match &error.target {
            Some(target) if !error.message.contains(target.as_str()) => format!("{} ({target})", error.message),
            _ => error.message.clone(),
        };
        Failure { hint: hints::hint(&error.code, Place::default()), ..Failure::new(message) }
    }
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Failure {
        let hint = match &error {
            ProfileError::Missing { .. } => Some(
                "start a server on this machine with 'corro up' (with its --data DIR, to get back to one that runs), \
                 or log in to another with 'corro login'",
            ),
            ProfileError::Invalid { .. } => Some("write it anew with 'corro up'"),
            _ => None,
        };
        Failure { hint: hint.map(str::to_owned), ..Failure::of(&error) }
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Failure {
        let exit = if matches!(error, QueryError::Invalid { .. }) { 2 } else { 1 };
        Failure { exit, causes: vec![error.position().to_owned()], ..Failure::new(error.to_string()) }
            .hint("expressions are explained at https://jmespath.org")
    }
}

impl From<OutputError> for Failure {
    fn from(error: OutputError) -> Failure {
        match error {
            OutputError::Query(error) => error.into(),
            // The reader has seen enough, as `head` does.
            OutputError::Write(error) if error.kind() == io::ErrorKind::BrokenPipe => Failure::silent(0),
            other => Failure::of(&other),
        }
    }
}

impl From<NotConfirmed> for Failure {
    fn from(error: NotConfirmed) -> Failure {
        Failure::of(&error)
    }
}

impl From<SshKeyError> for Failure {
    fn from(error: SshKeyError) -> Failure {
        let hint = match &error {
            SshKeyError::IncorrectPublicKey => {
                Some("give the text or the file of a public key that begins with 'ssh-rsa'".to_owned())
            }
            SshKeyError::UnreadablePrivateKey { path, .. } => {
                Some(format!("write its public half with 'ssh-keygen -y -f {0} > {0}.pub'", path.display()))
            }
            _ => None,
        };
        Failure { hint, ..Failure::of(&error) }
    }
}

impl From<anyhow::Error> for Failure {
    /// Such errors carry their hint at the end of their text.
    fn from(error: anyhow::Error) -> Failure {
        let mut failure = Failure::of(error.as_ref());
        if let Some((message, hint)) = failure.message.split_once(HINT_MARK) {
            let (message, hint) = (message.to_owned(), hint.to_owned());
            failure.message = message;
            failure.hint = Some(hint);
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_why_and_what_to_do() {
        let failure = Failure { causes: vec!["disk full".into(), "quota".into()], ..Failure::new("cannot write x") }
            .hint("make room");
        assert_eq!(
            failure.to_string(),
            "error: cannot write x\n  because: disk full\n  because: quota\n\nhint: make room\n"
        );
    }

    #[test]
    fn a_hint_inside_an_error_is_found() {
        let failure = Failure::from(anyhow::anyhow!("disk full").context("cannot write x\n\nhint: make room"));
        assert_eq!(failure.to_string(), "error: cannot write x\n  because: disk full\n\nhint: make room\n");
    }

    #[test]
    fn a_field_is_named_by_the_option_that_sets_it() {
        let options = [("initialNodeCount", "--target"), ("accessTier", "--access-tier")];
        let said = |field: &str, message: &str| {
            let error = ApiError::invalid(field, message);
            let target = error.target.clone();
            Failure::from(error).in_options(target.as_deref(), &options).message
        };
        assert_eq!(said("properties.a.initialNodeCount", "initialNodeCount is 5: use less"), "--target is 5: use less");
        assert_eq!(said("properties.accessTier", "'x' is none"), "argument --access-tier: 'x' is none");
        assert_eq!(said("properties.other", "wrong"), "wrong (properties.other)");
    }

    #[test]
    fn errors_of_the_service_keep_their_message_and_name_the_field() {
        let failure = Failure::from(ApiError::invalid("properties.nodeCount", "a job needs at least 1 node"));
        assert_eq!(failure.message, "a job needs at least 1 node (properties.nodeCount)");
        let missing = ClientError::Api(ApiError::job_not_found("j"));
        assert_eq!(
            (Failure::from(missing).exit, Failure::of_show(ClientError::Api(ApiError::job_not_found("j"))).exit),
            (1, 3)
        );
    }
}
