//! Why a container could not be started, as people and `corro job why` are told. Entered by the rooms beside it. Pure.

use bollard::errors::Error;

use super::engine::NoEngine;
use crate::task_errors;

/// What can be done about it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    NoEngine,
    PullFailed,
    NoShell,
    NoSpace,
    StartFailed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub reason: Reason,
    pub info: String,
}

impl Reason {
    /// One that the engine's words tell by themselves, whatever was attempted.
    pub fn of(words: &str) -> Option<Reason> {
        let words = words.to_ascii_lowercase();
        if words.contains("no space left") || words.contains("disk quota exceeded") {
            return Some(Reason::NoSpace);
        }
        let missing = ["no such file", "not found", "permission denied"].iter().any(|why| words.contains(why));
        (words.contains("/bin/sh") && missing).then_some(Reason::NoShell)
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

impl Refusal {
    pub fn of_start(error: &Error) -> Refusal {
        let words = words(error);
        let reason = Reason::of(&words).unwrap_or(Reason::StartFailed);
        let info = match reason {
            Reason::NoShell => format!("The image has no shell at /bin/sh, which command lines need: {words}"),
            _ => format!("The engine does not start it: {words}"),
        };
        Refusal { reason, info }
    }
}

impl From<NoEngine> for Refusal {
    fn from(none: NoEngine) -> Refusal {
        let info = format!(
            "The job asks for a container, and on its node {none}. Install Docker or Podman there; or the operator of the \
             server can allow such jobs to run on the host, without their image, with `corro up --no-containers`"
        );
        Refusal { reason: Reason::NoEngine, info }
    }
}

/// What the engine said, without the words around it.
pub fn words(error: &Error) -> String {
    let words = match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        other => task_errors::chain(other),
    };
    words.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_words_tell_the_reason() {
        let check = |words: &str, reason| assert_eq!(Reason::of(words), reason, "{words}");
        check("write /var/lib/x: no space left on device", Some(Reason::NoSpace));
        check("exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown", Some(Reason::NoShell));
        check("pull access denied for x, repository does not exist", None);
        check("manifest for x:1 not found: manifest unknown", None);
        let error = Error::DockerResponseServerError { status_code: 500, message: "error setting rlimits\n".into() };
        let refusal = Refusal::of_start(&error);
        assert_eq!(refusal.info, "The engine does not start it: error setting rlimits");
        assert_eq!(refusal.reason, Reason::StartFailed);
    }
}
