//! Resolves NFS handles to files below a file server's directory. A handle has the file server, the inode with its
//! birth time, and a MAC. The last known location of each file is remembered and checked on every open. All paths are
//! opened with `openat2` below the root: no symbolic links, no other file systems. Synchronous; `vfs` runs it on
//! blocking threads.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use corro_base::fnv::fnv1a_64;
use corro_store::Store;
use hmac::{Hmac, KeyInit, Mac};
use nfs3_server::nfs3_types::nfs3::nfsstat3;
use nfs3_server::vfs::FileHandle;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use sha2::Sha256;

#[cfg(test)]
use crate::app::App;
use crate::app::storage::exports::{Exports, MOUNT_POINT};

type NfsResult<T> = Result<T, nfsstat3>;

/// Identity of a file on a file server. The birth time distinguishes files that reuse an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    server: u64,
    inode: u64,
    born: u64,
}

impl FileId {
    /// Whether both files are on the same file server.
    pub fn is_same_server(&self, other: &FileId) -> bool {
        self.server == other.server
    }
}

/// File handle: a [`FileId`] with a MAC by this server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle([u8; HANDLE_BYTES]);

const MAC_BYTES: usize = 16;
const HANDLE_BYTES: usize = 24 + MAC_BYTES;

impl Handle {
    /// Handle that opens nothing.
    pub const INVALID: Handle = Handle([0; HANDLE_BYTES]);
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(handle)")
    }
}

impl FileHandle for Handle {
    fn len(&self) -> usize {
        HANDLE_BYTES
    }

    fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Handle)
    }
}

pub struct FileTrees {
    exports: Arc<Exports>,
    store: Store,
    key: [u8; 32],
    locations: Mutex<HashMap<FileId, KnownLocation>>,
}

/// Last known location of a file.
#[derive(Clone, Debug)]
struct KnownLocation {
    /// `None` for the root directory of a file server.
    parent: Option<FileId>,
    name: OsString,
    /// Verifier of an exclusive CREATE, so that a repeated request succeeds.
    verifier: Option<[u8; 8]>,
}

/// Capacity of the location table. Beyond it all but the roots are dropped; clients look them up again.
const MAX_LOCATIONS: usize = 500_000;
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

impl FileTrees {
    #[cfg(test)]
    pub fn for_app(app: App, key: [u8; 32]) -> Self {
        FileTrees::new(app.storage.exports.clone(), app.store.clone(), key)
    }

    pub fn new(exports: Arc<Exports>, store: Store, key: [u8; 32]) -> Self {
        FileTrees { exports, store, key, locations: Mutex::default() }
    }

