//! Reads the files from which a Python environment is made: the requirements or conda file, everything that it includes,
//! and local packages. Only files in the job's directories and volumes are read, in bounded number and size. What cannot
//! be summed up makes the environment one of this job alone. Blocks on the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::output::output_dir::OutputRoots;

use super::key::FileDigest;
use super::requirements::{Reference, references};

/// Requirements files of one environment.
const MAX_INCLUDES: usize = 64;
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files of all local packages.
const MAX_PACKAGE_FILES: usize = 5_000;
const MAX_PACKAGE_BYTES: u64 = 64 << 20;

/// Directories of a source tree that say nothing of the package: made by tools, some while it is installed.
const IGNORED_DIRECTORIES: [&str; 6] = [".git", ".venv", "__pycache__", "build", "node_modules", ".pytest_cache"];

/// What was read.
#[derive(Debug, Default)]
pub struct Sources {
    /// Contents of the requirements files.
    pub texts: Vec<String>,
    /// Digests of all files, in the order in which they were found.
    pub files: Vec<FileDigest>,
    /// Why the environment can only be used by this job.
    pub unshared_because: Option<String>,
}

#[derive(Debug, Error)]
pub enum SourceError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is larger than {} KiB: is it a requirements file?", path.display(), MAX_FILE_BYTES >> 10)]
    TooLarge { path: PathBuf },
    #[error("more than {MAX_INCLUDES} files are included: put them into fewer files")]
    TooMany,
    #[error("{} includes {url}, which nodes do not fetch: put the file beside it and include it by its path", path.display())]
    Url { path: PathBuf, url: String },
    #[error("{} is not UTF-8", path.display())]
    NotText { path: PathBuf },
}

/// Reads `file` and everything to which it refers. Local packages are relative to `base`, the directory in which pip
/// runs.
pub fn read_sources(
    roots: &OutputRoots,
    file: &Path,
    base: &Path,
    variables: &BTreeMap<String, String>,
) -> Result<Sources, SourceError> {
    let mut sources = Sources::default();
    let mut packages = PackageReader { roots, n_files: 0, n_bytes: 0 };
    let mut known = BTreeSet::new();
    let mut queue = VecDeque::from([normalize(file)]);
    while let Some(path) = queue.pop_front() {
        if !known.insert(path.clone()) {
            continue;
        }
        if known.len() > MAX_INCLUDES {
            return Err(SourceError::TooMany);
        }
        let text = read_text(roots, &path)?;
        sources.files.push(Sha256::digest(text.as_bytes()).into());
        for reference in references(&text, variables) {
            let parent = path.parent().unwrap_or(Path::new("/"));
            let (found, name) = match &reference {
                Reference::Include(url) if url.contains("://") => {
                    return Err(SourceError::Url { path, url: url.clone() });
                }
                Reference::Include(included) => {
                    queue.push_back(normalize(&parent.join(included)));
                    continue;
                }
                Reference::Editable(package) => (Err("it is editable, and lies in the job's directory"), package),
                Reference::Package(package) => (packages.digest_package(&normalize(&base.join(package))), package),
                Reference::PackageDirectory(links) => (packages.digest_listing(&normalize(&base.join(links))), links),
            };
            match found {
                Ok(digest) => sources.files.extend(digest),
                Err(why) => {
                    sources.unshared_because.get_or_insert_with(|| format!("{name}: {why}"));
                }
            }
        }
        sources.texts.push(text);
    }
    Ok(sources)
}

fn read_text(roots: &OutputRoots, path: &Path) -> Result<String, SourceError> {
    let failed = |source| SourceError::Read { path: path.to_owned(), source };
    let file = roots.read_file(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(SourceError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|_| SourceError::NotText { path: path.to_owned() })
}

/// Reads local packages; the bounds hold for all of them together.
struct PackageReader<'a> {
    roots: &'a OutputRoots,
    n_files: usize,
    n_bytes: u64,
}

