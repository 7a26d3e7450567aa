//! Flat listing of a tree as in the blob service: all files as one sorted list of names with slashes, by prefix, from a
//! marker on, with names behind a delimiter grouped. Directories appear only through their files. A symbolic link is
//! one name; linked directories are not descended into, so the listing ends.

use rustix::fs::{Dir, FileType};

use crate::{Kind, Link, Properties, Share, ShareError, SharePath, Stat, tree::beneath};

/// Page of a flat listing.
#[derive(Debug, Clone, Copy)]
pub struct FlatRequest<'a> {
    pub prefix: &'a str,
    /// Only names from this one on, inclusive.
    pub from: &'a str,
    /// Names that continue after the delimiter are grouped under one prefix. Empty: no grouping.
    pub delimiter: &'a str,
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlatEntry {
    File {
        name: String,
        /// Metadata of the content.
        stat: Stat,
        link: Option<Box<Link>>,
        properties: Properties,
    },
    /// Common prefix, up to the delimiter, of at least one name.
    Prefix(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlatPage {
    /// In byte order of their names.
    pub items: Vec<FlatEntry>,
    /// First name of the next page; `None` at the end.
    pub next: Option<String>,
}

impl Share {
    pub fn list_flat(&self, request: FlatRequest<'_>) -> Result<FlatPage, ShareError> {
        let mut page = FlatPage::default();
        self.visit(&SharePath::ROOT, &request, &mut page)?;
        Ok(page)
    }

    /// False when the page is full.
    fn visit(&self, path: &SharePath, request: &FlatRequest<'_>, page: &mut FlatPage) -> Result<bool, ShareError> {
        for Child { path: child, full, is_directory } in self.sorted_children(path)? {
            let matches = full.starts_with(request.prefix);
            let leads = is_directory && request.prefix.starts_with(&full);
            // All names in a directory begin with its name: they are before `from` if the directory is, unless `from`
            // is inside it.
            let is_before = full.as_str() < request.from && !(is_directory && request.from.starts_with(&full));
            if !(matches || leads) || is_before {
                continue;
            }
            let group = if matches { group_prefix(&full, request) } else { None };
            let continues = match group {
                Some(group) => {
                    let is_new = group >= request.from && page.items.last().is_none_or(|last| !last.is_prefix(group));
                    let is_there = || if is_directory { self.contains_file(&child) } else { Ok(true) };
                    !is_new
                        || !is_there()?
                        || page.push(group, request.limit, || Some(FlatEntry::Prefix(group.to_owned())))
                }
                None if is_directory => self.visit(&child, request, page)?,
                None => page.push(&full, request.limit, || {
                    let (stat, link) = self.list_entry(&child).filter(|(stat, _)| stat.kind != Kind::Directory)?;
                    // An unreadable file is listed without properties.
                    let properties = match stat.kind {
                        Kind::Link => Properties::default(),
                        _ => self.describe(&child).map(|(_, properties)| properties).unwrap_or_default(),
                    };
                    Some(FlatEntry::File { name: full.clone(), stat, link: link.map(Box::new), properties })
                }),
            };
            if !continues {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Entries of a directory in the order of their full names. Empty if the directory was just removed.
    fn sorted_children(&self, path: &SharePath) -> Result<Vec<Child>, ShareError> {
        let failed = |errno| ShareError::at("list the directory", path, errno);
        let directory = match beneath::open_real_dir(&self.root, path) {
            Err(ShareError::NotFound(_)) if !path.is_root() => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut children = Vec::new();
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(child) = entry.file_name().to_str().ok().and_then(|name| path.child(name).ok()) else { continue };
            let kind = match entry.file_type() {
                FileType::RegularFile => Some(Kind::File),
                FileType::Directory => Some(Kind::Directory),
                FileType::Symlink => Some(Kind::Link),
                FileType::Unknown => self.lstat(&child).ok().map(|stat| stat.kind),
                _ => None,
            };
            let Some(kind) = kind else { continue };
            let is_directory = kind == Kind::Directory;
            let full = format!("{}{}", child.as_str(), if is_directory { "/" } else { "" });
            children.push(Child { path: child, full, is_directory });
        }
        children.sort_unstable_by(|a, b| a.full.cmp(&b.full));
        Ok(children)
    }

    fn contains_file(&self, path: &SharePath) -> Result<bool, ShareError> {
        for child in self.sorted_children(path)? {
            if !child.is_directory || self.contains_file(&child.path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

struct Child {
    path: SharePath,
    /// Full name; for a directory with a slash at the end.
    full: String,
    is_directory: bool,
}

/// The prefix that a name is grouped under, if it continues behind the delimiter.
fn group_prefix<'n>(full: &'n str, request: &FlatRequest<'_>) -> Option<&'n str> {
    let FlatRequest { prefix, delimiter, .. } = request;
    if delimiter.is_empty() {
        return None;
    }
    let at = full[prefix.len()..].find(delimiter)?;
    Some(&full[..prefix.len() + at + delimiter.len()])
}

impl FlatEntry {
    fn is_prefix(&self, name: &str) -> bool {
        matches!(self, FlatEntry::Prefix(prefix) if prefix == name)
    }
}

impl FlatPage {
    /// False when the page is full; then the next page begins with this name.
    fn push(&mut self, name: &str, limit: usize, item: impl FnOnce() -> Option<FlatEntry>) -> bool {
        match self.items.len() < limit {
            true => self.items.extend(item()),
            false => self.next = Some(name.to_owned()),
        }
        self.next.is_none()
    }
}
