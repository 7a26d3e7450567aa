//! Lists the files in the directory of a job's script, so that an explanation can name a file that a program looked for
//! in another directory.

use std::collections::VecDeque;

use corro_model::explain::{ProjectFiles, project_root};
use corro_shares::{Kind, PageRequest, SharePath};

use crate::app::App;
use crate::app::jobs::output_files::tree_at;
use crate::app::resources::lookup::{JobPath, find_job};

/// Maximum number of listed entries, and depth of directories.
const MAX_ENTRIES: usize = 2000;
const MAX_DEPTH: usize = 4;

impl App {
    /// Files of a job, nearest first. `None` if they are on no share. Blocking: reads directories.
    pub fn project_files(&self, path: &JobPath) -> Option<ProjectFiles> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path).ok()?;
        let root = project_root(&job.spec)?;
        let tree = tree_at(&snapshot, &job, &root)?;
        let share = self.open_tree(&tree).ok()?;
        let mut directories = VecDeque::from([(SharePath::parse(&tree.inside).ok()?, String::new(), 0)]);
        let (mut files, mut n_entries) = (Vec::new(), 0);
        while let Some((directory, below, depth)) = directories.pop_front() {
            let page =
                PageRequest { prefix: "", from: "", limit: MAX_ENTRIES.saturating_sub(n_entries), described: false };
            // A directory that cannot be read has no files to offer.
            let Ok(page) = share.list_page(&directory, page) else { continue };
            n_entries += page.entries.len();
            for entry in page.entries.iter().filter(|entry| !entry.name.starts_with(['.', '_']) || is_init(&entry.name))
            {
                let name = if below.is_empty() { entry.name.clone() } else { format!("{below}/{}", entry.name) };
                match entry.kind() {
                    Kind::Directory if depth < MAX_DEPTH => {
                        if let Ok(child) = directory.child(&entry.name) {
                            directories.push_back((child, name, depth + 1));
                        }
                    }
                    Kind::Directory => {}
                    _ => files.push(name),
                }
            }
            if n_entries >= MAX_ENTRIES {
                break;
            }
        }
        Some(ProjectFiles { root, files })
    }
}

/// The file that makes a directory a Python package. Other names with an underscore are caches.
fn is_init(name: &str) -> bool {
    name == "__init__.py"
}
