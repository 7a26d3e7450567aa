//! Python wheels that the server offers, cached on this node and passed to `pip` as a link directory. Fetches new
//! wheels and removes those that are no longer offered. Failures never fail a job, since most jobs need no wheels.
//! Writes to the node's wheel directory only.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use corro_base::error_chain;
use reqwest::StatusCode;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};
use thiserror::Error;
use tokio::task::spawn_blocking;

use corro_model::node::{WHEELS_PATH, Wheel, bearer};

use crate::fs::dirfd;
use crate::identity::{self, IdentityError};
use crate::task::Task;
use crate::task::control::{TaskAbort, wait_for_stop};
use crate::task::job_env::JobEnv;
use crate::task::node_context::NodeContext;

const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for one wheel over a slow connection.
const FETCH_TIMEOUT: Duration = Duration::from_secs(300);
/// Limit of the list's size; more than the longest valid list.
const MAX_LIST_BYTES: usize = 64 * 1024;

#[derive(Debug, Error)]
enum WheelError {
    #[error(transparent)]
    Client(#[from] IdentityError),
    #[error("the request failed")]
    Request(#[from] reqwest::Error),
    #[error("the server answered {0}")]
    Refused(StatusCode),
    #[error("the server's response is invalid: does it have another version?")]
    BadResponse,
    #[error("cannot write into the node's directory")]
    Disk(#[from] io::Error),
}

/// The wheels that the server offers, all present on this node.
#[derive(Debug, Default)]
pub struct OfferedWheels {
    pub wheels: Vec<Wheel>,
    pub directory: PathBuf,
}

impl OfferedWheels {
    /// The newest wheel of Horovod.
    pub fn horovod(&self) -> Option<PathBuf> {
        let horovod = self.wheels.iter().filter(|wheel| wheel.name.starts_with("horovod-"));
        horovod.max_by_key(|wheel| wheel.modified).map(|wheel| self.directory.join(&wheel.name))
    }
}

/// Adds the server's wheels to the places where `pip` looks, and returns them.
pub async fn add_to_pip(task: &Task, job_env: &mut JobEnv) -> Result<OfferedWheels, TaskAbort> {
    let mut control = task.control.clone();
    let found = tokio::select! {
        found = sync_wheels(&task.context) => found,
        _ = wait_for_stop(&mut control, None) => return Err(TaskAbort::Stopped),
    };
    match found {
        Ok(offered) if offered.wheels.is_empty() => Ok(offered),
        Ok(offered) => {
            let names: Vec<&str> = offered.wheels.iter().map(|wheel| wheel.name.as_str()).collect();
            let directory = &offered.directory;
            task.log.line(format_args!("pip finds these wheels in {}: {}", directory.display(), names.join(", ")));
            let existing = job_env.environment.variables.get(FIND_LINKS).map(String::as_str);
            let links = find_links(directory, existing);
            job_env.environment.variables.insert(FIND_LINKS.to_owned(), links);
            Ok(offered)
        }
        Err(error) => {
            task.log.line(format_args!("Could not fetch the server's Python wheels: {}", error_chain::join(&error)));
            Ok(OfferedWheels::default())
        }
    }
}

const FIND_LINKS: &str = "PIP_FIND_LINKS";

/// Value of `PIP_FIND_LINKS`: existing entries, then the directory as a URL, since entries are separated by spaces.
fn find_links(directory: &Path, existing: Option<&str>) -> String {
    let own = directory.to_string_lossy().replace('%', "%25").replace(' ', "%20");
    match existing.map(str::trim).filter(|existing| !existing.is_empty()) {
        Some(existing) => format!("{existing} file://{own}"),
        None => format!("file://{own}"),
    }
}

/// Fetches missing wheels; returns the offered wheels, all present now.
async fn sync_wheels(context: &NodeContext) -> Result<OfferedWheels, WheelError> {
    let client = identity::client(&context.config, FETCH_TIMEOUT)?;
    let request =
        |path: &str| client.get(context.config.http_url(path)).header("authorization", bearer(&context.credential));
    let response = request(WHEELS_PATH).timeout(LIST_TIMEOUT).send().await?;
    match response.status() {
        StatusCode::OK => {}
        // The server offers no wheels.
        StatusCode::NOT_FOUND => return Ok(OfferedWheels::default()),
        status => return Err(WheelError::Refused(status)),
    }
    let offered = response.bytes().await?;
    let offered: Vec<Wheel> = match offered.len() {
        0..=MAX_LIST_BYTES => serde_json::from_slice(&offered).map_err(|_| WheelError::BadResponse)?,
        _ => return Err(WheelError::BadResponse),
    };
    let is_valid = |wheel: &Wheel| Wheel::is_name(&wheel.name) && wheel.bytes <= Wheel::MAX_BYTES;
    if offered.len() > Wheel::MAX_COUNT || !offered.iter().all(is_valid) {
        return Err(WheelError::BadResponse);
    }
    let directories = Arc::clone(&context.directories);
    let listed = offered.clone();
    let work = spawn_blocking(move || {
        let (directory, path) = directories.wheels()?;
        let missing = remove_stale(&directory, &listed)?;
        Ok::<_, io::Error>((directory, path, missing))
    });
    let (directory, path, missing) = work.await.map_err(io::Error::other)??;
    for wheel in missing {
        let mut response = request(&format!("{WHEELS_PATH}/{}", wheel.name)).send().await?;
        if response.status() != StatusCode::OK {
            return Err(WheelError::Refused(response.status()));
        }
        let mut partial = PartialWheel::begin(&directory, &wheel)?;
        while let Some(piece) = response.chunk().await? {
            partial.write(&piece)?;
        }
        partial.finish()?;
    }
    Ok(OfferedWheels { wheels: offered, directory: path })
}

/// Removes wheels that are no longer offered or have changed; returns those to fetch.
fn remove_stale(directory: &OwnedFd, offered: &[Wheel]) -> io::Result<Vec<Wheel>> {
    let is_there = |wheel: &&Wheel| {
        statat(directory, &wheel.name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
            let modified = stat.st_mtime as u64 * 1_000_000_000 + stat.st_mtime_nsec;
            stat.st_size as u64 == wheel.bytes && modified == wheel.modified
        })
    };
    let there: Vec<&str> = offered.iter().filter(is_there).map(|wheel| wheel.name.as_str()).collect();
    for name in dirfd::names(directory)? {
        let name = name.to_string_lossy();
        if !there.contains(&name.as_ref()) {
            dirfd::remove(directory, &name)?;
        }
    }
    Ok(offered.iter().filter(|wheel| !there.contains(&wheel.name.as_str())).cloned().collect())
}

/// A wheel being downloaded; renamed to its name when complete.
struct PartialWheel<'a> {
    directory: &'a OwnedFd,
    wheel: &'a Wheel,
    file: File,
    n_missing: u64,
}

const PARTIAL_FILE: &str = "draft";

impl<'a> PartialWheel<'a> {
    fn begin(directory: &'a OwnedFd, wheel: &'a Wheel) -> io::Result<Self> {
        let _ = unlinkat(directory, PARTIAL_FILE, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(directory, PARTIAL_FILE, flags, Mode::from_raw_mode(0o644))?);
        Ok(Self { directory, wheel, file, n_missing: wheel.bytes })
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), WheelError> {
        self.n_missing = self.n_missing.checked_sub(piece.len() as u64).ok_or(WheelError::BadResponse)?;
        Ok(self.file.write_all(piece)?)
    }

