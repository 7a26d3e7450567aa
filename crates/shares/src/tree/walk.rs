//! Walks all entries of a share, parents before children. Never follows a link, so it ends. Entries removed meanwhile
//! are skipped.

use crate::{
    Kind, Share, ShareError, SharePath, Stat,
    tree::{beneath, dirs::names_in},
};

/// An entry of a walk. FIFOs, sockets and devices are skipped.
#[derive(Debug)]
pub(crate) enum WalkEntry {
    File(Stat),
    Directory(Stat),
    Link,
}

impl Share {
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(&SharePath, &WalkEntry) -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        let mut unvisited = vec![SharePath::ROOT];
        while let Some(path) = unvisited.pop() {
            for (child, found) in self.children(&path)? {
                visit(&child, &found)?;
                if matches!(found, WalkEntry::Directory(_)) {
                    unvisited.push(child);
                }
            }
        }
        Ok(())
    }

    /// Entries of a directory; empty if it was just removed.
    fn children(&self, path: &SharePath) -> Result<Vec<(SharePath, WalkEntry)>, ShareError> {
        let directory = match beneath::open_real_dir(&self.root, path) {
            Err(ShareError::NotFound(_)) if !path.is_root() => return Ok(Vec::new()),
            opened => opened?,
        };
        let names = names_in(&directory).map_err(|errno| ShareError::at("list the directory", path, errno))?;
        let found = names.into_iter().filter_map(|name| {
            let child = path.child(&name).ok()?;
            let stat = self.lstat(&child).ok()?;
            let found = match stat.kind {
                Kind::File => WalkEntry::File(stat),
                Kind::Directory => WalkEntry::Directory(stat),
                Kind::Link => WalkEntry::Link,
            };
            Some((child, found))
        });
        Ok(found.collect())
    }
}
