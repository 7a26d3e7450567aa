//! Error of everything that can go wrong before or while the embedded server starts. It is made for people: a message, the causes
//! behind it and a hint that says what to do.

use std::error::Error;
use std::fmt;

use corro_base::error_chain;
use corro_client::ProfileError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line is wrong; nothing was attempted.
    Usage,
    /// Something was attempted and failed.
    Failed,
}

#[derive(Debug, PartialEq, Eq)]
pub struct HostingError {
    pub kind: ErrorKind,
    /// The failed operation.
    pub message: String,
    /// Causes, outermost first.
    pub causes: Vec<String>,
    /// Remedy for the user.
    pub hint: Option<String>,
}

impl HostingError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, message: message.into(), causes: Vec::new(), hint: None }
    }

    /// An error in the command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, ..Self::new(message) }
    }

    /// The message of `error`, and of every error behind it as causes.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        Self { causes: source_chain(error), ..Self::new(error.to_string()) }
    }

    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for HostingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for HostingError {}

impl From<ProfileError> for HostingError {
    fn from(error: ProfileError) -> Self {
        Self::from_error(&error)
    }
}

/// Messages of the sources of `error`, outermost first. A source whose text its predecessor already repeats is left out.
pub fn source_chain(error: &(dyn Error + 'static)) -> Vec<String> {
    error_chain::causes(error)
}
