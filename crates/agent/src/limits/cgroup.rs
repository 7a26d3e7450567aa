//! One cgroup of a node for one controller: created, given a limit, removed. With cgroup v2 the cgroups of all
//! controllers are the same directory. Makes no decisions.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup_path::{CgroupParent, find_parent};
use super::controller::{self, CgroupVersion, Controller};

/// Attempts to remove a cgroup. It can be removed once its last process is reaped, which takes milliseconds.
const REMOVE_ATTEMPTS: u32 = 100;
const REMOVE_RETRY_DELAY: Duration = Duration::from_millis(10);

/// A cgroup that this agent created or reused.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    version: CgroupVersion,
    controller: Controller,
}

impl Cgroup {
    /// Creates the cgroup, or reuses the one that an earlier agent left. The error says why that failed.
    pub fn make(name: &str, controller: Controller) -> Result<Cgroup, String> {
        Cgroup::make_at(parent_for(controller)?, name, controller)
    }

    pub(super) fn make_at(parent: CgroupParent, name: &str, controller: Controller) -> Result<Cgroup, String> {
        let CgroupParent { directory, version } = parent;
        let path = directory.join(name);
        let is_new = match fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(format!("cannot create a cgroup in {}: {error}", directory.display())),
        };
        let cgroup = Cgroup { path, version, controller };
        match cgroup.enable(&directory).and_then(|()| cgroup.write(None)) {
            Ok(()) => Ok(cgroup),
            Err(error) => {
                if is_new {
                    let _ = fs::remove_dir(&cgroup.path);
                }
                let (path, name) = (cgroup.path.display(), controller.name());
                Err(format!("cannot set a limit in cgroup {path} ({name}): {error}"))
            }
        }
    }

    /// The file `cgroup.procs`: a process whose id is written there moves into the cgroup.
    pub fn procs_file(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Sets the limit, or removes it with `None`. Always written, since a job as root may have changed it. The error
    /// says what was refused.
    pub fn set(&self, limit: Option<u64>) -> Result<(), String> {
        self.write(limit).map_err(|error| format!("cannot write the limit to {}: {error}", self.path.display()))
    }

    /// Number of processes in it that the OOM killer has killed.
    pub fn oom_kills(&self) -> u64 {
        controller::oom_kills(
            &fs::read_to_string(self.path.join(controller::oom_kills_file(self.version))).unwrap_or_default(),
        )
    }

    /// Number of forks and clones that the limit refused.
    pub fn refused_starts(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(controller::PIDS_EVENTS_FILE)).unwrap_or_default();
        controller::refused_starts(&text)
    }

    /// Removes the cgroup. Blocks until its processes have ended. A cgroup that cannot be removed is found by the
    /// node's next agent.
    pub fn remove(&self) -> io::Result<()> {
        remove_empty(&self.path)
    }

    /// Enables the controller. With v2 a cgroup has only the controllers that its parent passes on in
    /// `cgroup.subtree_control`.
    fn enable(&self, above: &Path) -> io::Result<()> {
        let (file, _) = self.controller.limit_file(self.version, None);
        match self.version == CgroupVersion::V1 || self.path.join(file).exists() {
            true => Ok(()),
            false => fs::write(above.join("cgroup.subtree_control"), format!("+{}", self.controller.name())),
        }
    }

    fn write(&self, limit: Option<u64>) -> io::Result<()> {
        let (file, text) = self.controller.limit_file(self.version, limit);
        // Opened without `create`: outside of a cgroup file system it would create a plain file.
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(self.path.join(file))?;
        file.write_all(text.as_bytes())
    }
}

/// Path of the cgroup with this name, if cgroups can be created here.
pub fn path(name: &str, controller: Controller) -> Option<PathBuf> {
    parent_for(controller).ok().map(|parent| parent.directory.join(name))
}

/// Removes the cgroup with this name. No error if it does not exist.
pub fn remove(name: &str, controller: Controller) -> io::Result<()> {
    match parent_for(controller) {
        Ok(parent) => remove_empty(&parent.directory.join(name)),
        Err(_) => Ok(()),
    }
}

fn parent_for(controller: Controller) -> Result<CgroupParent, String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).map_err(|error| error.to_string());
    let parent = find_parent(&read("cgroup")?, &read("mountinfo")?, controller);
    let parent = parent.ok_or_else(|| format!("this machine has no cgroup controller '{}'", controller.name()))?;
    match parent.directory.is_dir() {
        true => Ok(parent),
        false => Err(format!("the cgroup {} is not visible here", parent.directory.display())),
    }
}

/// Retries until the last process has been reaped.
fn remove_empty(cgroup: &Path) -> io::Result<()> {
    for _ in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir(cgroup) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(REMOVE_RETRY_DELAY),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Err(ErrorKind::ResourceBusy.into())
}
