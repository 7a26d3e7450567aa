//! File operations of NFS clients. All disk access runs on blocking threads. Owners cannot be changed: all files belong
//! to the server's user.

use std::fs::{File, FileTimes, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corro_base::fnv::fnv1a_64;
use nfs3_server::nfs3_types::nfs3::{
    createverf3, fattr3, filename3, ftype3, nfspath3, nfsstat3, nfstime3, sattr3, set_atime, set_mode3, set_mtime,
    set_size3, specdata3, stable_how,
};
use nfs3_server::nfs3_types::xdr_codec::Opaque;
use nfs3_server::vfs::{DirEntryPlus, NextResult, NfsFileSystem, NfsReadFileSystem, ReadDirPlusIterator};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, ResolveFlags, mkdirat, openat2, readlinkat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use tokio::task::spawn_blocking;

use super::service::ExportedFileSystem;
use super::tree::{FileTrees, Handle, check_name, status_of_errno, status_of_io_error};

type NfsResult<T> = Result<T, nfsstat3>;

/// Maximum size of one read.
const MAX_READ: u32 = 1 << 20;
const RESOLVE_BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// All file servers, in the interface of the `nfs3_server` crate.
pub struct Vfs(pub(super) Arc<FileTrees>);

impl Vfs {
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileTrees) -> NfsResult<T> + Send + 'static,
    ) -> NfsResult<T> {
        let trees = self.0.clone();
        spawn_blocking(move || work(&trees)).await.unwrap_or(Err(nfsstat3::NFS3ERR_SERVERFAULT))
    }
}

impl ExportedFileSystem for Vfs {
    fn is_own_handle(&self, handle: &Handle) -> bool {
        self.0.check(handle).is_ok()
    }
}

impl NfsReadFileSystem for Vfs {
    type Handle = Handle;

    /// There is no common root, because it would reveal all file servers.
    fn root_dir(&self) -> Handle {
        Handle::INVALID
    }

    async fn lookup(&self, directory: &Handle, name: &filename3<'_>) -> NfsResult<Handle> {
        let (directory, name) = (*directory, name.0.to_vec());
        self.run_blocking(move |trees| trees.lookup(&directory, &name).map(|(handle, _)| handle)).await
    }

    async fn lookup_by_path(&self, path: &str) -> NfsResult<Handle> {
        let path = path.to_owned();
        self.run_blocking(move |trees| trees.mount(&path)).await
    }

    async fn getattr(&self, handle: &Handle) -> NfsResult<fattr3> {
        let handle = *handle;
        self.run_blocking(move |trees| trees.open(&handle, OFlags::PATH).map(|(_, metadata)| attributes(&metadata)))
            .await
    }

    async fn read(&self, handle: &Handle, offset: u64, count: u32) -> NfsResult<(Vec<u8>, bool)> {
        let handle = *handle;
        self.run_blocking(move |trees| {
            let (file, metadata) = open_content(trees, &handle, OFlags::RDONLY)?;
            let mut bytes = vec![0; count.min(MAX_READ) as usize];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64).map_err(status_of_io_error)? {
                    0 => break,
                    n => filled += n,
                }
            }
            bytes.truncate(filled);
            Ok((bytes, offset.saturating_add(filled as u64) >= metadata.len()))
        })
        .await
    }

    async fn readdirplus(&self, directory: &Handle, cookie: u64) -> NfsResult<impl ReadDirPlusIterator<Handle>> {
        let directory = *directory;
        let names = self.run_blocking(move |trees| list_names(trees, &directory, cookie)).await?;
        Ok(Entries { vfs: Vfs(self.0.clone()), directory, names: names.into_iter(), ready: Vec::new().into_iter() })
    }

    async fn readlink(&self, handle: &Handle) -> NfsResult<nfspath3<'_>> {
        let handle = *handle;
        let target = self.run_blocking(move |trees| {
            let (link, metadata) = trees.open(&handle, OFlags::PATH)?;
            if !metadata.file_type().is_symlink() {
                return Err(nfsstat3::NFS3ERR_INVAL);
            }
            readlinkat(&link, c"", Vec::new()).map(std::ffi::CString::into_bytes).map_err(status_of_errno)
        });
        Ok(nfspath3(Opaque::owned(target.await?)))
    }
}

