//! The systemd unit of a host. It holds no secret: the machine has joined when it is written.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::failure::Failure;
use crate::session::home_dir;

const NAME: &str = "corro-host.service";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitKind {
    /// For this user, without root; 'loginctl enable-linger' lets it run while nobody is logged in
    User,
    /// For the machine
    System,
}

impl UnitKind {
    pub fn enable(self) -> &'static str {
        match self {
            UnitKind::User => "systemctl --user enable --now corro-host",
            UnitKind::System => "systemctl enable --now corro-host",
        }
    }
}

/// This program, where the next start finds it.
pub fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::new(format!("cannot find this program's file: {error}")))
}

pub fn text(kind: UnitKind, program: &Path, words: &[OsString]) -> Result<String, Failure> {
    let mut command = quoted(program.as_os_str().to_owned())?;
    command.push_str(" agent join");
    for word in words {
        command.push(' ');
        command.push_str(&quoted(word.clone())?);
    }
    let target = match kind {
        UnitKind::User => "default.target",
        UnitKind::System => "multi-user.target",
    };
    Ok(format!(
        "[Unit]\nDescription=Corro host: carries nodes of clusters\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nExecStart={command}\n\
         # A new version of the program takes over; nodes and their jobs go on.\nExecReload=/bin/kill -USR2 $MAINPID\n\
         # A host that was removed ends well, and is not started again.\nRestart=on-failure\nRestartSec=5\n\
         # The host ends its nodes itself; should it crash, they go on until it is back.\nKillMode=process\nTimeoutStopSec=90\nDelegate=yes\n\n\
         [Install]\nWantedBy={target}\n"
    ))
}

pub fn write(kind: UnitKind, text: &str) -> Result<PathBuf, Failure> {
    let directory = match kind {
        UnitKind::User => home_dir()?.join(".config/systemd/user"),
        UnitKind::System => PathBuf::from("/etc/systemd/system"),
    };
    let path = directory.join(NAME);
    let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| {
        let failure = Failure::new(format!("cannot write {}: {error}", path.display()));
        match kind {
            UnitKind::System => failure.hint("that needs root; '--systemd user' does not"),
            UnitKind::User => failure,
        }
    })?;
    Ok(path)
}

/// One word as systemd reads it.
fn quoted(word: OsString) -> Result<String, Failure> {
    let Some(word) = word.to_str().filter(|word| !word.chars().any(char::is_control)) else {
        return Err(Failure::usage(format!(
            "'{}' cannot stand in a systemd unit",
            word.to_string_lossy().escape_debug()
        )));
    };
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    Ok(format!("\"{escaped}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_program_as_they_are() {
        let words = ["--data".into(), "/srv/a b/100%$x\"".into()];
        let text = text(UnitKind::User, Path::new("/usr/bin/corro"), &words).expect("a unit");
        assert!(
            text.contains("ExecStart=\"/usr/bin/corro\" agent join \"--data\" \"/srv/a b/100%%$$x\\\"\"\n"),
            "{text}"
        );
        assert!(text.ends_with("WantedBy=default.target\n") && !text.contains("token"), "{text}");
        assert!(quoted("a\nExecStart=evil".into()).is_err());
    }
}
