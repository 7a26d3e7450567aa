//! Large test files for transfers: creation, hashing, copying. Every pass uses one small buffer, so that this process stays
//! small.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

const BUFFER_BYTES: usize = 1 << 20;

/// Writes incompressible `bytes` that depend on `seed` and syncs them, so that writeback does not disturb the next measurement.
pub fn write_random(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path).context("cannot create a large file")?);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..bytes / 8 {
        // xorshift64: fast, and good enough to defeat any compression on the way.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(())
}

pub fn fingerprint(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("a transferred file is missing: {}", path.display()))?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; BUFFER_BYTES]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Seconds for a plain copy by reads and writes; with `sync`, until it is on the disk.
pub fn copy(from: &Path, to: &Path, sync: bool) -> Result<f64> {
    let began = Instant::now();
    let (mut source, mut copy, mut buffer) = (File::open(from)?, File::create(to)?, vec![0; BUFFER_BYTES]);
    loop {
        match source.read(&mut buffer)? {
            0 => break,
            count => copy.write_all(&buffer[..count])?,
        }
    }
    if sync {
        copy.sync_all()?;
    }
    Ok(began.elapsed().as_secs_f64())
}

pub fn sync(path: &Path) -> Result<()> {
    Ok(File::open(path)?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_as_long_as_asked_and_differs_by_seed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let [a, b, c] = ["a", "b", "c"].map(|name| dir.path().join(name));
        write_random(&a, 4096, 1).expect("made");
        write_random(&b, 4096, 2).expect("made");
        copy(&a, &c, true).expect("copied");
        assert_eq!(std::fs::metadata(&a).expect("there").len(), 4096);
        assert_ne!(fingerprint(&a).expect("read"), fingerprint(&b).expect("read"));
        assert_eq!(fingerprint(&a).expect("read"), fingerprint(&c).expect("read"));
    }
}