impl NfsFileSystem for Vfs {
    async fn setattr(&self, handle: &Handle, wanted: sattr3) -> NfsResult<fattr3> {
        let handle = *handle;
        self.run_blocking(move |trees| {
            let (_, metadata) = trees.open(&handle, OFlags::PATH)?;
            if metadata.file_type().is_symlink() {
                return Ok(attributes(&metadata));
            }
            let changes_size = matches!(wanted.size, set_size3::Some(_));
            let flags = if changes_size { OFlags::RDWR } else { OFlags::RDONLY };
            let (file, _) = trees.open(&handle, flags)?;
            set_attributes(&file, &wanted)?;
            Ok(attributes(&file.metadata().map_err(status_of_io_error)?))
        })
        .await
    }

    async fn write(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> NfsResult<(fattr3, stable_how)> {
        let (handle, data) = (*handle, data.to_vec());
        let is_lasting = !matches!(stable, stable_how::UNSTABLE);
        let attributes = self
            .run_blocking(move |trees| {
                let (file, _) = open_content(trees, &handle, OFlags::WRONLY)?;
                file.write_all_at(&data, offset).map_err(status_of_io_error)?;
                if is_lasting {
                    file.sync_all().map_err(status_of_io_error)?;
                }
                Ok(attributes(&file.metadata().map_err(status_of_io_error)?))
            })
            .await?;
        Ok((attributes, if is_lasting { stable_how::FILE_SYNC } else { stable_how::UNSTABLE }))
    }

    async fn create(&self, directory: &Handle, name: &filename3<'_>, wanted: sattr3) -> NfsResult<(Handle, fattr3)> {
        let (directory, name) = (*directory, name.0.to_vec());
        self.run_blocking(move |trees| {
            let mode = match wanted.mode {
                set_mode3::Some(mode) => mode & 0o777,
                set_mode3::None => 0o666,
            };
            let (handle, file) = open_or_create(trees, &directory, &name, OFlags::RDWR | OFlags::CREATE, mode)?;
            set_attributes(&file, &wanted)?;
            Ok((handle, attributes(&file.metadata().map_err(status_of_io_error)?)))
        })
        .await
    }

    async fn create_exclusive(
        &self,
        directory: &Handle,
        name: &filename3<'_>,
        verifier: createverf3,
    ) -> NfsResult<Handle> {
        let (directory, name) = (*directory, name.0.to_vec());
        self.run_blocking(move |trees| {
            match open_or_create(trees, &directory, &name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, 0o666) {
                Ok((handle, _)) => {
                    trees.set_verifier(&handle, verifier.0);
                    Ok(handle)
                }
                // The reply to the first request may have been lost.
                Err(nfsstat3::NFS3ERR_EXIST) => match trees.lookup(&directory, &name) {
                    Ok((handle, _)) if trees.has_verifier(&handle, verifier.0) => Ok(handle),
                    _ => Err(nfsstat3::NFS3ERR_EXIST),
                },
                Err(error) => Err(error),
            }
        })
        .await
    }

    async fn mkdir(&self, directory: &Handle, name: &filename3<'_>) -> NfsResult<(Handle, fattr3)> {
        let (directory, name) = (*directory, name.0.to_vec());
        self.run_blocking(move |trees| {
            let (inside, _) = trees.open_directory(&directory)?;
            mkdirat(&inside, check_name(&name)?, Mode::from_raw_mode(0o777)).map_err(status_of_errno)?;
            trees.lookup(&directory, &name).map(|(handle, metadata)| (handle, attributes(&metadata)))
        })
        .await
    }

    async fn remove(&self, directory: &Handle, name: &filename3<'_>) -> NfsResult<()> {
        let (directory, name) = (*directory, name.0.to_vec());
        self.run_blocking(move |trees| {
            let (inside, _) = trees.open_directory(&directory)?;
            let name = check_name(&name)?;
            match unlinkat(&inside, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => unlinkat(&inside, name, AtFlags::REMOVEDIR),
                other => other,
            }
            .map_err(status_of_errno)
        })
        .await
    }

    async fn rename<'a>(
        &self,
        from: &Handle,
        from_name: &filename3<'a>,
        to: &Handle,
        to_name: &filename3<'a>,
    ) -> NfsResult<()> {
        let (from, from_name) = (*from, from_name.0.to_vec());
        let (to, to_name) = (*to, to_name.0.to_vec());
        self.run_blocking(move |trees| {
            let (moved, _) = trees.lookup(&from, check_name(&from_name)?)?;
            let (source, source_node) = trees.open_directory(&from)?;
            let (target, target_node) = trees.open_directory(&to)?;
            if !source_node.is_same_server(&target_node) {
                return Err(nfsstat3::NFS3ERR_XDEV);
            }
            renameat(&source, from_name.as_slice(), &target, check_name(&to_name)?).map_err(status_of_errno)?;
            trees.record_move(&moved, target_node, &to_name);
            Ok(())
        })
        .await
    }

