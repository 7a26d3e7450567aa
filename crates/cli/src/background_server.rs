//! Servers in the background on this machine: starts one ([`start_detached`]), and makes sure that a command which needs a server has one
//! ([`ensure_server`]). Of two starts at the same time one starts the server and the other one finds it. A server of another machine is never replaced.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use corro_client::{Profile, ProfileError, profile};
use corro_hosting::background::{self, BackgroundError, StartOutcome};
use corro_hosting::local_admin_login::{self, is_listening};
use corro_hosting::server_log::LOG_FILE;
use corro_hosting::server_process::FindServerError;
use corro_hosting::server_record::RunningServer;

use crate::error::CliError;
use crate::progress::Spinner;
use crate::prompt;
use crate::session::env;
use crate::stdio::note;

/// Option of `corro up` with which the server process in the background is started.
pub const IN_BACKGROUND: &str = "in-background";

const QUESTION: &str = "No server is running. Start one in the background on this machine?";

/// What [`start_detached`] did.
pub enum DetachedServer {
    /// The summary of the new server.
    Started { summary: String },
    /// A server ran already.
    Found(RunningServer),
}

/// Starts a server with the command line `up_args`, which begins with `up`, unless one runs on `data`, the directory that they name. Returns when it is
/// ready.
pub async fn start_detached(mut up_args: Vec<OsString>, data: &Path) -> Result<DetachedServer, CliError> {
    let spinner = Spinner::start("Starting the server");
    if let Some(server) = find_ready(data).await? {
        return Ok(DetachedServer::Found(server));
    }
    up_args.push(format!("--{IN_BACKGROUND}").into());
    let (error, output) = match background::start(&up_args).await {
        Ok(StartOutcome::Ready { summary, warnings }) => {
            drop(spinner);
            let _ = io::stderr().write_all(warnings.as_bytes());
            return Ok(DetachedServer::Started { summary });
        }
        Ok(StartOutcome::Failed { exit, error }) => (CliError::silent(exit.max(1)), error),
        Err(error) => start_error(error, data),
    };
    // Another start may have been faster.
    if let Some(server) = find_ready(data).await.ok().flatten() {
        return Ok(DetachedServer::Found(server));
    }
    drop(spinner);
    let _ = io::stderr().write_all(output.as_bytes());
    Err(error)
}

/// The server of a data directory, once it is ready. Logs this user in to it if there is no login.
async fn find_ready(data: &Path) -> Result<Option<RunningServer>, CliError> {
    let found = match background::wait_until_ready(data).await {
        Ok(found) => found,
        // A directory that cannot be used is refused by the server itself, in its own words.
        Err(BackgroundError::Find(FindServerError::Lock { .. })) => None,
        Err(error) => return Err(start_error(error, data).0),
    };
    if let Some(server) = &found
        && let Some((profile, url)) = local_admin_login::restore_profile(&server.data, &profile::config_dir()?)?
    {
        note(format_args!("You are logged in to {url} again: {} is written.", profile.display()));
    }
    Ok(found)
}

/// The error, and what the server process wrote.
fn start_error(error: BackgroundError, data: &Path) -> (CliError, String) {
    let cli_error = CliError::from_error(&error);
    let log = || format!("its log is {}", data.join(LOG_FILE).display());
    match error {
        BackgroundError::Interrupted => (CliError { exit: 130, ..cli_error }, String::new()),
        BackgroundError::Killed { error, .. } => (cli_error.hint(log()), error),
        BackgroundError::Timeout => (cli_error.hint(log()), String::new()),
        BackgroundError::Find(_) => (cli_error.hint("choose another data directory with --data DIR"), String::new()),
        BackgroundError::Spawn(_) => (cli_error, String::new()),
    }
}

/// The data directory that a command is about: the given one, else that of the server that the profile names if it is on this machine, else the default.
pub fn data_directory(given: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let config_dir = profile::config_dir()?;
    let of_profile = Profile::load(&config_dir).ok().and_then(|profile| profile.data_directory);
    Ok(of_profile.map_or_else(|| config_dir.join("data"), PathBuf::from))
}