    /// Directory of a mount path: the export secret, then directory names.
    pub fn mount(&self, path: &str) -> NfsResult<Handle> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        let secret = names.next().filter(|first| Some(*first) == MOUNT_POINT.strip_prefix('/')).and(names.next());
        let secret = secret.ok_or(nfsstat3::NFS3ERR_NOENT)?;
        let (key, record) =
            self.exports.find_by_secret(&self.store.snapshot(), secret).ok_or(nfsstat3::NFS3ERR_NOENT)?;
        let directory = self.exports.directory(&key, &record).map_err(|_| nfsstat3::NFS3ERR_IO)?;
        let metadata = File::open(&directory).and_then(|file| file.metadata()).map_err(status_of_io_error)?;
        let server = server_hash(directory.as_os_str());
        let node = FileId { server, inode: metadata.ino(), born: birth_time(&metadata) };
        self.record_location(node, KnownLocation { parent: None, name: directory.into_os_string(), verifier: None });
        let mut handle = self.handle(node);
        for name in names {
            handle = self.lookup(&handle, name.as_bytes())?.0;
        }
        Ok(handle)
    }

    pub fn lookup(&self, directory: &Handle, name: &[u8]) -> NfsResult<(Handle, Metadata)> {
        let node = self.check(directory)?;
        match name {
            b"." => {
                let (_, metadata) = self.open(directory, OFlags::PATH)?;
                Ok((*directory, metadata))
            }
            b".." => {
                let parent = self.location(node)?.parent.unwrap_or(node);
                let parent = self.handle(parent);
                let (_, metadata) = self.open(&parent, OFlags::PATH)?;
                Ok((parent, metadata))
            }
            name => {
                let (inside, _) = self.open_directory(directory)?;
                let file = open(&inside, check_name(name)?, OFlags::PATH | OFlags::NOFOLLOW)?;
                self.record_file(node, name, &file)
            }
        }
    }

    /// Records a file found or created as `name` in a directory.
    pub fn record_file(&self, directory: FileId, name: &[u8], file: &File) -> NfsResult<(Handle, Metadata)> {
        let metadata = file.metadata().map_err(status_of_io_error)?;
        let node = FileId { server: directory.server, inode: metadata.ino(), born: birth_time(&metadata) };
        let location =
            KnownLocation { parent: Some(directory), name: OsStr::from_bytes(name).to_owned(), verifier: None };
        self.record_location(node, location);
        Ok((self.handle(node), metadata))
    }

    /// Opens the file of a handle; stale if it is no longer at its known location.
    pub fn open(&self, handle: &Handle, flags: OFlags) -> NfsResult<(File, Metadata)> {
        let node = self.check(handle)?;
        let (mut names, mut at) = (Vec::new(), node);
        let root = loop {
            let KnownLocation { parent, name, .. } = self.location(at)?;
            match parent {
                Some(parent) => {
                    names.push(name);
                    at = parent;
                }
                None => break name,
            }
        };
        let root = openat2(rustix::fs::CWD, Path::new(&root), DIRECTORY, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
            .map_err(|_| nfsstat3::NFS3ERR_STALE)?;
        names.reverse();
        let path = match names.is_empty() {
            true => OsString::from("."),
            false => names.join(OsStr::new("/")),
        };
        let file = match open(&root, path.as_bytes(), flags | OFlags::NOFOLLOW) {
            // Moved or removed by another process.
            Err(nfsstat3::NFS3ERR_NOENT | nfsstat3::NFS3ERR_NOTDIR) => return Err(nfsstat3::NFS3ERR_STALE),
            opened => opened?,
        };
        let metadata = file.metadata().map_err(status_of_io_error)?;
        match (metadata.ino(), birth_time(&metadata)) == (node.inode, node.born) {
            true => Ok((file, metadata)),
            false => Err(nfsstat3::NFS3ERR_STALE),
        }
    }

    /// Opens a directory in which to create, find or remove names.
    pub fn open_directory(&self, handle: &Handle) -> NfsResult<(File, FileId)> {
        let node = self.check(handle)?;
        let (directory, metadata) = self.open(handle, OFlags::PATH)?;
        if !metadata.is_dir() {
            return Err(nfsstat3::NFS3ERR_NOTDIR);
        }
        Ok((directory, node))
    }

    /// Records the new location of a moved file; files below it follow.
    pub fn record_move(&self, handle: &Handle, to: FileId, name: &[u8]) {
        if let Ok(node) = self.check(handle) {
            let location = KnownLocation { parent: Some(to), name: OsStr::from_bytes(name).to_owned(), verifier: None };
            self.record_location(node, location);
        }
    }

    pub fn set_verifier(&self, handle: &Handle, verifier: [u8; 8]) {
        if let Ok(node) = self.check(handle)
            && let Some(location) = self.locations().get_mut(&node)
        {
            location.verifier = Some(verifier);
        }
    }

    /// Whether the file was created by a request with this verifier.
    pub fn has_verifier(&self, handle: &Handle, verifier: [u8; 8]) -> bool {
        self.check(handle)
            .and_then(|node| self.location(node))
            .is_ok_and(|location| location.verifier == Some(verifier))
    }

    fn location(&self, node: FileId) -> NfsResult<KnownLocation> {
        self.locations().get(&node).cloned().ok_or(nfsstat3::NFS3ERR_STALE)
    }

    fn record_location(&self, node: FileId, location: KnownLocation) {
        let mut locations = self.locations();
        if locations.len() >= MAX_LOCATIONS && !locations.contains_key(&node) {
            locations.retain(|_, location| location.parent.is_none());
        }
        let verifier = locations.get(&node).and_then(|known| known.verifier);
        locations.insert(node, KnownLocation { verifier: location.verifier.or(verifier), ..location });
    }

    fn locations(&self) -> MutexGuard<'_, HashMap<FileId, KnownLocation>> {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, node: FileId) -> Handle {
        let mut bytes = [0; HANDLE_BYTES];
        for (at, number) in [node.server, node.inode, node.born].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let proof = self.mac(&bytes[..HANDLE_BYTES - MAC_BYTES]).finalize().into_bytes();
        bytes[HANDLE_BYTES - MAC_BYTES..].copy_from_slice(&proof[..MAC_BYTES]);
        Handle(bytes)
    }

    /// File of a handle, after verifying its MAC.
    pub fn check(&self, handle: &Handle) -> NfsResult<FileId> {
        let (bytes, proof) = handle.0.split_at(HANDLE_BYTES - MAC_BYTES);
        self.mac(bytes).verify_truncated_left(proof).map_err(|_| nfsstat3::NFS3ERR_BADHANDLE)?;
        let number = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        Ok(FileId { server: number(0), inode: number(1), born: number(2) })
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(bytes);
        mac
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open(directory: impl AsFd, path: &[u8], flags: OFlags) -> NfsResult<File> {
    // Without NONBLOCK, opening a FIFO would wait for its other end.
    let careful = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
    let opened = openat2(directory, path, flags | careful | OFlags::CLOEXEC, Mode::empty(), RESOLVE);
    opened.map(File::from).map_err(status_of_errno)
}

/// Checks that a name is a single path component.
pub fn check_name(name: &[u8]) -> NfsResult<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(nfsstat3::NFS3ERR_INVAL),
        _ if name.contains(&b'/') || name.contains(&0) => Err(nfsstat3::NFS3ERR_INVAL),
        _ if name.len() > 255 => Err(nfsstat3::NFS3ERR_NAMETOOLONG),
        _ => Ok(name),
    }
}

