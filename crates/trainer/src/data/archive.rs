//! The bytes of batch files, however they are packed: plain, compressed with Zstandard, or inside the official archive. Entered by `cifar`, which
//! says how long a file may be. Never holds much more than that in memory, whatever the packed bytes promise.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::FrameDecoderError;

use super::DataError;

/// A batch file on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackedFile {
    Plain(PathBuf),
    Zstandard(PathBuf),
}

/// What else may lie in the archive: headers, the names of the classes, a page to read.
const ARCHIVE_OVERHEAD: usize = 1 << 20;

impl PackedFile {
    /// The file of that name in a directory, if it is there.
    pub fn find(directory: &Path, name: &str) -> Option<PackedFile> {
        let (plain, zstandard) = (directory.join(name), directory.join(format!("{name}.zst")));
        if plain.is_file() {
            Some(PackedFile::Plain(plain))
        } else if zstandard.is_file() {
            Some(PackedFile::Zstandard(zstandard))
        } else {
            None
        }
    }

    /// The unpacked bytes, or the first `limit + 1` of them if there are more than `limit`.
    pub fn read(&self, limit: usize) -> Result<Vec<u8>, DataError> {
        match self {
            PackedFile::Plain(path) => read_file(path, limit + 1),
            PackedFile::Zstandard(path) => {
                // What cannot be compressed grows by three bytes a block of 128 KiB.
                let packed = read_file(path, limit + limit / 1024 + (1 << 16))?;
                unpack_zstandard(&packed, limit)
                    .map_err(|cause| DataError::Unpack { path: path.clone(), source: Box::new(cause) })
            }
        }
    }
}

/// Gives the bytes of every file in a `.tar.gz` whose name, without directories, is among the `wanted`, under the same rule as
/// [`PackedFile::read`], to `each`. Links, devices and directories are passed over, whatever their names.
pub fn read_archive(
    path: &Path,
    wanted: &[(&str, usize)],
    mut each: impl FnMut(usize, &[u8]) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let damaged = |cause: io::Error| DataError::Unpack { path: path.to_owned(), source: Box::new(cause) };
    let file = File::open(path).map_err(|source| DataError::Read { path: path.to_owned(), source })?;
    let max_bytes = ARCHIVE_OVERHEAD + wanted.iter().map(|(_, limit)| limit).sum::<usize>();
    let unpacked = MultiGzDecoder::new(BufReader::with_capacity(1 << 16, file)).take(max_bytes as u64);
    let mut bytes = Vec::new();
    for entry in tar::Archive::new(unpacked).entries().map_err(damaged)? {
        let entry = entry.map_err(damaged)?;
        let name = entry.path_bytes();
        let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let Some(index) = wanted.iter().position(|(wanted, _)| wanted.as_bytes() == name) else { continue };
        if entry.header().entry_type().is_file() {
            bytes.clear();
            entry.take(wanted[index].1 as u64 + 1).read_to_end(&mut bytes).map_err(damaged)?;
            each(index, &bytes)?;
        }
    }
    Ok(())
}

fn read_file(path: &Path, max_bytes: usize) -> Result<Vec<u8>, DataError> {
    let unreadable = |source| DataError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let len = file.metadata().map_err(unreadable)?.len().min(max_bytes as u64);
    let mut bytes = Vec::with_capacity(len as usize);
    file.take(max_bytes as u64).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn unpack_zstandard(packed: &[u8], limit: usize) -> Result<Vec<u8>, FrameDecoderError> {
    let mut bytes = vec![0; limit + 1];
    match FrameDecoder::new().decode_all(packed, &mut bytes) {
        Ok(len) => bytes.truncate(len),
        Err(FrameDecoderError::TargetTooSmall) => {}
        Err(damaged) => return Err(damaged),
    }
    Ok(bytes)
}
