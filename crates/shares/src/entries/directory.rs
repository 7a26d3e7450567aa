//! Directories of a share: create, remove, list. Every listed name can be opened. FIFOs, sockets, devices and names
//! that are no valid paths are not listed. A symbolic link is listed as a link, never as the directory it leads to.

use std::time::SystemTime;

use rustix::{
    fs::{AtFlags, Mode, mkdirat, unlinkat},
    io::Errno,
};

use crate::{
    Kind, Link, Properties, Share, ShareError, SharePath, Stat,
    tree::{beneath, dirs::names_in},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// Metadata of the content: for a link to a file of the share that file, for any other link the link itself.
    pub stat: Stat,
    pub link: Option<Link>,
    /// Only if requested.
    pub properties: Properties,
}

impl Entry {
    /// [`Kind::Link`] for a link that does not lead to a file of the share.
    pub fn kind(&self) -> Kind {
        self.stat.kind
    }

    pub fn len(&self) -> u64 {
        self.stat.len
    }

    pub fn is_empty(&self) -> bool {
        self.stat.len == 0
    }

    pub fn modified(&self) -> SystemTime {
        self.stat.modified
    }
}

/// Page of a listing.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// Only names with this prefix.
    pub prefix: &'a str,
    /// Only names from this one on, inclusive.
    pub from: &'a str,
    /// Maximum number of names.
    pub limit: usize,
    /// Include the stored properties, which opens each file.
    pub described: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In byte order of their names.
    pub entries: Vec<Entry>,
    /// First name of the next page; `None` at the end.
    pub next: Option<String>,
}

impl Share {
    pub fn create_dir(&self, path: &SharePath) -> Result<Stat, ShareError> {
        if path.is_root() {
            return Err(ShareError::AlreadyExists(SharePath::ROOT));
        }
        self.mkdir(path)?;
        self.stat_dir(path)
    }

    /// Creates a directory and its parents; existing ones are no error.
    pub fn make_dirs(&self, path: &SharePath) -> Result<(), ShareError> {
        for prefix in path.prefixes() {
            match self.mkdir(&prefix) {
                Ok(()) | Err(ShareError::AlreadyExists(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.stat_dir(path).map(|_| ())
    }

    /// Removes an empty directory. If it was replaced by a link since a client listed it, removes the link and never
    /// its target.
    pub fn delete_dir(&self, path: &SharePath) -> Result<(), ShareError> {
        let (parent, name) = beneath::open_parent(&self.root, path)?;
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTDIR) if self.lstat(path)?.kind == Kind::Link => self.delete_file(path),
            Err(Errno::NOTDIR) => Err(ShareError::WrongKind(path.clone())),
            removed => removed.map_err(|errno| ShareError::at("delete the directory", path, errno)),
        }
    }

    /// All entries, in byte order of their names.
    pub fn list(&self, path: &SharePath) -> Result<Vec<Entry>, ShareError> {
        let all = PageRequest { prefix: "", from: "", limit: usize::MAX, described: false };
        Ok(self.list_page(path, all)?.entries)
    }

    /// One page. Only the entries on the page are opened.
    pub fn list_page(&self, path: &SharePath, page: PageRequest) -> Result<Page, ShareError> {
        let directory = beneath::open_dir(&self.root, path)?;
        let mut names = names_in(&directory).map_err(|errno| ShareError::at("list the directory", path, errno))?;
        names.retain(|name| name.starts_with(page.prefix) && name.as_str() >= page.from);
        names.sort_unstable();
        let mut listed = names.into_iter().filter_map(|name| {
            // Resolved from the share's root, not from `directory`: a link may lead to a sibling.
            let child = path.child(&name).ok()?;
            let (stat, link) = self.list_entry(&child)?;
            // An unreadable file is listed without properties.
            let is_described = page.described && stat.kind != Kind::Link;
            let properties = is_described.then(|| self.describe(&child).ok()).flatten();
            let properties = properties.map(|(_, properties)| properties).unwrap_or_default();
            Some(Entry { name, stat, link, properties })
        });
        // Skipped names do not shorten a page, and the next page begins with a listed name.
        let entries = listed.by_ref().take(page.limit).collect();
        Ok(Page { entries, next: listed.next().map(|entry| entry.name) })
    }

    fn mkdir(&self, path: &SharePath) -> Result<(), ShareError> {
        let (parent, name) = beneath::open_parent(&self.root, path).map_err(|error| error.for_creation(path))?;
        mkdirat(&parent, name, Mode::from_raw_mode(0o777))
            .map_err(|errno| ShareError::at("create the directory", path, errno).for_creation(path))
    }
}
