//! Everything below a directory of a share, with sizes. Links are not followed into directories.

use corro_client::files::Entry;
use corro_client::{ClientError, FileService};

/// A file, or a link, below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Path on the share.
    pub path: String,
    pub size: u64,
    /// Text of a link that leads to no file of the share.
    pub dead_link: Option<String>,
}

/// A directory of a share with all that is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub files: Vec<TreeFile>,
    /// Paths of the directories, parents first, with the directory itself unless it is the root.
    pub directories: Vec<String>,
}

/// Reads the tree below `path`.
pub async fn read_tree(files: &FileService, share: &str, path: &str) -> Result<Tree, ClientError> {
    let mut tree = Tree::default();
    let mut unvisited = vec![path.to_owned()];
    while let Some(directory) = unvisited.pop() {
        let within = |name: &str| if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
        for entry in files.list(share, &directory).await? {
            match entry {
                Entry::Directory { name } => unvisited.push(within(&name)),
                Entry::File { name, length } => {
                    tree.files.push(TreeFile { path: within(&name), size: length, dead_link: None });
                }
                Entry::Link { name, length, link } => {
                    let dead_link = (!link.leads_to_file).then_some(link.text);
                    tree.files.push(TreeFile { path: within(&name), size: length, dead_link });
                }
            }
        }
        if !directory.is_empty() {
            tree.directories.push(directory);
        }
    }
    tree.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    tree.directories.sort_unstable();
    Ok(tree)
}

/// Whether the path is a directory of the share. The root is one.
pub async fn is_directory(files: &FileService, share: &str, path: &str) -> Result<bool, ClientError> {
    if path.is_empty() {
        return files.share_properties(share).await.map(|_| true);
    }
    match files.directory_properties(share, path).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