/// Why the content of a package is not known.
type Unknown = &'static str;

const UNREADABLE: Unknown = "it is in no volume and no directory of the job, or cannot be read";
const TOO_LARGE: Unknown = "the package has too many files, or too large ones";

impl PackageReader<'_> {
    /// Digest of a package: an archive, or a directory with everything in it. `None` if there is none of that name; pip
    /// reports that, or the line was none of a package.
    fn digest_package(&mut self, path: &Path) -> Result<Option<FileDigest>, Unknown> {
        match self.roots.read_file(path) {
            Ok(file) => self.digest_file(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(_) => {
                let mut hash = Sha256::new();
                self.add_directory(path, "", &mut hash)?;
                Ok(Some(hash.finalize().into()))
            }
        }
    }

    /// Digest of the names, sizes and times of a directory's files.
    fn digest_listing(&mut self, path: &Path) -> Result<Option<FileDigest>, Unknown> {
        let mut hash = Sha256::new();
        for (name, metadata) in self.entries(path)? {
            hash.update(format!("{name} {} {}.{}\n", metadata.len(), metadata.mtime(), metadata.mtime_nsec()));
        }
        Ok(Some(hash.finalize().into()))
    }

    fn add_directory(&mut self, path: &Path, relative: &str, hash: &mut Sha256) -> Result<(), Unknown> {
        for (name, metadata) in self.entries(path)? {
            let (path, relative) = (path.join(&name), format!("{relative}/{name}"));
            if metadata.is_dir() {
                if !IGNORED_DIRECTORIES.contains(&name.as_str()) && !name.ends_with(".egg-info") {
                    self.add_directory(&path, &relative, hash)?;
                }
            } else if metadata.is_file() {
                hash.update(format!("{relative} {}\n", metadata.len()));
                hash.update(self.digest_file(self.roots.read_file(&path).map_err(|_| UNREADABLE)?)?);
            }
        }
        Ok(())
    }

    fn digest_file(&mut self, mut file: File) -> Result<FileDigest, Unknown> {
        let size = file.metadata().map_err(|_| UNREADABLE)?.len();
        self.n_bytes += size;
        if self.n_bytes > MAX_PACKAGE_BYTES {
            return Err(TOO_LARGE);
        }
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(hash.finalize().into()),
                Ok(n) => hash.update(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(UNREADABLE),
            }
        }
    }

    /// Names and metadata of a directory's entries, sorted by name. Links are not followed.
    fn entries(&mut self, path: &Path) -> Result<Vec<(String, std::fs::Metadata)>, Unknown> {
        let directory = self.roots.open_dir(path).map_err(|_| UNREADABLE)?;
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(directory.magic_path()).map_err(|_| UNREADABLE)? {
            let entry = entry.map_err(|_| UNREADABLE)?;
            let name = entry.file_name().into_string().map_err(|_| UNREADABLE)?;
            entries.push((name, entry.metadata().map_err(|_| UNREADABLE)?));
            self.n_files += 1;
            if self.n_files > MAX_PACKAGE_FILES {
                return Err(TOO_LARGE);
            }
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(entries)
    }
}

