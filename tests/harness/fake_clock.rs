//! Adjustable wall clock for the processes of a site, by libfaketime. Their monotonic clocks are the machine's.

use std::path::{Path, PathBuf};

use corro_test_support::skip;

/// Path of libfaketime, if installed.
pub fn library() -> Option<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    libraries.map(|entry| entry.path().join("faketime/libfaketime.so.1")).find(|library| library.exists())
}

pub struct FakeClock {
    dir: tempfile::TempDir,
    library: PathBuf,
}

impl FakeClock {
    /// Clock at the machine's time. `None`, with a notice, without libfaketime.
    pub fn new() -> Option<Self> {
        let Some(library) = library() else {
            skip::missing_component("no libfaketime on this machine, so no clock can be set");
            return None;
        };
        let clock = Self { dir: tempfile::tempdir().expect("a temporary directory"), library };
        clock.set("+0");
        Some(clock)
    }

    /// Sets the offset from the machine's clock: `+10d`, `-3h`. Replaced atomically, since it is read all the time.
    pub fn set(&self, shift: &str) {
        let draft = self.dir.path().join("draft");
        std::fs::write(&draft, format!("{shift}\n")).expect("a file");
        std::fs::rename(draft, self.file()).expect("it can be renamed");
    }

    /// Arguments for `Site::start_with`: environment variables of the server, which its nodes inherit.
    pub fn variables(&self) -> Vec<String> {
        vec![
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file().display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
            // File times stay the machine's.
            "NO_FAKE_STAT=1".to_owned(),
        ]
    }

    /// Whether this process has loaded the library.
    pub fn is_seen_by(pid: u32) -> bool {
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("maps"))
            .is_ok_and(|maps| maps.contains("libfaketime"))
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("shift")
    }
}
