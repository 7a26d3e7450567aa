//! Inode numbers and the names they belong to. Pure. A number belongs to a name in a directory and moves with it on
//! rename. It lives as long as the kernel remembers it, a handle is open, or an entry below it lives. Knows nothing of
//! the share's content.

use std::collections::HashMap;

/// Inode of the root directory, as FUSE defines it.
pub const ROOT: u64 = 1;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    /// A symbolic link. The kernel resolves it on this machine.
    Link,
}

/// All inodes that the kernel or an open handle knows.
#[derive(Debug)]
pub struct Inodes {
    nodes: HashMap<u64, Node>,
    names: HashMap<(u64, String), u64>,
    next: u64,
}

#[derive(Debug)]
struct Node {
    /// Parent and name; `None` if the name was removed or belongs to another inode.
    name: Option<(u64, String)>,
    /// The former name of an inode that was replaced by another one; its path still works.
    detached_name: Option<(u64, String)>,
    kind: Kind,
    /// Lookup count: how often the number was sent to the kernel and not forgotten by it.
    lookups: u64,
    /// Number of open handles.
    open_handles: u64,
    children: u64,
}

impl Default for Inodes {
    fn default() -> Self {
        let root =
            Node { name: None, detached_name: None, kind: Kind::Directory, lookups: 1, open_handles: 1, children: 0 };
        Inodes { nodes: HashMap::from([(ROOT, root)]), names: HashMap::new(), next: ROOT + 1 }
    }
}

impl Inodes {
    /// The number of an existing name, for an answer to the kernel: increments the lookup count.
    pub fn look_up(&mut self, parent: u64, name: &str, kind: Kind) -> u64 {
        let inode = match self.find(parent, name) {
            Some(inode) if self.nodes.get(&inode).is_some_and(|node| node.kind == kind) => inode,
            found => {
                if found.is_some() {
                    // An entry that changed its kind is a new inode.
                    self.remove_name(parent, name);
                }
                self.add(parent, name, kind)
            }
        };
        self.nodes.get_mut(&inode).expect("found or just made").lookups += 1;
        inode
    }

    /// The number of a name, if it has one.
    pub fn find(&self, parent: u64, name: &str) -> Option<u64> {
        self.names.get(&(parent, name.to_owned())).copied()
    }

    /// Decrements the lookup count. True if the inode is gone.
    pub fn forget(&mut self, inode: u64, lookups: u64) -> bool {
        if let Some(node) = self.nodes.get_mut(&inode).filter(|_| inode != ROOT) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        self.drop_unneeded(inode);
        !self.nodes.contains_key(&inode)
    }

