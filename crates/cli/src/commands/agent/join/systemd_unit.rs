//! The systemd unit of a host. It contains no token, since the machine has joined before the unit is written.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::error::CliError;
use crate::session::home_dir;

const UNIT_FILE: &str = "corro-host.service";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitKind {
    /// A unit of this user, without root. 'loginctl enable-linger' keeps it running after you log out
    User,
    /// A unit of the machine. Needs root to install
    System,
}

impl UnitKind {
    /// The command that starts the unit now and at every boot.
    pub fn enable_command(self) -> &'static str {
        match self {
            UnitKind::User => "systemctl --user enable --now corro-host",
            UnitKind::System => "systemctl enable --now corro-host",
        }
    }
}

/// Path of this program.
pub fn own_executable() -> Result<PathBuf, CliError> {
    std::env::current_exe()
        .map_err(|error| CliError::new(format!("cannot determine the path of this program: {error}")))
}

/// Content of the unit file.
pub fn text(kind: UnitKind, program: &Path, args: &[OsString]) -> Result<String, CliError> {
    let mut command = quote(program.as_os_str().to_owned())?;
    command.push_str(" agent join");
    for arg in args {
        command.push(' ');
        command.push_str(&quote(arg.clone())?);
    }
    let target = match kind {
        UnitKind::User => "default.target",
        UnitKind::System => "multi-user.target",
    };
    Ok(format!(
        "[Unit]\nDescription=Corro host: runs nodes of clusters\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nExecStart={command}\n\
         # Re-executes the program, to upgrade it; nodes and their jobs go on.\nExecReload=/bin/kill -USR2 $MAINPID\n\
         # A host that was removed exits with 0 and is not restarted.\nRestart=on-failure\nRestartSec=5\n\
         # The host ends its nodes itself; if it crashes, they go on until it is restarted.\nKillMode=process\nTimeoutStopSec=90\nDelegate=yes\n\n\
         [Install]\nWantedBy={target}\n"
    ))
}

/// Writes the unit file.
pub fn write(kind: UnitKind, text: &str) -> Result<PathBuf, CliError> {
    let directory = match kind {
        UnitKind::User => home_dir()?.join(".config/systemd/user"),
        UnitKind::System => PathBuf::from("/etc/systemd/system"),
    };
    let path = directory.join(UNIT_FILE);
    let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, text));
    written.map_err(|error| {
        let error = CliError::new(format!("cannot write {}: {error}", path.display()));
        match kind {
            UnitKind::System => error.hint("that needs root; '--systemd user' does not"),
            UnitKind::User => error,
        }
    })?;
    Ok(path)
}

/// Quotes a word of `ExecStart`.
fn quote(word: OsString) -> Result<String, CliError> {
    let Some(word) = word.to_str().filter(|word| !word.chars().any(char::is_control)) else {
        return Err(CliError::usage(format!(
            "'{}' cannot be written to a systemd unit",
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
    fn arguments_are_quoted() {
        let words = ["--data".into(), "/srv/a b/100%$x\"".into()];
        let text = text(UnitKind::User, Path::new("/usr/bin/corro"), &words).expect("a unit");
        assert!(
            text.contains("ExecStart=\"/usr/bin/corro\" agent join \"--data\" \"/srv/a b/100%%$$x\\\"\"\n"),
            "{text}"
        );
        assert!(text.ends_with("WantedBy=default.target\n") && !text.contains("token"), "{text}");
        assert!(quote("a\nExecStart=evil".into()).is_err());
    }
}
