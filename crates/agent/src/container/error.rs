//! Errors of starting a container, for the job's error and `corro job why`. Pure.

use bollard::errors::Error;
use corro_base::error_chain;

use super::engine::NoEngine;

/// Class of the error; each has its own remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    NoEngine,
    PullFailed,
    NoShell,
    NoSpace,
    StartFailed,
}

/// Why a container could not be started.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerError {
    pub reason: Reason,
    pub info: String,
}

impl Reason {
    /// Class that follows from the engine's message alone, whatever was attempted.
    pub fn from_message(message: &str) -> Option<Reason> {
        let message = message.to_ascii_lowercase();
        if message.contains("no space left") || message.contains("disk quota exceeded") {
            return Some(Reason::NoSpace);
        }
        let missing = ["no such file", "not found", "permission denied"].iter().any(|why| message.contains(why));
        (message.contains("/bin/sh") && missing).then_some(Reason::NoShell)
    }

    pub fn name(self) -> &'static str {
        match self {
            Reason::NoEngine => "NoEngine",
            Reason::PullFailed => "PullFailed",
            Reason::NoShell => "NoShell",
            Reason::NoSpace => "NoSpace",
            Reason::StartFailed => "StartFailed",
        }
    }
}

impl ContainerError {
    pub fn from_start(error: &Error) -> ContainerError {
        let message = engine_message(error);
        let reason = Reason::from_message(&message).unwrap_or(Reason::StartFailed);
        let info = match reason {
            Reason::NoShell => format!("The image has no shell at /bin/sh, which command lines need: {message}"),
            _ => format!("The container engine could not start it: {message}"),
        };
        ContainerError { reason, info }
    }
}

impl From<NoEngine> for ContainerError {
    fn from(none: NoEngine) -> ContainerError {
        let info = format!(
            "The job asks for a container, and on its node {none}. Install Docker or Podman there; or the operator of the \
             server can allow such jobs to run on the host, without their image, with `corro up --no-containers`"
        );
        ContainerError { reason: Reason::NoEngine, info }
    }
}

/// The engine's own message without the client's context.
pub fn engine_message(error: &Error) -> String {
    let message = match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        other => error_chain::join(other),
    };
    message.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_follows_from_the_engines_message() {
        let check = |message: &str, reason| assert_eq!(Reason::from_message(message), reason, "{message}");
        check("write /var/lib/x: no space left on device", Some(Reason::NoSpace));
        check("exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown", Some(Reason::NoShell));
        check("pull access denied for x, repository does not exist", None);
        check("manifest for x:1 not found: manifest unknown", None);
        let error = Error::DockerResponseServerError { status_code: 500, message: "error setting rlimits\n".into() };
        let failed = ContainerError::from_start(&error);
        assert_eq!(failed.info, "The container engine could not start it: error setting rlimits");
        assert_eq!(failed.reason, Reason::StartFailed);
    }
}
