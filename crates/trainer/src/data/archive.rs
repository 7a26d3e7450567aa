//! Reads batch files: uncompressed, Zstandard-compressed, or inside of the official archive. The caller limits the size
//! of a file; memory use stays close to that limit whatever the compressed data claims.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::FrameDecoderError;

use super::DataError;

/// A batch file on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackedFile {
    Plain(PathBuf),
    Zstandard(PathBuf),
}

/// Size allowance for other contents of the archive: headers, class names, a readme.
const ARCHIVE_OVERHEAD: usize = 1 << 20;

impl PackedFile {
    /// Finds the file with that name in a directory, compressed or not.
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

    /// The uncompressed bytes, or the first `limit + 1` of them if there are more than `limit`.
    pub fn read(&self, limit: usize) -> Result<Vec<u8>, DataError> {
        match self {
            PackedFile::Plain(path) => read_file(path, limit + 1),
            PackedFile::Zstandard(path) => {
                // Incompressible data grows by three bytes per block of 128 KiB.
                let packed = read_file(path, limit + limit / 1024 + (1 << 16))?;
                unpack_zstandard(&packed, limit)
                    .map_err(|cause| DataError::Unpack { path: path.clone(), source: Box::new(cause) })
            }
        }
    }
}

/// Calls `each` with the bytes of every file in a `.tar.gz` whose base name is among the `wanted`, limited as in
/// [`PackedFile::read`]. Links, devices and directories are skipped.
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