    pub fn add_handle(&mut self, inode: u64) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.open_handles += 1;
        }
    }

    /// Closes a handle. True if it was the last one.
    pub fn release(&mut self, inode: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&inode) else { return true };
        node.open_handles = node.open_handles.saturating_sub(1);
        let last = node.open_handles == 0;
        self.drop_unneeded(inode);
        last
    }

    /// Path on the share without a leading slash; `None` for an inode without a name.
    pub fn path(&self, inode: u64) -> Option<String> {
        let mut names = Vec::new();
        let mut at = inode;
        while at != ROOT {
            let node = self.nodes.get(&at)?;
            let (parent, name) = node.name.as_ref().or(node.detached_name.as_ref())?;
            names.push(name.as_str());
            at = *parent;
        }
        names.reverse();
        Some(names.join("/"))
    }

    /// Path of a name in a directory.
    pub fn child_path(&self, parent: u64, name: &str) -> Option<String> {
        let directory = self.path(parent)?;
        Some(if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") })
    }

    pub fn kind(&self, inode: u64) -> Option<Kind> {
        self.nodes.get(&inode).map(|node| node.kind)
    }

    /// The parent directory; that of the root is the root.
    pub fn parent(&self, inode: u64) -> u64 {
        self.nodes.get(&inode).and_then(|node| node.name.as_ref()).map_or(ROOT, |(parent, _)| *parent)
    }

    /// Removes a name that no longer exists on the share.
    pub fn remove_name(&mut self, parent: u64, name: &str) {
        let Some(inode) = self.names.remove(&(parent, name.to_owned())) else { return };
        self.nodes.get_mut(&inode).expect("names are of nodes").name = None;
        self.on_child_removed(parent);
        self.drop_unneeded(inode);
    }

    /// Parent and name of an inode.
    pub fn name_of(&self, inode: u64) -> Option<(u64, String)> {
        self.nodes.get(&inode)?.name.clone()
    }

    /// Detaches the inode from its name and returns it. The name will get another number; the file is still found under
    /// the old one.
    pub fn detach_name(&mut self, inode: u64) -> Option<(u64, String)> {
        let (parent, name) = self.name_of(inode)?;
        self.nodes.get_mut(&inode)?.detached_name = Some((parent, name.clone()));
        self.remove_name(parent, &name);
        Some((parent, name))
    }

    /// Moves a name, replacing the target.
    pub fn rename(&mut self, (parent, name): (u64, &str), (new_parent, new_name): (u64, &str)) {
        if (parent, name) == (new_parent, new_name) {
            return;
        }
        self.remove_name(new_parent, new_name);
        let Some(inode) = self.names.remove(&(parent, name.to_owned())) else { return };
        let Some(directory) = self.nodes.get_mut(&new_parent) else { return };
        directory.children += 1;
        self.names.insert((new_parent, new_name.to_owned()), inode);
        self.nodes.get_mut(&inode).expect("names are of nodes").name = Some((new_parent, new_name.to_owned()));
        self.on_child_removed(parent);
    }

    /// Whether `inode` is `above` or below it.
    pub fn is_within(&self, inode: u64, above: u64) -> bool {
        let mut at = inode;
        loop {
            if at == above {
                return true;
            }
            match self.nodes.get(&at).and_then(|node| node.name.as_ref()) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
    }

    fn add(&mut self, parent: u64, name: &str, kind: Kind) -> u64 {
        let inode = self.next;
        self.next += 1;
        let name = match self.nodes.get_mut(&parent) {
            Some(directory) => {
                directory.children += 1;
                self.names.insert((parent, name.to_owned()), inode);
                Some((parent, name.to_owned()))
            }
            None => None,
        };
        self.nodes.insert(inode, Node { name, detached_name: None, kind, lookups: 0, open_handles: 0, children: 0 });
        inode
    }

    fn on_child_removed(&mut self, parent: u64) {
        if let Some(directory) = self.nodes.get_mut(&parent) {
            directory.children -= 1;
        }
        self.drop_unneeded(parent);
    }

    fn drop_unneeded(&mut self, inode: u64) {
        let unneeded = |node: &Node| node.lookups == 0 && node.open_handles == 0 && node.children == 0;
        if inode == ROOT || !self.nodes.get(&inode).is_some_and(unneeded) {
            return;
        }
        let node = self.nodes.remove(&inode).expect("looked at above");
        if let Some((parent, name)) = node.name {
            self.names.remove(&(parent, name));
            self.on_child_removed(parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use corro_test_support::rng::SplitMix64;

    #[test]
    fn inodes_move_with_their_names() {
        let mut inodes = Inodes::default();
        let directory = inodes.look_up(ROOT, "d", Kind::Directory);
        let file = inodes.look_up(directory, "f", Kind::File);
        assert_eq!(inodes.path(file).as_deref(), Some("d/f"));
        inodes.rename((ROOT, "d"), (ROOT, "e"));
        assert_eq!(inodes.path(file).as_deref(), Some("e/f"));
        assert_eq!(inodes.look_up(directory, "f", Kind::File), file);
        let other = inodes.look_up(directory, "f", Kind::Directory);
        assert!(other != file && inodes.path(file).is_none(), "a directory is not the file that was there");
        assert!(inodes.is_within(other, directory) && !inodes.is_within(directory, other));
        inodes.add_handle(file);
        assert!(!inodes.forget(file, 2), "somebody has it open");
        assert!(inodes.release(file) && inodes.kind(file).is_none());
        assert!(inodes.forget(other, 1) && !inodes.forget(ROOT, 9));
        assert!(inodes.forget(directory, 1));
        assert_eq!((inodes.nodes.len(), inodes.names.len()), (1, 0));
    }

    /// Random operations against a map of paths: numbers always lead to the right paths, and nothing is left at the
    /// end.
    #[test]
    fn random_steps_keep_inodes_and_paths_consistent() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let mut inodes = Inodes::default();
            let mut model: BTreeMap<u64, (Option<String>, u64)> = BTreeMap::new();
            for _ in 0..60 {
                let name = ["a", "b", "c"][rng.below(3) as usize];
                let other = ["a", "b", "c"][rng.below(3) as usize];
                match rng.below(4) {
                    0 => {
                        let inode = inodes.look_up(ROOT, name, Kind::File);
                        let entry = model.entry(inode).or_insert((Some(name.to_owned()), 0));
                        entry.1 += 1;
                        assert_eq!(entry.0.as_deref(), Some(name), "seed {seed}");
                    }
                    1 => {
                        inodes.remove_name(ROOT, name);
                        model
                            .values_mut()
                            .filter(|(path, _)| path.as_deref() == Some(name))
                            .for_each(|entry| entry.0 = None);
                    }
                    2 => {
                        let known = inodes.find(ROOT, name);
                        inodes.rename((ROOT, name), (ROOT, other));
                        if name != other {
                            model
                                .values_mut()
                                .filter(|(path, _)| path.as_deref() == Some(other))
                                .for_each(|e| e.0 = None);
                            if let Some(known) = known {
                                model.get_mut(&known).expect("it was looked up").0 = Some(other.to_owned());
                            }
                        }
                    }
                    _ => {
                        if let Some((&inode, _)) = model.iter().nth(rng.below(3) as usize) {
                            let gone = inodes.forget(inode, 1);
                            let entry = model.get_mut(&inode).expect("there");
                            entry.1 -= 1;
                            assert_eq!(gone, entry.1 == 0, "seed {seed}");
                            if gone {
                                model.remove(&inode);
                            }
                        }
                    }
                }
                for (inode, (path, _)) in &model {
                    assert_eq!(inodes.path(*inode), *path, "seed {seed}");
                }
            }
            for (inode, (_, lookups)) in &model {
                assert!(inodes.forget(*inode, *lookups), "seed {seed}");
            }
            assert_eq!((inodes.nodes.len(), inodes.names.len()), (1, 0), "seed {seed}");
        }
    }
}
