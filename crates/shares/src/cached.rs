//! Small files without waiting: everything that is asked of the kernel here it answers from its caches or not at all
//! (`RESOLVE_CACHED`, `RWF_NOWAIT`). Entered by the file service on threads that must not wait for a disk. Whoever gets `None` asks
//! again the usual way, where there is time: nothing can be concluded from it, not even that a file is missing.

use std::{fs::File, io::IoSliceMut, ops::Range};

use rustix::{
    fs::fstat,
    io::{ReadWriteFlags, preadv2},
};

use crate::{Kind, Properties, SharePath, Shares, Stat, beneath, keeping, trees::check_names};

/// An open file and what is kept beside its content.
#[derive(Debug)]
pub struct Cached {
    pub file: File,
    pub stat: Stat,
    pub properties: Properties,
}

impl Shares {
    /// A file of a share. One that is reached through a link is left to the usual way.
    pub fn open_cached(&self, account: &str, share: &str, path: &SharePath) -> Option<Cached> {
        let file = beneath::open_cached(&self.common.root, &whole(account, share, path)?)?;
        let stat = Stat::of_handle(&file, path).ok().filter(|stat| stat.kind == Kind::File)?;
        let properties = keeping::read_cached(&self.common, &file)?;
        Some(Cached { file, stat, properties })
    }

    /// The id of the directory that holds something.
    pub fn parent_cached(&self, account: &str, share: &str, path: &SharePath) -> Option<u64> {
        let (above, _) = path.split()?;
        let directory = beneath::open_dir_cached(&self.common.root, &whole(account, share, &above)?)?;
        Some(fstat(&directory).ok()?.st_ino)
    }
}

/// From the root of all shares. One walk is enough: none of the names is `..`, and no link is followed.
fn whole(account: &str, share: &str, path: &SharePath) -> Option<String> {
    check_names(account, share).ok()?;
    Some(match path.is_root() {
        true => [account, "/", share].concat(),
        false => [account, "/", share, "/", path.as_str()].concat(),
    })
}

/// All bytes of a range, which the file must have.
pub fn read_cached(file: &File, range: Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    let read = preadv2(file, &mut [IoSliceMut::new(&mut bytes)], range.start, ReadWriteFlags::NOWAIT);
    (read == Ok(bytes.len())).then_some(bytes)
}