pub fn status_of_errno(errno: Errno) -> nfsstat3 {
    match errno {
        Errno::NOENT => nfsstat3::NFS3ERR_NOENT,
        Errno::ACCESS => nfsstat3::NFS3ERR_ACCES,
        Errno::PERM => nfsstat3::NFS3ERR_PERM,
        Errno::EXIST => nfsstat3::NFS3ERR_EXIST,
        Errno::XDEV => nfsstat3::NFS3ERR_XDEV,
        Errno::NOTDIR => nfsstat3::NFS3ERR_NOTDIR,
        Errno::ISDIR => nfsstat3::NFS3ERR_ISDIR,
        Errno::INVAL | Errno::LOOP | Errno::NXIO => nfsstat3::NFS3ERR_INVAL,
        Errno::FBIG => nfsstat3::NFS3ERR_FBIG,
        Errno::NOSPC => nfsstat3::NFS3ERR_NOSPC,
        Errno::DQUOT => nfsstat3::NFS3ERR_DQUOT,
        Errno::ROFS => nfsstat3::NFS3ERR_ROFS,
        Errno::NAMETOOLONG => nfsstat3::NFS3ERR_NAMETOOLONG,
        Errno::NOTEMPTY => nfsstat3::NFS3ERR_NOTEMPTY,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

pub fn status_of_io_error(error: std::io::Error) -> nfsstat3 {
    Errno::from_io_error(&error).map_or(nfsstat3::NFS3ERR_IO, status_of_errno)
}

/// Birth time in nanoseconds; 0 if the file system has none.
fn birth_time(metadata: &Metadata) -> u64 {
    let born: SystemTime = metadata.created().unwrap_or(UNIX_EPOCH);
    born.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// FNV-1a hash that identifies a file server's directory.
fn server_hash(directory: &OsStr) -> u64 {
    fnv1a_64(directory.as_bytes())
}