    async fn symlink<'a>(
        &self,
        directory: &Handle,
        name: &filename3<'a>,
        target: &nfspath3<'a>,
        _wanted: &sattr3,
    ) -> NfsResult<(Handle, fattr3)> {
        let (directory, name, target) = (*directory, name.0.to_vec(), target.0.to_vec());
        self.run_blocking(move |trees| {
            let (inside, _) = trees.open_directory(&directory)?;
            symlinkat(target.as_slice(), &inside, check_name(&name)?).map_err(status_of_errno)?;
            trees.lookup(&directory, &name).map(|(handle, metadata)| (handle, attributes(&metadata)))
        })
        .await
    }

    async fn commit(&self, handle: &Handle, _offset: u64, _count: u32) -> NfsResult<()> {
        let handle = *handle;
        self.run_blocking(move |trees| {
            let (file, _) = open_content(trees, &handle, OFlags::RDONLY)?;
            file.sync_all().map_err(status_of_io_error)
        })
        .await
    }
}

/// Opens a regular file, and nothing else.
fn open_content(trees: &FileTrees, handle: &Handle, flags: OFlags) -> NfsResult<(File, Metadata)> {
    let (_, metadata) = trees.open(handle, OFlags::PATH)?;
    match metadata.is_file() {
        true => trees.open(handle, flags),
        false if metadata.is_dir() => Err(nfsstat3::NFS3ERR_ISDIR),
        false => Err(nfsstat3::NFS3ERR_INVAL),
    }
}

fn open_or_create(
    trees: &FileTrees,
    directory: &Handle,
    name: &[u8],
    flags: OFlags,
    mode: u32,
) -> NfsResult<(Handle, File)> {
    let (inside, node) = trees.open_directory(directory)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(&inside, check_name(name)?, flags, Mode::from_raw_mode(mode), RESOLVE_BENEATH)
        .map_err(status_of_errno)?;
    let file = File::from(file);
    let (handle, metadata) = trees.record_file(node, name, &file)?;
    if !metadata.is_file() {
        return Err(nfsstat3::NFS3ERR_EXIST);
    }
    Ok((handle, file))
}

fn set_attributes(file: &File, wanted: &sattr3) -> NfsResult<()> {
    if let set_size3::Some(size) = wanted.size {
        file.set_len(size).map_err(status_of_io_error)?;
    }
    if let set_mode3::Some(mode) = wanted.mode {
        file.set_permissions(PermissionsExt::from_mode(mode & 0o777)).map_err(status_of_io_error)?;
    }
    let now = SystemTime::now();
    let mut times = FileTimes::new();
    times = match &wanted.atime {
        set_atime::SET_TO_SERVER_TIME => times.set_accessed(now),
        set_atime::SET_TO_CLIENT_TIME(time) => times.set_accessed(time_of(time)),
        set_atime::DONT_CHANGE => times,
    };
    times = match &wanted.mtime {
        set_mtime::SET_TO_SERVER_TIME => times.set_modified(now),
        set_mtime::SET_TO_CLIENT_TIME(time) => times.set_modified(time_of(time)),
        set_mtime::DONT_CHANGE => times,
    };
    file.set_times(times).map_err(status_of_io_error)
}

fn time_of(time: &nfstime3) -> SystemTime {
    UNIX_EPOCH + Duration::new(u64::from(time.seconds), time.nseconds.min(999_999_999))
}

