//! `corro mount` and `corro unmount`: a share as a directory of this machine. Finds the account and its key as the storage commands do, asks the
//! server whether they are good, and starts the mount process, which goes on in the background. The file system is the mount crate's.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use corro_client::profile;
use corro_model::names::{NameOf, check_name};
use corro_mount::settings::{Authority, Settings};
use corro_mount::{MountError, mountinfo, process};

use crate::commands::storage::auth::{self, AccountArgs};
use crate::failure::Failure;
use crate::session::{GlobalArgs, Session};
use crate::talk::{say, tell};

/// The program that is running, also when its file was replaced since.
const THIS: &str = "/proc/self/exe";

#[derive(Args, Debug)]
#[command(after_help = MOUNT_HELP)]
pub struct MountArgs {
    /// The share to mount
    #[arg(value_name = "SHARE")]
    share: String,
    /// The directory where it appears; it must be there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Nothing can be written, made or removed
    #[arg(long)]
    read_only: bool,
    /// Writes stay in this machine's memory until a file is closed or synced: for shares that one machine at a time writes to
    #[arg(long, conflicts_with = "read_only")]
    write_cache: bool,
    /// Serve the mount until Ctrl-C, instead of in the background
    #[arg(long)]
    foreground: bool,
    /// The mode that files show
    #[arg(long, value_name = "MODE", default_value = "0777", value_parser = mode)]
    file_mode: u16,
    /// The mode that directories show
    #[arg(long, value_name = "MODE", default_value = "0777", value_parser = mode)]
    dir_mode: u16,
    /// How many seconds programs wait for a server that does not answer before they get an error
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    deadline: u32,
    /// Where the mount in the background writes what goes wrong [default: mount.log beside the profile]
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log_file: Option<PathBuf>,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    global: GlobalArgs,
}

const MOUNT_HELP: &str = "\
The share looks like a disk: read, write, append, rename, truncate, lock.
A file that is closed is on the server, and fsync waits for its disk; what is
written shows an error, if there is one, when the file is closed. Whoever opens
a file sees what others had closed. Owners and modes of single files and hard
links are not kept. A symbolic link is shown as the link that it is, and this
machine follows it, as on NFS: an absolute one leads to a file of this machine.
A server that is away for a while is waited for (--deadline).

With --write-cache small writes in any order are several times as fast, as on a
disk. Use it where one machine at a time writes to the share: the kernel then
writes pages of 4 KiB, over what another machine has put into the same page
meanwhile, and while a file is open here, what others do to it is not seen.
Appending is as without it.

Examples:
  corro mount myshare /mnt/myshare --account-name mystorageaccount
  corro mount myshare /mnt/myshare --read-only --deadline 10 \\
      --account-name mystorageaccount --sas-token 'sv=...&sig=...'
  corro unmount /mnt/myshare";

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  corro unmount /mnt/myshare")]
pub struct UnmountArgs {
    /// Where the share is mounted; without it, all mounts are listed
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Take it away at once, though programs still use it; they keep it until they close it
    #[arg(long)]
    lazy: bool,
}

fn mode(text: &str) -> Result<u16, String> {
    let digits = text.trim_start_matches("0o");
    match u16::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("a mode is up to three octal digits, such as 0755".to_owned()),
    }
}

pub async fn mount(args: MountArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    check_name(NameOf::Share, &args.share)?;
    let place = process::check_mount_point(&args.directory).map_err(refusal)?;
    let found = auth::find(&session, &args.account).await?;
    let settings = Settings {
        endpoint: found.endpoint,
        account: found.account,
        share: args.share,
        inside: String::new(),
        login: found.credential.into(),
        authority: Authority::from(&session.trust()?),
        directory: place.clone(),
        read_only: args.read_only,
        write_cache: args.write_cache,
        file_mode: args.file_mode,
        directory_mode: args.dir_mode,
        deadline_ms: Duration::from_secs(args.deadline.into()).as_millis() as u64,
        request_s: args.account.timeout,
        lifeline: false,
    };
    // With the words of the storage commands where the key, the account or the share is wrong.
    let service = settings.service()?;
    service.about(&settings.share, "").await?;
    let whom = settings.whom();
    if args.foreground {
        crate::logging::init();
        let ready = move || say(format!("{} shows {whom}. Ctrl-C unmounts it.", place.display()));
        let served = tokio::task::spawn_blocking(move || process::run(Path::new(THIS), &settings, ready));
        return served.await.map_err(|error| Failure::of(&error))?.map_err(refusal);
    }
    let log = log_file(args.log_file)?;
    let stderr = open_log(&log)?;
    let served = tokio::task::spawn_blocking(move || process::start(Path::new(THIS), &settings, stderr));
    served.await.map_err(|error| Failure::of(&error))?.map_err(refusal)?;
    tell(format!("Mounted {whom} at {}.", place.display()));
    say(format!("Unmount it with 'corro unmount {}'. What goes wrong is told in {}.", place.display(), log.display()));
    Ok(())
}

