//! `corro unmount`: unmounts a share, or lists the mounted shares.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use corro_mount::mountinfo;

use crate::error::CliError;
use crate::stdio::print;

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  corro unmount /mnt/myshare")]
pub struct UnmountArgs {
    /// Directory where the share is mounted. Without it, all mounts are listed
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Unmount at once, even if programs use the share. They keep access until they close their files
    #[arg(long)]
    lazy: bool,
}

pub fn run(args: UnmountArgs) -> Result<(), CliError> {
    let Some(directory) = args.directory else { return list_mounts() };
    // A mount whose process is gone cannot be resolved, but its parent directory can.
    let mount_point = directory.canonicalize().or_else(|_| match (directory.parent(), directory.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => Ok(parent.canonicalize()?.join(name)),
        (_, Some(name)) => Ok(std::env::current_dir()?.join(name)),
        _ => Err(std::io::Error::from(ErrorKind::NotFound)),
    });
    let mount_point = mount_point.map_err(|_| CliError::new(format!("{} does not exist", directory.display())))?;
    let mounted = mountinfo::find(&mount_point).map_err(|error| CliError::from_error(&error))?;
    if mounted.is_none() {
        return Err(CliError::new(format!("no share is mounted at {}", mount_point.display()))
            .hint("'corro unmount' without a directory lists the mounted shares"));
    }
    match mountinfo::unmount(&mount_point, args.lazy) {
        Ok(()) => {
            print(format!("Unmounted {}.", mount_point.display()));
            Ok(())
        }
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {
            Err(CliError::new(format!("{} is in use: a program has a file open or works in it", mount_point.display()))
                .hint("close it, or detach the mount at once with --lazy"))
        }
        Err(error) => Err(CliError::new(format!("cannot unmount {}", mount_point.display())).cause(error)),
    }
}

fn list_mounts() -> Result<(), CliError> {
    let mounts = mountinfo::list().map_err(|error| CliError::from_error(&error))?;
    if mounts.is_empty() {
        print("No share is mounted here.");
    }
    let width =
        mounts.iter().map(|mount| mount.mount_point.display().to_string().chars().count()).max().unwrap_or_default();
    for mount in mounts {
        print(format!("{:width$}  {}", mount.mount_point.display().to_string(), mount.source));
    }
    Ok(())
}
