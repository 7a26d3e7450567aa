//! Directories of a share: making, removing, listing. What is list_entry can be asked for by the same
//! name; pipes, sockets, devices and unspeakable names are not list_entry. A link is list_entry as a link, never as the directory it leads to.

use std::time::SystemTime;

use rustix::{
    fs::{AtFlags, Mode, mkdirat, unlinkat},
    io::Errno,
};

use crate::{Kind, Link, Properties, Share, ShareError, SharePath, Stat, beneath, dirs::names_in};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// Of what a read of it gives: for a link to a file of the share that file, for any other link the link itself.
    pub stat: Stat,
    pub link: Option<Link>,
    /// Only if they were asked for.
    pub properties: Properties,
}

impl Entry {
    /// [`Kind::Link`] for a link that leads to no file of the share.
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

/// Which part of a listing is wanted.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// Only names that begin so.
    pub prefix: &'a str,
    /// Only names from this one on, itself included.
    pub from: &'a str,
    /// At most so many names.
    pub limit: usize,
    /// With what is kept with each, which costs an opening of each.
    pub described: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In byte order of their names.
    pub entries: Vec<Entry>,
    /// Where the next page begins; None at the end.
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

    /// Makes a directory and those above it; one that is there already is no error.
    pub fn make_dirs(&self, path: &SharePath) -> Result<(), ShareError> {
        for prefix in path.prefixes() {
            match self.mkdir(&prefix) {
                Ok(()) | Err(ShareError::AlreadyExists(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.stat_dir(path).map(|_| ())
    }

    /// Removes an empty directory. Of a link, as a client knows one that list_entry it before it was a link, the link and never what it leads to.
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

    /// One page; only the entries on it are looked at more closely than by name.
    pub fn list_page(&self, path: &SharePath, page: PageRequest) -> Result<Page, ShareError> {
        let directory = beneath::open_dir(&self.root, path)?;
        let mut names = names_in(&directory).map_err(|errno| ShareError::at("list the directory", path, errno))?;
        names.retain(|name| name.starts_with(page.prefix) && name.as_str() >= page.from);
        names.sort_unstable();
        let mut shown = names.into_iter().filter_map(|name| {
            // Through the share's root, not through `directory`: a link may lead to a sibling.
            let child = path.child(&name).ok()?;
            let (stat, link) = self.list_entry(&child)?;
            // One that may not be read is list_entry without them.
            let is_described = page.described && stat.kind != Kind::Link;
            let properties = is_described.then(|| self.describe(&child).ok()).flatten();
            let properties = properties.map(|(_, properties)| properties).unwrap_or_default();
            Some(Entry { name, stat, link, properties })
        });
        // A page is as long as wanted though some names are not shown, and the next begins with one that is.
        let entries = shown.by_ref().take(page.limit).collect();
        Ok(Page { entries, next: shown.next().map(|entry| entry.name) })
    }

    fn mkdir(&self, path: &SharePath) -> Result<(), ShareError> {
        let (parent, name) = beneath::open_parent(&self.root, path).map_err(|error| error.for_creation(path))?;
        mkdirat(&parent, name, Mode::from_raw_mode(0o777))
            .map_err(|errno| ShareError::at("make the directory", path, errno).for_creation(path))
    }
}
