//! Operations that change files and directories.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nfs3_server::nfs3_types::nfs3::{
    createverf3, fattr3, filename3, nfspath3, nfsstat3, sattr3, set_mode3, set_size3, stable_how,
};
use nfs3_server::vfs::NfsFileSystem;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat2, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::attributes::{attributes, set_attributes};
use super::{NfsResult, Vfs, open_content};
use crate::nfs::tree::{FileTrees, Handle, check_name, status_of_errno, status_of_io_error};

const RESOLVE_BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

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
