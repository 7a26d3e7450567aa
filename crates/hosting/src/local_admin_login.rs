//! The administrator's login of a server on this machine. The server stores it in its data directory, encrypted with the master key;
//! a user who can read both gets a profile again after `corro logout` or after losing it. Never creates or changes a login.

use std::fmt;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corro_client::{Profile, profile};
use corro_model::Secret;
use corro_server::admin_login_file;

use crate::HostingError;
use crate::data_dir::DataDir;
use crate::server_args::EmbeddedServerArgs;

/// Outcome of [`lock_data_dir`].
pub enum LockOutcome {
    Locked(DataDir),
    LoggedIn(RestoredLogin),
}

/// A login that was restored from the data directory of a server that already runs.
pub struct RestoredLogin {
    data: PathBuf,
    profile: PathBuf,
    url: String,
}

impl fmt::Display for RestoredLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (data, profile) = (self.data.display(), self.profile.display());
        write!(
            f,
            "Corro already runs on {data} and listens on {}.\nYou are logged in to it again: {profile} is written.",
            self.url
        )
    }
}

/// A server on this machine that accepts connections, as seen by a user without a profile.
#[derive(Debug, PartialEq, Eq)]
pub struct LocalServer {
    pub url: String,
    /// Whether this user can read the administrator's login in the data directory.
    pub has_readable_login: bool,
}

/// Locks the data directory. If a running server holds the lock and this user has no profile, logs the user in to that server instead.
pub fn lock_data_dir(args: &EmbeddedServerArgs) -> Result<LockOutcome, HostingError> {
    let path = args.data_path()?;
    match DataDir::lock(&path) {
        Ok(data) => Ok(LockOutcome::Locked(data)),
        Err(error) => match restore_profile(&path, &profile::config_dir()?)? {
            Some((profile, url)) => Ok(LockOutcome::LoggedIn(RestoredLogin { data: path, profile, url })),
            None => Err(error),
        },
    }
}

/// Stores the administrator's login in the data directory.
pub fn save(login: &Profile, data: &Path) -> Result<(), HostingError> {
    let text = serde_json::to_string(login).map_err(HostingError::EncodeLogin)?;
    admin_login_file::save(data, &Secret::new(text)).map_err(HostingError::SaveLogin)
}

/// The server of the default data directory, if it accepts connections.
pub fn find_local_server(config_dir: &Path) -> Option<LocalServer> {
    let data = config_dir.join("data");
    let login = load(&data);
    let has_readable_login = login.is_some();
    let url = login.map(|profile| profile.server).or_else(|| fs::read_to_string(data.join("url")).ok())?;
    is_listening(&url).then_some(LocalServer { url, has_readable_login })
}

/// Whether a TCP connection to the server's address succeeds. The URL must hold an IP address, as local ones do.
pub fn is_listening(server: &str) -> bool {
    let address = server.split_once("://").and_then(|(_, address)| address.parse().ok());
    address.is_some_and(|address| TcpStream::connect_timeout(&address, PROBE_TIMEOUT).is_ok())
}

const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// Writes the stored login as the user's profile and returns its path and the server's URL. An existing profile is never replaced: it is the
/// user's choice of a server.
pub fn restore_profile(data: &Path, config_dir: &Path) -> Result<Option<(PathBuf, String)>, HostingError> {
    if profile::path_in(config_dir).exists() {
        return Ok(None);
    }
    match load(data).filter(|profile| is_listening(&profile.server)) {
        Some(profile) => Ok(Some((profile.save(config_dir)?, profile.server))),
        None => Ok(None),
    }
}

/// The login of the server of a data directory, if this user can read it.
pub fn load(data: &Path) -> Option<Profile> {
    let stored: Profile = serde_json::from_str(admin_login_file::load(data)?.expose()).ok()?;
    // The directory may have been moved since the login was stored.
    Some(Profile { data_directory: data.to_str().map(str::to_owned), ..stored })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_restored_while_the_server_listens_and_there_is_no_other() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let data = dir.path().join("data");
        assert_eq!(find_local_server(dir.path()), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        fs::create_dir(&data).expect("made");
        fs::write(data.join("url"), &url).expect("written");
        assert_eq!(find_local_server(dir.path()), Some(LocalServer { url: url.clone(), has_readable_login: false }));
        assert!(restore_profile(&data, dir.path()).expect("readable").is_none(), "no login is stored");
        let login = Profile {
            server: url.clone(),
            subscription: "s".into(),
            tenant: "t".into(),
            client_id: "c".into(),
            client_secret: Secret::new("hush"),
            certificate_authority: None,
            data_directory: data.to_str().map(str::to_owned),
        };
        corro_store::Vault::open(&data.join("master.key")).expect("a key");
        save(&login, &data).expect("saved");
        assert_eq!(find_local_server(dir.path()), Some(LocalServer { url, has_readable_login: true }));
        assert!(restore_profile(&data, dir.path()).expect("readable").is_some());
        assert_eq!(Profile::read(dir.path()).expect("written"), login);
        assert!(restore_profile(&data, dir.path()).expect("readable").is_none(), "there is a profile");
        fs::remove_file(profile::path_in(dir.path())).expect("removed");
        drop(listener);
        assert!(restore_profile(&data, dir.path()).expect("readable").is_none(), "nobody listens");
        assert_eq!(find_local_server(dir.path()), None);
    }
}
