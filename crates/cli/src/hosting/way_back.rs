//! The way back to a server that runs on this machine, for whoever has no profile (any more): `corro up` keeps the
//! administrator's login in the data directory, sealed with its master key, and gives it out again to whoever can read
//! both. Entered by `up`, `server`, `logout` and by commands that find no profile. Never makes or changes a login.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corro_client::{Profile, profile};
use corro_model::Secret;
use corro_server::admin_login_file;

use super::data_dir::DataDir;
use super::{HostingArgs, data_path};
use crate::failure::Failure;
use crate::talk::tell;

/// A server on this machine, as seen by somebody without a profile.
#[derive(Debug, PartialEq, Eq)]
pub struct Local {
    pub url: String,
    /// Whether the administrator's login lies in its data directory and can be read.
    pub can_return: bool,
}

/// Takes hold of the data directory. `None` when a server holds it and whoever starts another was only logged out of that
/// one: then they are logged in again, and told so.
pub fn hold(args: &HostingArgs) -> Result<Option<DataDir>, Failure> {
    let path = data_path(args)?;
    let held = DataDir::hold(&path);
    if held.is_err()
        && let Some((profile, url)) = log_in_again(&path, &profile::config_dir()?)?
    {
        tell(format_args!(
            "Corro already runs on {} and listens on {url}.\nYou are logged in to it again: {} is written.",
            path.display(),
            profile.display()
        ));
        return Ok(None);
    }
    held.map(Some)
}

/// Keeps the login for whoever comes back.
pub fn keep(login: &Profile, data: &Path) -> Result<(), Failure> {
    let text = serde_json::to_string(login).map_err(|error| Failure::of(&error))?;
    admin_login_file::save(data, &Secret::new(text)).map_err(|error| Failure::of(&error))
}

/// The server of the usual data directory, if it answers.
pub fn local_server(config_dir: &Path) -> Option<Local> {
    let data = config_dir.join("data");
    let kept = kept_login(&data);
    let can_return = kept.is_some();
    let url = kept.map(|profile| profile.server).or_else(|| fs::read_to_string(data.join("url")).ok())?;
    answers(&url).then_some(Local { url, can_return })
}

/// Does anybody listen there?
pub fn answers(server: &str) -> bool {
    let address = server.split_once("://").and_then(|(_, address)| address.parse().ok());
    address.is_some_and(|address| TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())
}

/// Only where no profile is: one that leads elsewhere is somebody's choice.
fn log_in_again(data: &Path, config_dir: &Path) -> Result<Option<(PathBuf, String)>, Failure> {
    if profile::path_in(config_dir).exists() {
        return Ok(None);
    }
    match kept_login(data).filter(|profile| answers(&profile.server)) {
        Some(profile) => Ok(Some((profile.save(config_dir)?, profile.server))),
        None => Ok(None),
    }
}

fn kept_login(data: &Path) -> Option<Profile> {
    serde_json::from_str(admin_login_file::load(data)?.expose()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_comes_back_while_the_server_answers_and_nobody_chose_another() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let data = dir.path().join("data");
        assert_eq!(local_server(dir.path()), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        fs::create_dir(&data).expect("made");
        fs::write(data.join("url"), &url).expect("written");
        assert_eq!(local_server(dir.path()), Some(Local { url: url.clone(), can_return: false }));
        assert!(log_in_again(&data, dir.path()).expect("readable").is_none(), "no login is kept");
        let kept = Profile {
            server: url.clone(),
            subscription: "s".into(),
            tenant: "t".into(),
            client_id: "c".into(),
            client_secret: Secret::new("hush"),
            certificate_authority: None,
        };
        corro_store::Vault::open(&data.join("master.key")).expect("a key");
        keep(&kept, &data).expect("saved");
        assert_eq!(local_server(dir.path()), Some(Local { url, can_return: true }));
        assert!(log_in_again(&data, dir.path()).expect("readable").is_some());
        assert_eq!(Profile::read(dir.path()).expect("written"), kept);
        assert!(log_in_again(&data, dir.path()).expect("readable").is_none(), "there is a profile");
        fs::remove_file(profile::path_in(dir.path())).expect("removed");
        drop(listener);
        assert!(log_in_again(&data, dir.path()).expect("readable").is_none(), "nobody listens");
        assert_eq!(local_server(dir.path()), None);
    }
}
