//! `corro logout`: removes the profile of this user.

use std::io;

use corro_client::{Profile, profile};
use corro_hosting::local_admin_login::{LocalServer, find_local_server};

use crate::error::CliError;
use crate::stdio::note;

pub fn run() -> Result<(), CliError> {
    let dir = profile::config_dir()?;
    let (path, server) = (profile::path_in(&dir), Profile::read(&dir).map(|profile| profile.server).ok());
    match std::fs::remove_file(&path) {
        Ok(()) => {
            let server_text = server.as_ref().map_or_else(String::new, |server| format!(" of {server}"));
            note(format_args!("Logged out{server_text}: {} is removed.", path.display()));
            note(login_hint(server.as_deref(), find_local_server(&dir).as_ref()));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CliError::new("not logged in")),
        Err(error) => Err(CliError::new(format!("cannot remove {}", path.display())).cause(error)),
    }
}

/// How to log in to `server` again.
fn login_hint(server: Option<&str>, local: Option<&LocalServer>) -> &'static str {
    match local.filter(|local| server == Some(local.url.as_str())) {
        Some(LocalServer { has_readable_login: true, .. }) => {
            "The server still runs on this machine: 'corro up' logs you in again."
        }
        Some(_) => {
            "The server still runs on this machine: stop it and start it again with 'corro up', which logs you in."
        }
        None => {
            "To log in again, use 'corro login', or 'corro up' with the server's --data DIR if it is yours and on this machine."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_depends_on_where_the_server_runs() {
        let local = |has_readable_login| Some(LocalServer { url: "http://127.0.0.1:1".to_owned(), has_readable_login });
        for (server, local, expected) in [
            ("http://127.0.0.1:1", local(true), "'corro up' logs you in again"),
            ("http://127.0.0.1:1", local(false), "stop it and start it again"),
            ("https://box:1", local(true), "use 'corro login'"),
            ("https://box:1", None, "use 'corro login'"),
        ] {
            let said = login_hint(Some(server), local.as_ref());
            assert!(said.contains(expected), "{server}: {said}");
        }
    }
}