fn attributes(metadata: &Metadata) -> fattr3 {
    let kind = metadata.file_type();
    let time = |time: std::io::Result<SystemTime>| {
        let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        nfstime3 { seconds: u32::try_from(since.as_secs()).unwrap_or(u32::MAX), nseconds: since.subsec_nanos() }
    };
    let changed = UNIX_EPOCH + Duration::new(metadata.ctime().max(0) as u64, metadata.ctime_nsec().max(0) as u32);
    fattr3 {
        type_: match kind {
            _ if kind.is_dir() => ftype3::NF3DIR,
            _ if kind.is_symlink() => ftype3::NF3LNK,
            _ if kind.is_fifo() => ftype3::NF3FIFO,
            _ if kind.is_socket() => ftype3::NF3SOCK,
            _ if kind.is_block_device() => ftype3::NF3BLK,
            _ if kind.is_char_device() => ftype3::NF3CHR,
            _ => ftype3::NF3REG,
        },
        mode: metadata.mode() & 0o7777,
        nlink: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.len(),
        used: metadata.blocks() * 512,
        rdev: specdata3::default(),
        fsid: metadata.dev(),
        fileid: metadata.ino(),
        atime: time(metadata.accessed()),
        mtime: time(metadata.modified()),
        ctime: time(Ok(changed)),
    }
}

/// Names after `cookie` in a directory, ordered by a hash of the name, so that the order is stable while entries come
/// and go.
fn list_names(trees: &FileTrees, directory: &Handle, cookie: u64) -> NfsResult<Vec<(u64, Vec<u8>)>> {
    let (_, metadata) = trees.open(directory, OFlags::PATH)?;
    if !metadata.is_dir() {
        return Err(nfsstat3::NFS3ERR_NOTDIR);
    }
    let (opened, _) = trees.open(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&opened).map_err(status_of_errno)? {
        let name = entry.map_err(status_of_errno)?.file_name().to_bytes().to_vec();
        if !matches!(name.as_slice(), b"." | b"..") {
            names.push((cookie_of(&name), name));
        }
    }
    names.retain(|(own, _)| *own > cookie);
    names.sort_unstable();
    Ok(names)
}

/// `None` if the file is gone.
fn directory_entry(
    trees: &FileTrees,
    directory: &Handle,
    (cookie, name): (u64, Vec<u8>),
) -> Option<DirEntryPlus<Handle>> {
    let (handle, metadata) = trees.lookup(directory, &name).ok()?;
    Some(DirEntryPlus {
        fileid: metadata.ino(),
        name: filename3(Opaque::owned(name)),
        cookie,
        name_attributes: Some(attributes(&metadata)),
        name_handle: Some(handle),
    })
}

/// Stable cookie of a name. At least 16: the first values are reserved.
fn cookie_of(name: &[u8]) -> u64 {
    // Clients store it in a signed integer.
    (fnv1a_64(name) >> 1).max(16)
}

/// Directory iterator that looks entries up only as far as the reply has space.
struct Entries {
    vfs: Vfs,
    directory: Handle,
    names: std::vec::IntoIter<(u64, Vec<u8>)>,
    ready: std::vec::IntoIter<DirEntryPlus<Handle>>,
}

/// Number of entries looked up per blocking task.
const LOOKUP_BATCH: usize = 128;

impl ReadDirPlusIterator<Handle> for Entries {
    async fn next(&mut self) -> NextResult<DirEntryPlus<Handle>> {
        loop {
            if let Some(entry) = self.ready.next() {
                return NextResult::Ok(entry);
            }
            let some: Vec<_> = self.names.by_ref().take(LOOKUP_BATCH).collect();
            if some.is_empty() {
                return NextResult::Eof;
            }
            let directory = self.directory;
            let look_up = move |trees: &FileTrees| -> NfsResult<Vec<_>> {
                Ok(some.into_iter().filter_map(|name| directory_entry(trees, &directory, name)).collect())
            };
            match self.vfs.run_blocking(look_up).await {
                Ok(entries) => self.ready = entries.into_iter(),
                Err(error) => return NextResult::Err(error),
            }
        }
    }
}
