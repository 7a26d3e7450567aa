//! Output directories of a job or setup task, as volumes and descriptors instead of paths. The expanded path is matched
//! with the job's volumes and directories; a path outside of them is refused. Every access is resolved beneath the
//! volume's descriptor ([`VolumeDir`]), so symlinks planted by a job lead nowhere. No descriptor is kept open, so that
//! volumes can be unmounted while an [`OutputDir`] exists.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use corro_model::node::{TaskOrder, Volume, VolumeSource};
use corro_shares::{SharePath, VolumeDir};

use crate::fs::dirfd;
use crate::storage::directories::{Directories, JobDirectories, SHARED};
use crate::storage::mounts;

/// Directories in which output may be written, and files of the job may be read.
#[derive(Debug)]
pub struct OutputRoots(Vec<(PathBuf, Arc<Root>)>);

/// How the root of an output directory is opened.
#[derive(Debug)]
enum Root {
    /// A volume on this machine. Not opened through its symlink, which a job can replace.
    LocalVolume(Volume),
    /// A mount at `relative` below a directory of the agent.
    Mounted { parent: OwnedFd, relative: String },
    /// A directory of the agent.
    Directory(OwnedFd),
    /// A directory of the server on this machine, whose path no job can change.
    Path(PathBuf),
}

impl OutputRoots {
    pub fn of_job(
        node: &Directories,
        job: &JobDirectories,
        order: &TaskOrder,
        cluster_volumes: &[Volume],
    ) -> io::Result<OutputRoots> {
        let layout = &job.layout;
        let mut roots = OutputRoots(Vec::new());
        roots.add(&layout.jobs, Root::Directory(node.jobs()?));
        roots.add(&layout.mount_root, Root::Directory(node.mounts()?));
        roots.add(&layout.job_temp, Root::Directory(job.job.try_clone()?));
        if order.hosts.len() > 1 {
            let shared = match &order.shared_temp {
                Some(path) => Root::Path(path.clone()),
                None => Root::Mounted { parent: job.job.try_clone()?, relative: SHARED.to_owned() },
            };
            roots.add(&layout.shared, shared);
        }
        roots.add_volumes(&layout.mount_root, &node.mounts()?, cluster_volumes)?;
        roots.add_volumes(&layout.job_mount_root, &job.mounts, &order.volumes)?;
        Ok(roots)
    }

    /// Roots of a cluster's setup task, whose relative paths begin at `home`.
    pub fn of_setup(node: &Directories, home: &Path, cluster_volumes: &[Volume]) -> io::Result<OutputRoots> {
        let mut roots = OutputRoots(Vec::new());
        roots.add(home, Root::Directory(dirfd::open_directory(home)?));
        roots.add(&node.mount_root(), Root::Directory(node.mounts()?));
        roots.add_volumes(&node.mount_root(), &node.mounts()?, cluster_volumes)?;
        Ok(roots)
    }

    /// The directory at an absolute path as jobs see it. It need not exist yet.
    pub fn locate(&self, path: &Path) -> io::Result<OutputDir> {
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if path.components().any(|part| part == Component::ParentDir) {
            return refused("the path contains '..'");
        }
        let around = self.0.iter().filter(|(at, _)| path.starts_with(at));
        let Some((at, root)) = around.max_by_key(|(at, _)| at.components().count()) else {
            return refused("the path is in no volume and no directory of the job");
        };
        let names = path.strip_prefix(at).unwrap_or(Path::new("")).components();
        let names: Option<Vec<&str>> = names.map(|name| name.as_os_str().to_str()).collect();
        let relative = names.map(|names| SharePath::parse(&names.join("/")));
        match relative {
            Some(Ok(relative)) => Ok(OutputDir { path: path.to_owned(), root: Arc::clone(root), relative }),
            Some(Err(error)) => refused(&error.to_string()),
            None => refused("the path is not valid UTF-8"),
        }
    }

    /// Opens a regular file of the job for reading. Links that lead out of its volume are refused.
    pub fn read_file(&self, path: &Path) -> io::Result<File> {
        let found = self.locate(path)?;
        found.root.open()?.read_file(&found.relative)
    }

    /// Opens a directory of the job.
    pub fn open_dir(&self, path: &Path) -> io::Result<VolumeDir> {
        let found = self.locate(path)?;
        found.root.open()?.open_dir(&found.relative)
    }

    #[cfg(test)]
    pub fn of_test(root: &Path) -> OutputRoots {
        let directory = dirfd::open_directory(root).expect("a directory");
        OutputRoots(vec![(root.to_owned(), Arc::new(Root::Directory(directory)))])
    }

    fn add(&mut self, at: &Path, root: Root) {
        self.0.push((at.to_owned(), Arc::new(root)));
    }

