//! Mounts that the kernel makes for us, without a helper program, so that nothing of them is seen in the list of
//! processes: directories that may only be read, and file servers of another machine. Entered by `mounts` only.

use std::ffi::CString;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};

use corro_model::node::NfsExport;

use super::{MountError, table, without_rights};

/// Shows `source` at `at` so that nothing can be written through it.
pub fn bind_read_only(source: &Path, at: &Path) -> Result<(), MountError> {
    let failed = |errno: Errno| MountError::Kernel {
        why: format!(
            "it cannot be mounted read-only: {errno}{}. Leave 'ro' out of its options, or let the agent run as root",
            without_rights()
        ),
    };
    mount_bind(source, at).map_err(failed)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(at, flags, c"").map_err(|errno| {
        // Writable is not what was asked for.
        let _ = table::take_away(at);
        failed(errno)
    })
}

/// NFS version 3 over TCP, with the port of the export for both of its protocols.
pub fn mount_nfs(export: &NfsExport, at: &Path, read_only: bool) -> Result<(), MountError> {
    let why = |text: String| MountError::Kernel { why: text };
    let source = match export.address {
        std::net::IpAddr::V4(address) => format!("{address}:{}", export.path.expose()),
        std::net::IpAddr::V6(address) => format!("[{address}]:{}", export.path.expose()),
    };
    let options = CString::new(options(export)).map_err(|_| why("its options hold a zero byte".to_owned()))?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, read_only);
    mount(source.as_str(), at, "nfs", flags, options.as_c_str()).map_err(|errno| {
        let (address, port) = (export.address, export.port);
        let cause = match errno {
            Errno::NODEV => "this machine's kernel has no NFS client (load it with 'modprobe nfs')".to_owned(),
            errno => format!("{errno}{}", without_rights()),
        };
        why(format!(
            "the file server is on another machine, and its NFS export at {address}:{port} cannot be mounted: {cause}"
        ))
    })
}

/// The user's first: of two that say different things the kernel takes the last.
fn options(export: &NfsExport) -> String {
    let own = export.options.split(',').map(str::trim).filter(|word| !matches!(*word, "" | "ro" | "rw" | "defaults"));
    let (address, port) = (export.address, export.port);
    let fixed = format!(
        "vers=3,proto=tcp,mountproto=tcp,mountvers=3,addr={address},port={port},mountaddr={address},mountport={port},nolock"
    );
    own.map(str::to_owned).chain([fixed]).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use corro_model::Secret;

    use super::*;

    #[test]
    fn what_is_ours_to_say_of_an_export_comes_last() {
        let export = NfsExport {
            address: [10, 0, 0, 4].into(),
            port: 40_000,
            path: Secret::new("/data/x"),
            options: "rw, rsize=65536,vers=4,".to_owned(),
        };
        assert_eq!(
            options(&export),
            "rsize=65536,vers=4,vers=3,proto=tcp,mountproto=tcp,mountvers=3,addr=10.0.0.4,port=40000,\
             mountaddr=10.0.0.4,mountport=40000,nolock"
        );
    }
}