    fn finish(self) -> Result<(), WheelError> {
        if self.n_missing > 0 {
            return Err(WheelError::BadResponse);
        }
        // The modification time distinguishes versions with the same name.
        self.file.set_modified(UNIX_EPOCH + Duration::from_nanos(self.wheel.modified))?;
        Ok(renameat(self.directory, PARTIAL_FILE, self.directory, &self.wheel.name).map_err(io::Error::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_links_is_valid_for_pip() {
        let own = Path::new("/srv/my nodes/100%/wheels");
        assert_eq!(find_links(own, None), "file:///srv/my%20nodes/100%25/wheels");
        assert_eq!(find_links(own, Some(" /mine ")), "/mine file:///srv/my%20nodes/100%25/wheels");
    }

    #[test]
    fn stale_wheels_are_removed() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let directory = dirfd::open_directory(base.path()).expect("it is there");
        let wheel = |name: &str, modified| Wheel { name: name.into(), bytes: 3, modified };
        let keep = |wheel: &Wheel| {
            let mut partial = PartialWheel::begin(&directory, wheel).expect("a draft");
            partial.write(b"abc").expect("it fits");
            partial.finish().expect("it is whole");
        };
        let (kept, changed, gone) = (wheel("a.whl", 1_700_000_000_123_456_789), wheel("b.whl", 5), wheel("c.whl", 6));
        [&kept, &changed, &gone].into_iter().for_each(keep);
        std::fs::create_dir(base.path().join("d.whl")).expect("something else");
        let newer = wheel("b.whl", 7);
        assert_eq!(remove_stale(&directory, &[kept, newer.clone()]).expect("it can be read"), [newer]);
        let names: Vec<_> = std::fs::read_dir(base.path()).expect("readable").flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(names[0].file_name(), "a.whl");
    }

    #[test]
    fn a_wheel_with_a_wrong_size_is_not_kept() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let directory = dirfd::open_directory(base.path()).expect("it is there");
        let wheel = Wheel { name: "a.whl".into(), bytes: 3, modified: 1 };
        let mut short = PartialWheel::begin(&directory, &wheel).expect("a draft");
        short.write(b"ab").expect("it fits");
        assert!(short.finish().is_err());
        let mut long = PartialWheel::begin(&directory, &wheel).expect("a draft in place of the last");
        assert!(long.write(b"abcd").is_err());
        assert!(!base.path().join("a.whl").exists());
    }
}