    fn add_volumes(&mut self, below: &Path, parent: &OwnedFd, volumes: &[Volume]) -> io::Result<()> {
        for volume in volumes {
            let relative = volume.relative.trim_matches('/').to_owned();
            let root = match &volume.source {
                // Nothing is mounted there: it is a plain directory on the node's disk.
                VolumeSource::Unavailable { .. } => continue,
                _ if volume.is_linked() => Root::LocalVolume(volume.clone()),
                _ => Root::Mounted { parent: parent.try_clone()?, relative: relative.clone() },
            };
            self.add(&below.join(relative), root);
        }
        Ok(())
    }
}

impl Root {
    fn open(&self) -> io::Result<VolumeDir> {
        match self {
            Root::LocalVolume(volume) => mounts::open_local(volume).unwrap_or(Err(io::ErrorKind::NotFound.into())),
            Root::Mounted { parent, relative } => match dirfd::open_beneath(parent, relative)? {
                Some(mounted) => Ok(VolumeDir::from(mounted)),
                None => Err(io::ErrorKind::NotFound.into()),
            },
            Root::Directory(directory) => Ok(VolumeDir::from(directory.try_clone()?)),
            Root::Path(path) => VolumeDir::open(path),
        }
    }
}

/// An output directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OutputDir {
    path: PathBuf,
    root: Arc<Root>,
    relative: SharePath,
}

impl OutputDir {
    /// Path as jobs see it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory and its parents with mode 0777 less the agent's umask, as on Batch AI's mounts.
    pub fn make(&self) -> io::Result<()> {
        self.root.open()?.make_dirs(&self.relative).map(drop)
    }

    /// Opens or creates a regular file for appending.
    pub fn append(&self, name: &str) -> io::Result<File> {
        let relative = self.relative.child(name).map_err(io::Error::other)?;
        self.root.open()?.append_file(&relative)
    }

    /// A subdirectory.
    pub fn child(&self, name: &str) -> io::Result<OutputDir> {
        let relative = self.relative.child(name).map_err(io::Error::other)?;
        Ok(OutputDir { path: self.path.join(name), root: Arc::clone(&self.root), relative })
    }

    /// A directory beside this one.
    pub fn sibling(&self, name: &str) -> io::Result<OutputDir> {
        let (parent, _) = self.relative.split().ok_or(io::ErrorKind::InvalidInput)?;
        let relative = parent.child(name).map_err(io::Error::other)?;
        Ok(OutputDir { path: self.path.with_file_name(name), root: Arc::clone(&self.root), relative })
    }

    #[cfg(test)]
    pub fn of_test(root: &Path, relative: &str) -> OutputDir {
        let found = OutputRoots::of_test(root).locate(&root.join(relative)).expect("a path in it");
        found.make().expect("it can be made");
        found
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use corro_model::node::VolumeKind;

    use super::*;
    use crate::testing;

    #[test]
    fn output_is_confined_to_volumes_and_job_directories() {
        let (base, share) = (tempfile::tempdir().expect("a root"), tempfile::tempdir().expect("a share"));
        let node = Directories::open(base.path()).expect("the node's directory");
        let mut order = testing::order(1);
        let volume = |relative: &str| Volume {
            kind: VolumeKind::FileShare,
            relative: relative.into(),
            label: "s".into(),
            source: VolumeSource::LocalDirectory(share.path().to_owned()),
            read_only: false,
            beneath: None,
        };
        order.volumes = vec![volume("logs")];
        let job = node.begin(&order).expect("directories of the job");
        let layout = job.layout.clone();
        // A job replaced the symlink of the cluster's volume.
        symlink("/", layout.mount_root.join("external")).expect("a link");
        symlink("/", layout.job_mount_root.join("planted")).expect("a link");
        let roots = OutputRoots::of_job(&node, &job, &order, &[volume("external")]).expect("handles");
        let made = |path: &Path| roots.locate(path).and_then(|found| found.make());
        made(&layout.job_mount_root.join("logs/a/b")).expect("on the share");
        made(&layout.mount_root.join("external/c")).expect("on the share, whatever the link says");
        made(&layout.job_temp.join("d")).expect("in the job's directory");
        made(&layout.jobs.join("e")).expect("beside it");
        made(&layout.mount_root.join("none/f")).expect("on the node's disk");
        assert!(share.path().join("a/b").is_dir() && share.path().join("c").is_dir());
        assert!(layout.job_temp.join("d").is_dir() && layout.mount_root.join("none/f").is_dir());
        for refused in [
            Path::new("/etc/cron.d"),
            &layout.home.join("x"),
            &layout.job_mount_root.join("planted/tmp/corro-planted"),
            &layout.job_mount_root.join("logs/../../../../x"),
            &layout.wheels.join("x"),
            &base.path().join("mountsx"),
        ] {
            assert!(made(refused).is_err(), "{}", refused.display());
        }
        assert!(!Path::new("/tmp/corro-planted").exists());
        fs::remove_file(layout.job_mount_root.join("planted")).expect("removed");
    }
}
