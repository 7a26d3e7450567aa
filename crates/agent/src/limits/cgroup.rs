//! One control group of a node, for one control: made, given limits, removed. Only `limits` enters here. Decides nothing; in
//! version two the groups of both controls are the same one.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup_path::{Place, place};
use super::controller::{self, Control, Version};

/// After its last process has ended a group can be removed; that takes milliseconds.
const REMOVED_WITHIN: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    version: Version,
    control: Control,
}

impl Group {
    /// Makes the group of that name, or finds the one that an earlier agent left. An error says why there is none.
    pub fn make(name: &str, control: Control) -> Result<Group, String> {
        Group::make_at(found(control)?, name, control)
    }

    pub(super) fn make_at(place: Place, name: &str, control: Control) -> Result<Group, String> {
        let Place { directory, version } = place;
        let path = directory.join(name);
        let is_new = match fs::create_dir(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(format!("no control group can be made in {}: {error}", directory.display())),
        };
        let group = Group { path, version, control };
        match group.enable(&directory).and_then(|()| group.write(None)) {
            Ok(()) => Ok(group),
            Err(error) => {
                if is_new {
                    let _ = fs::remove_dir(&group.path);
                }
                let (path, name) = (group.path.display(), control.name());
                Err(format!("the control group {path} takes no limit ({name}): {error}"))
            }
        }
    }

    /// Whoever writes a process's number there puts it into the group.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Sets the limit, whatever it was: nobody knows what the last job did to it. An error says what was refused.
    pub fn set(&self, limit: Option<u64>) -> Result<(), String> {
        self.write(limit).map_err(|error| format!("{} refused it: {error}", self.path.display()))
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn kills(&self) -> u64 {
        controller::kills(&fs::read_to_string(self.path.join(controller::kills_file(self.version))).unwrap_or_default())
    }

    /// How many processes and threads were not started because of the limit.
    pub fn refused_starts(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(controller::REFUSED_STARTS_FILE)).unwrap_or_default();
        controller::refused_starts(&text)
    }

    /// Blocks until what was in it has ended. One that cannot be removed now is found by the node's next agent.
    pub fn remove(&self) -> io::Result<()> {
        remove_empty(&self.path)
    }

    /// In version two a group has those controls that the one above it gives out.
    fn enable(&self, above: &Path) -> io::Result<()> {
        let (file, _) = self.control.setting(self.version, None);
        match self.version == Version::One || self.path.join(file).exists() {
            true => Ok(()),
            false => fs::write(above.join("cgroup.subtree_control"), format!("+{}", self.control.name())),
        }
    }

    fn write(&self, limit: Option<u64>) -> io::Result<()> {
        let (file, text) = self.control.setting(self.version, limit);
        // Must be there: elsewhere than in a group it would be made.
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(self.path.join(file))?;
        file.write_all(text.as_bytes())
    }
}

/// The directory of the group of that name, if there can be one.
pub fn path(name: &str, control: Control) -> Option<PathBuf> {
    found(control).ok().map(|place| place.directory.join(name))
}

/// Removes the group of that name; none is none.
pub fn remove(name: &str, control: Control) -> io::Result<()> {
    match found(control) {
        Ok(place) => remove_empty(&place.directory.join(name)),
        Err(_) => Ok(()),
    }
}

fn found(control: Control) -> Result<Place, String> {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).map_err(|error| error.to_string());
    let place = place(&read("cgroup")?, &read("mountinfo")?, control);
    let place = place.ok_or_else(|| format!("this machine has no control groups for it ({})", control.name()))?;
    match place.directory.is_dir() {
        true => Ok(place),
        false => Err(format!("the control group {} is not seen here", place.directory.display())),
    }
}

/// Waits for the last of its processes, which is on its way out.
fn remove_empty(group: &Path) -> io::Result<()> {
    for _ in 0..REMOVED_WITHIN {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
    Err(ErrorKind::ResourceBusy.into())
}