/// Makes sure that the server of this user's profile runs, if it is one of this machine. Without a profile or a running server it asks whether to start
/// one; with `yes` it starts one without asking. Servers of other machines are not looked at.
pub async fn ensure_server(yes: bool) -> Result<(), CliError> {
    let config_dir = profile::config_dir()?;
    let default_data = config_dir.join("data");
    let (up_args, data) = match plan_start(Profile::load(&config_dir), env("CORRO_SERVER").as_deref(), &default_data) {
        StartPlan::Nothing => return Ok(()),
        StartPlan::Start { unless_listening: Some(url), .. } if is_listening(&url) => return Ok(()),
        StartPlan::Start { up_args, data, .. } => (up_args, data),
    };
    // One that runs or starts is used without a question.
    if find_ready(&data).await?.is_some() {
        return Ok(());
    }
    if !yes {
        let no_server = || {
            CliError::new("no server is running")
                .hint("start one on this machine with 'corro up --detach' or the option --yes, or log in to another with 'corro login'")
        };
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(no_server());
        }
        if !prompt::ask_unless_no(QUESTION).map_err(|error| CliError::from_error(&error))? {
            return Err(no_server());
        }
    }
    if let DetachedServer::Started { summary } = start_detached(up_args, &data).await? {
        let url = summary.split_whitespace().find(|word| word.contains("://")).unwrap_or_default();
        note(format_args!("A server runs in the background now: {url}. Stop it with 'corro stop'."));
    }
    Ok(())
}

/// Whether a server may have to be started for this user.
#[derive(Debug, PartialEq, Eq)]
enum StartPlan {
    /// The server is not ours to start, or the command reports the problem itself.
    Nothing,
    Start {
        /// Address at which the server answers if it runs.
        unless_listening: Option<String>,
        up_args: Vec<OsString>,
        data: PathBuf,
    },
}

/// `configured` is `CORRO_SERVER`. A server that is started again listens where the profile says.
fn plan_start(profile: Result<Profile, ProfileError>, configured: Option<&str>, default_data: &Path) -> StartPlan {
    let profile = match profile {
        _ if configured.is_some() => return StartPlan::Nothing,
        Ok(profile) => profile,
        Err(ProfileError::Missing { .. }) => {
            let up_args = vec!["up".into()];
            return StartPlan::Start { unless_listening: None, up_args, data: default_data.to_owned() };
        }
        Err(_) => return StartPlan::Nothing,
    };
    // With https the server was started with names or certificates that are not known here.
    let Some(address) = profile.server.strip_prefix("http://").and_then(|address| address.parse::<SocketAddr>().ok())
    else {
        return StartPlan::Nothing;
    };
    if !address.ip().is_loopback() {
        return StartPlan::Nothing;
    }
    let data = profile.data_directory.map_or_else(|| default_data.to_owned(), PathBuf::from);
    let up_args = ["up".into(), "--listen".into(), address.to_string().into(), "--data".into(), data.clone().into()];
    StartPlan::Start { unless_listening: Some(profile.server), up_args: up_args.into(), data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::Secret;

    fn profile(server: &str, data: Option<&str>) -> Profile {
        Profile {
            server: server.to_owned(),
            subscription: "s".to_owned(),
            tenant: "t".to_owned(),
            client_id: "c".to_owned(),
            client_secret: Secret::new("hush"),
            certificate_authority: None,
            data_directory: data.map(str::to_owned),
        }
    }

    fn plan(profile: Result<Profile, ProfileError>, configured: Option<&str>) -> Option<(Option<String>, String)> {
        match plan_start(profile, configured, Path::new("/home/me/.corro/data")) {
            StartPlan::Nothing => None,
            StartPlan::Start { unless_listening, up_args, .. } => {
                let words: Vec<String> = up_args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
                Some((unless_listening, words.join(" ")))
            }
        }
    }

    #[test]
    fn a_server_of_this_machine_is_started_as_it_was() {
        let url = "http://127.0.0.1:9000";
        let words = "up --listen 127.0.0.1:9000 --data /srv/d";
        assert_eq!(plan(Ok(profile(url, Some("/srv/d"))), None), Some((Some(url.to_owned()), words.to_owned())));
        let (_, words) = plan(Ok(profile("http://[::1]:1", None)), None).expect("a start");
        assert_eq!(words, "up --listen [::1]:1 --data /home/me/.corro/data");
        let missing = || Err(ProfileError::Missing { path: "p".into() });
        assert_eq!(plan(missing(), None), Some((None, "up".to_owned())));
    }

    #[test]
    fn no_other_server_is_started() {
        let missing = || Err(ProfileError::Missing { path: "p".into() });
        assert_eq!(plan(missing(), Some("http://127.0.0.1:1")), None);
        for server in ["https://127.0.0.1:8470", "http://10.1.2.3:8470", "https://gpu-box:8470", "http://gpu-box:8470"]
        {
            assert_eq!(plan(Ok(profile(server, None)), None), None, "{server}");
        }
        assert_eq!(plan(Err(ProfileError::NoHome), None), None);
    }
}