fn log_file(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    match given {
        Some(file) => std::path::absolute(&file).map_err(|error| Failure::of(&error)),
        None => Ok(profile::config_dir()?.join("mount.log")),
    }
}

fn open_log(log: &Path) -> Result<Stdio, Failure> {
    let failed = |error: std::io::Error| Failure {
        causes: vec![error.to_string()],
        ..Failure::new(format!("cannot write the log {}", log.display())).hint("name another file with --log-file")
    };
    if let Some(directory) = log.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    File::options().create(true).append(true).open(log).map(Stdio::from).map_err(failed)
}

fn refusal(error: MountError) -> Failure {
    let failure = Failure::of(&error);
    match &error {
        MountError::Missing(place) => failure.hint(format!("make it with 'mkdir {}'", place.display())),
        MountError::Busy(place) => failure.hint(format!("unmount it with 'corro unmount {}'", place.display())),
        MountError::NoFusermount => failure.hint("apt-get install fuse3"),
        _ => failure,
    }
}

pub fn unmount(args: UnmountArgs) -> Result<(), Failure> {
    let Some(directory) = args.directory else { return list_mounts() };
    // A mount that nobody serves cannot be looked at, only its parent can.
    let place = directory.canonicalize().or_else(|_| match (directory.parent(), directory.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => Ok(parent.canonicalize()?.join(name)),
        (_, Some(name)) => Ok(std::env::current_dir()?.join(name)),
        _ => Err(std::io::Error::from(ErrorKind::NotFound)),
    });
    let place = place.map_err(|_| Failure::new(format!("{} does not exist", directory.display())))?;
    let mounted = mountinfo::find(&place).map_err(|error| Failure::of(&error))?;
    if mounted.is_none() {
        return Err(Failure::new(format!("no share is mounted at {}", place.display()))
            .hint("'corro unmount' without a directory lists all that are"));
    }
    match mountinfo::unmount(&place, args.lazy) {
        Ok(()) => {
            tell(format!("Unmounted {}.", place.display()));
            Ok(())
        }
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            Err(Failure::new(format!("{} is in use: a program has a file open or works in it", place.display()))
                .hint("close it, or take the mount away at once with --lazy"))
        }
        Err(error) => {
            let failure = Failure::new(format!("cannot unmount {}", place.display()));
            Err(Failure { causes: vec![error.to_string()], ..failure })
        }
    }
}

fn list_mounts() -> Result<(), Failure> {
    let mounts = mountinfo::list().map_err(|error| Failure::of(&error))?;
    if mounts.is_empty() {
        tell("No share is mounted here.");
    }
    let width =
        mounts.iter().map(|mount| mount.mount_point.display().to_string().chars().count()).max().unwrap_or_default();
    for mount in mounts {
        tell(format!("{:width$}  {}", mount.mount_point.display().to_string(), mount.source));
    }
    Ok(())
}

/// The mount process and its watcher; before anything else, while there is one thread.
pub fn hidden(word: &std::ffi::OsStr, place: Option<&std::ffi::OsStr>) -> Option<u8> {
    if word == process::SUBCOMMAND {
        crate::logging::init();
        return Some(process::serve(Path::new(THIS)));
    }
    let place = place.filter(|_| word == corro_mount::unmount_watchdog::SUBCOMMAND)?;
    corro_mount::unmount_watchdog::run(Path::new(place));
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        for (text, expected) in [("0777", Some(0o777)), ("750", Some(0o750)), ("0o644", Some(0o644)), ("0", Some(0))] {
            assert_eq!(mode(text).ok(), expected, "{text}");
        }
        for text in ["", "888", "01777", "-1", "rwx"] {
            assert!(mode(text).is_err(), "{text}");
        }
    }
}