/// The path without `.` and `..`. A link before `..` is not followed.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A share with these files, and its path.
    fn share(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf, OutputRoots) {
        let base = tempfile::tempdir().expect("a temporary directory");
        let root = base.path().canonicalize().expect("a path").join("share");
        fs::create_dir(&root).expect("a share");
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("below the share")).expect("directories");
            fs::write(path, text).expect("a file");
        }
        let roots = OutputRoots::of_test(&root);
        (base, root, roots)
    }

    fn read(root: &Path, roots: &OutputRoots) -> Result<Sources, SourceError> {
        read_sources(roots, &root.join("requirements.txt"), root, &BTreeMap::new())
    }

    fn digests(files: &[(&str, &str)]) -> Vec<FileDigest> {
        let (_base, root, roots) = share(files);
        let sources = read(&root, &roots).expect("it can be read");
        assert_eq!(sources.unshared_because, None, "{files:?}");
        sources.files
    }

    #[test]
    fn every_included_file_counts() {
        let with = |deep: &str| {
            digests(&[
                ("requirements.txt", "-r more/base.txt\n-c limits.txt\n"),
                ("more/base.txt", "numpy\n-r ../deep.txt\n-r base.txt\n"),
                ("limits.txt", "numpy<3\n"),
                ("deep.txt", deep),
                ("unrelated.txt", deep),
            ])
        };
        assert_eq!(with("torch").len(), 4, "each is read once, also if it includes itself");
        assert_eq!(with("torch"), with("torch"), "the path of the share does not count");
        assert_ne!(with("torch"), with("torch==2.9"));
    }

    #[test]
    fn local_packages_count_but_for_what_tools_make_in_them() {
        let with = |files: &[(&str, &str)]| {
            let requirements = ("requirements.txt", "./package\ntool.whl\n-f wheels\n");
            let all = [&[requirements, ("tool.whl", "wheel"), ("wheels/other.whl", "")], files].concat();
            // Without the directory of wheels, where the times of files count.
            digests(&all)[..3].to_vec()
        };
        let plain = with(&[("package/a/b.py", "x = 1")]);
        assert_eq!(plain, with(&[("package/a/b.py", "x = 1"), ("package/build/c", ""), ("package/p.egg-info/d", "")]));
        assert_ne!(plain, with(&[("package/a/b.py", "x = 2")]));
        assert_ne!(plain, with(&[("package/a/c.py", "x = 1")]));
    }

    #[test]
    fn what_cannot_be_summed_up_is_of_one_job() {
        let long = "x".repeat(MAX_PACKAGE_BYTES as usize + 1);
        for (line, name, text, why) in [
            ("-e .", "setup.py", "", ".: it is editable"),
            ("/opt/package", "a", "", "/opt/package: it is in no volume"),
            ("./package", "package/large", long.as_str(), "./package: the package has too many files"),
        ] {
            let (_base, root, roots) = share(&[("requirements.txt", line), (name, text)]);
            let sources = read(&root, &roots).expect("it can be read");
            assert!(sources.unshared_because.is_some_and(|found| found.starts_with(why)), "{line}");
        }
    }

    #[test]
    fn files_outside_of_the_jobs_volumes_are_refused() {
        let check = |text: &str, why: &str| {
            let (base, root, roots) = share(&[("requirements.txt", text)]);
            fs::write(base.path().join("secret"), "a secret of the machine").expect("a file");
            symlink("../secret", root.join("link.txt")).expect("a link");
            let error = corro_base::error_chain::join(&read(&root, &roots).expect_err(text));
            assert!(error.contains(why) && !error.contains("of the machine"), "{error}");
        };
        check("-r ../secret", "in no volume and no directory of the job");
        check("-r /etc/passwd", "in no volume and no directory of the job");
        check("-c link.txt", "leads out of the volume");
        check("-r missing.txt", "missing.txt: No such file");
        check("-r https://example.com/r.txt", "includes https://example.com/r.txt, which nodes do not fetch");
    }

    #[test]
    fn includes_are_bounded() {
        let files: Vec<(String, String)> =
            (0..=MAX_INCLUDES).map(|n| (format!("{n}.txt"), format!("-r {}.txt", n + 1))).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let (_base, root, roots) = share(&[&files[..], &[("requirements.txt", "-r 0.txt")]].concat());
        assert!(matches!(read(&root, &roots), Err(SourceError::TooMany)));
        let large = "#".repeat(MAX_FILE_BYTES as usize + 1);
        let (_base, root, roots) = share(&[("requirements.txt", &large)]);
        assert!(matches!(read(&root, &roots), Err(SourceError::TooLarge { .. })));
    }
}
