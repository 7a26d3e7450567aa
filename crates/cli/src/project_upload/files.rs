//! The files of a project directory that a job gets: everything that `.gitignore` and `.corroignore` do not exclude. Walks the directory and computes
//! the SHA-256 digest of each file; sends nothing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use ring::digest::{Context, SHA256};

use crate::error::CliError;

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFile {
    /// Path below the project directory, with `/` between names.
    pub path: String,
    pub source: PathBuf,
    pub size: u64,
    /// SHA-256 of the content, in hexadecimal.
    pub digest: String,
}

/// The files of a project and what was left out.
#[derive(Debug, Default)]
pub struct ProjectFiles {
    /// In byte order of their paths.
    pub files: Vec<ProjectFile>,
    /// Paths that cannot be sent, with the reason.
    pub skipped: Vec<String>,
}

/// Names that are never sent: version control and caches.
const EXCLUDED_NAMES: [&str; 10] = [
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".DS_Store",
];
/// A directory with this file is a virtual environment.
const VENV_MARKER: &str = "pyvenv.cfg";
/// File with patterns in the syntax of `.gitignore` that concern jobs only.
pub const IGNORE_FILE: &str = ".corroignore";

const READ_BYTES: usize = 1024 * 1024;

impl ProjectFiles {
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> + Clone {
        self.files.iter().map(|file| file.path.as_str())
    }

    /// The largest files, at most `n`.
    pub fn largest(&self, n: usize) -> Vec<&ProjectFile> {
        let mut files: Vec<&ProjectFile> = self.files.iter().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.size));
        files.truncate(n);
        files
    }
}

/// Collects the files below `dir`. Blocks.
pub fn collect(dir: &Path) -> Result<ProjectFiles, CliError> {
    let mut found = ProjectFiles::default();
    let walk = WalkBuilder::new(dir)
        .hidden(false)
        .require_git(false)
        .add_custom_ignore_filename(IGNORE_FILE)
        .sort_by_file_path(Path::cmp)
        .filter_entry(|entry| entry.depth() == 0 || !is_excluded(entry.path()))
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| CliError::new(format!("cannot read {}", dir.display())).cause(error))?;
        let Some(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            continue;
        }
        let relative = entry.path().strip_prefix(dir).unwrap_or(entry.path());
        // A link to a file is sent as that file; a link to a directory could lead anywhere.
        let metadata = match fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            Err(error) => {
                found.skipped.push(format!("{}: {error}", relative.display()));
                continue;
            }
        };
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "a link to a directory" } else { "not a regular file" };
            found.skipped.push(format!("{}: {what}", relative.display()));
            continue;
        }
        match share_path(relative) {
            Ok(path) => {
                let (size, digest) = digest_of(entry.path())?;
                found.files.push(ProjectFile { path, source: entry.into_path(), size, digest });
            }
            Err(reason) => found.skipped.push(format!("{}: {reason}", relative.display())),
        }
    }
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn is_excluded(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    EXCLUDED_NAMES.contains(&name) || path.join(VENV_MARKER).is_file()
}

/// The path on a share. Names that Azure Files does not allow are refused here, before the first request.
fn share_path(relative: &Path) -> Result<String, &'static str> {
    let text = relative.to_str().ok_or("its name is not UTF-8")?;
    let is_forbidden = |c: char| c.is_control() || "\"\\:|<>*?".contains(c);
    if text.chars().any(is_forbidden) {
        return Err("a share allows no control characters and none of \" \\ : | < > * ? in names");
    }
    if text.split('/').any(|name| name.ends_with('.') || name.len() > 255) {
        return Err("a share allows no names that end with a dot or are longer than 255 bytes");
    }
    Ok(text.to_owned())
}

/// Size and SHA-256 digest of a file, read once.
pub fn digest_of(path: &Path) -> Result<(u64, String), CliError> {
    let read = || -> io::Result<(u64, String)> {
        let mut file = File::open(path)?;
        let (mut context, mut size, mut buffer) = (Context::new(&SHA256), 0, vec![0; READ_BYTES]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => {
                    context.update(&buffer[..n]);
                    size += n as u64;
                }
            }
        }
        let digest = context.finish();
        Ok((size, digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()))
    };
    read().map_err(|error| CliError::new(format!("cannot read {}", path.display())).cause(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
        fs::write(path, text).expect("file");
    }

    fn paths(found: &ProjectFiles) -> Vec<&str> {
        found.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn ignored_files_are_left_out() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path();
        for path in [
            "train.py",
            "src/model.py",
            "src/__pycache__/model.pyc",
            "data/big.bin",
            "data/small.txt",
            "notes.md",
            ".env.example",
            ".git/config",
            "env/pyvenv.cfg",
            "env/lib/x.py",
            "deep/keep.log",
            "deep/drop.log",
        ] {
            write(root, path, path);
        }
        write(root, ".gitignore", "*.bin\n*.log\n");
        write(root, "deep/.gitignore", "!keep.log\n");
        write(root, ".corroignore", "notes.md\n");
        let found = collect(root).expect("collected");
        let expected = [
            ".corroignore",
            ".env.example",
            ".gitignore",
            "data/small.txt",
            "deep/.gitignore",
            "deep/keep.log",
            "src/model.py",
            "train.py",
        ];
        assert_eq!(paths(&found), expected);
        assert!(found.skipped.is_empty(), "{:?}", found.skipped);
        assert_eq!(found.total_bytes(), found.files.iter().map(|file| file.size).sum::<u64>());
    }

    #[test]
    fn digests_are_sha_256() {
        let dir = tempfile::tempdir().expect("directory");
        write(dir.path(), "a", "abc");
        let (size, digest) = digest_of(&dir.path().join("a")).expect("read");
        assert_eq!((size, digest.as_str()), (3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    }

    #[test]
    fn links_and_impossible_names() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path();
        write(root, "a.py", "x");
        write(root, "sub/b.py", "y");
        write(root, "what?.txt", "z");
        symlink("a.py", root.join("link.py")).expect("link");
        symlink("sub", root.join("dir")).expect("link");
        symlink("nowhere", root.join("broken")).expect("link");
        let found = collect(root).expect("collected");
        assert_eq!(paths(&found), ["a.py", "link.py", "sub/b.py"]);
        let skipped: Vec<&str> = found.skipped.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(skipped, ["broken", "dir", "what?.txt"]);
    }
}
