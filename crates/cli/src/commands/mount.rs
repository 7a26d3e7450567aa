//! `corro mount`: mounts a share as a directory of this machine (FUSE). Finds account and key as the storage commands do, checks them with the server,
//! and starts the mount process in the background. The file system is the mount crate's.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use corro_client::profile;
use corro_model::names::{NameKind, check_name};
use corro_mount::settings::{Authority, Settings};
use corro_mount::{MountError, process};

use crate::commands::storage::auth::{self, AccountArgs};
use crate::error::CliError;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};

/// This program, even if its file was replaced since it started.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

#[derive(Args, Debug)]
#[command(after_help = MOUNT_HELP)]
pub struct MountArgs {
    /// Name of the share
    #[arg(value_name = "SHARE")]
    share: String,
    /// Directory to mount the share at. It must exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Mount the share read-only
    #[arg(long)]
    read_only: bool,
    /// Cache writes in memory until a file is closed or synced. Use it only if one machine at a time writes to the share
    #[arg(long, conflicts_with = "read_only")]
    write_cache: bool,
    /// Run in the foreground until Ctrl-C, instead of in the background
    #[arg(long)]
    foreground: bool,
    /// Permission bits of all files, in octal
    #[arg(long, value_name = "MODE", default_value = "0777", value_parser = parse_mode)]
    file_mode: u16,
    /// Permission bits of all directories, in octal
    #[arg(long, value_name = "MODE", default_value = "0777", value_parser = parse_mode)]
    dir_mode: u16,
    /// Seconds to retry while the server does not answer. Then programs get an error
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    deadline: u32,
    /// File for errors of the background process [default: ~/.corro/mount.log]
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log_file: Option<PathBuf>,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    global: GlobalArgs,
}

const MOUNT_HELP: &str = "\
Programs can read, write, append, rename, truncate and lock files as on a local
disk. Consistency is close-to-open, as on NFS: closing a file writes it to the
server and reports write errors, and opening a file shows what others wrote
before they closed it. fsync waits for the server's disk. Owners and modes of
single files and hard links are not stored. Symbolic links are resolved by this
machine, as on NFS: an absolute link points to a file of this machine. Requests
are retried while the server does not answer, for up to --deadline seconds.

With --write-cache, small random writes are several times as fast. Use it only if
one machine at a time writes to the share. The kernel writes pages of 4 KiB, which
overwrite changes of other machines in the same page. Changes that others make to
a file that is open here are not seen. Appending is the same in both modes.

Examples:
  corro mount myshare /mnt/myshare --account-name mystorageaccount
  corro mount myshare /mnt/myshare --read-only --deadline 10 \\
      --account-name mystorageaccount --sas-token 'sv=...&sig=...'
  corro unmount /mnt/myshare";

fn parse_mode(text: &str) -> Result<u16, String> {
    let digits = text.trim_start_matches("0o");
    match u16::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("a mode is up to three octal digits, such as 0755".to_owned()),
    }
}

pub async fn run(args: MountArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    check_name(NameKind::Share, &args.share)?;
    let mount_point = process::check_mount_point(&args.directory).map_err(mount_error)?;
    let found = auth::resolve(&session, &args.account).await?;
    let settings = Settings {
        endpoint: found.endpoint,
        account: found.account,
        share: args.share,
        inside: String::new(),
        login: found.credential.into(),
        authority: Authority::from(&session.trust()?),
        directory: mount_point.clone(),
        read_only: args.read_only,
        write_cache: args.write_cache,
        file_mode: args.file_mode,
        directory_mode: args.dir_mode,
        deadline_ms: Duration::from_secs(args.deadline.into()).as_millis() as u64,
        request_s: args.account.timeout,
        lifeline: false,
    };
    // A wrong key, account or share gives the same error as in the storage commands.
    let service = settings.service()?;
    service.file_state(&settings.share, "").await?;
    let description = settings.description();
    if args.foreground {
        corro_hosting::logging::init();
        let ready = move || note(format!("{} shows {description}. Ctrl-C unmounts it.", mount_point.display()));
        let served = tokio::task::spawn_blocking(move || process::run(Path::new(OWN_EXECUTABLE), &settings, ready));
        return served.await.map_err(|error| CliError::from_error(&error))?.map_err(mount_error);
    }
    let log = log_path(args.log_file)?;
    let stderr = open_log(&log)?;
    let served = tokio::task::spawn_blocking(move || process::start(Path::new(OWN_EXECUTABLE), &settings, stderr));
    served.await.map_err(|error| CliError::from_error(&error))?.map_err(mount_error)?;
    print(format!("Mounted {description} at {}.", mount_point.display()));
    note(format!(
        "Unmount it with 'corro unmount {}'. Errors are written to {}.",
        mount_point.display(),
        log.display()
    ));
    Ok(())
}

fn log_path(given: Option<PathBuf>) -> Result<PathBuf, CliError> {
    match given {
        Some(file) => std::path::absolute(&file).map_err(|error| CliError::from_error(&error)),
        None => Ok(profile::config_dir()?.join("mount.log")),
    }
}

fn open_log(log: &Path) -> Result<Stdio, CliError> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot write the log {}", log.display());
        CliError::new(message).cause(error).hint("name another file with --log-file")
    };
    if let Some(directory) = log.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    File::options().create(true).append(true).open(log).map(Stdio::from).map_err(failed)
}

fn mount_error(error: MountError) -> CliError {
    let cli_error = CliError::from_error(&error);
    match &error {
        MountError::Missing(mount_point) => cli_error.hint(format!("make it with 'mkdir {}'", mount_point.display())),
        MountError::Busy(mount_point) => {
            cli_error.hint(format!("unmount it with 'corro unmount {}'", mount_point.display()))
        }
        MountError::NoFusermount => cli_error.hint("apt-get install fuse3"),
        _ => cli_error,
    }
}

/// Runs the internal subcommands of the mount process and its unmount watchdog. Must be called before the process has a second thread. `None` if
/// `word` is neither.
pub fn run_internal(word: &std::ffi::OsStr, mount_point: Option<&std::ffi::OsStr>) -> Option<u8> {
    if word == process::SUBCOMMAND {
        corro_hosting::logging::init();
        return Some(process::serve(Path::new(OWN_EXECUTABLE)));
    }
    let mount_point = mount_point.filter(|_| word == corro_mount::unmount_watchdog::SUBCOMMAND)?;
    corro_mount::unmount_watchdog::run(Path::new(mount_point));
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        for (text, expected) in [("0777", Some(0o777)), ("750", Some(0o750)), ("0o644", Some(0o644)), ("0", Some(0))] {
            assert_eq!(parse_mode(text).ok(), expected, "{text}");
        }
        for text in ["", "888", "01777", "-1", "rwx"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }
}
