//! Directories of a node and of its running job, laid out as Batch AI did. Removal works on directory descriptors, so
//! the targets of mounts and symlinks are never touched.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat, symlinkat};

use corro_model::node::TaskOrder;
use corro_shares::{SharePath, VolumeDir};

use crate::fs::dirfd;
use crate::storage::dir_reuse::{DirReuse, STORE_DIR};
use crate::storage::mounts;
use crate::storage::tmp_dir::TmpDir;

/// Paths of a job on this node, as the job sees them. Pure.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub mount_root: PathBuf,
    /// Parent of all jobs' directories. Emptied when the next job starts.
    pub jobs: PathBuf,
    pub job_temp: PathBuf,
    pub job_mount_root: PathBuf,
    pub shared: PathBuf,
    pub hostfile: PathBuf,
    /// Home directory, new for every job, so that start-up files do not reach the next one.
    pub home: PathBuf,
    /// The node's Python wheels for `pip`.
    pub wheels: PathBuf,
    /// Temporary files. Outside of the node's directory, because the path must be short.
    pub tmp_dir: PathBuf,
}

impl Layout {
    pub fn new(root: &Path, tmp_dir: PathBuf, order: &TaskOrder) -> Layout {
        let jobs = root.join(JOBS);
        let job_temp = jobs.join(&order.workspace).join(&order.experiment).join(&order.job);
        Layout {
            mount_root: root.join(MOUNTS),
            job_mount_root: job_temp.join(MOUNTS),
            shared: job_temp.join(SHARED),
            hostfile: job_temp.join(HOSTFILE),
            home: root.join(HOME),
            wheels: root.join(WHEELS),
            tmp_dir,
            jobs,
            job_temp,
        }
    }
}

/// A node's directory, held open.
#[derive(Debug)]
pub struct Directories {
    root: PathBuf,
    handle: OwnedFd,
    dir_reuse: DirReuse,
    tmp_dir: TmpDir,
}

/// Descriptors of the running job's directories.
#[derive(Debug)]
pub struct JobDirectories {
    pub layout: Layout,
    pub job: OwnedFd,
    /// Directory of the job's volumes.
    pub mounts: OwnedFd,
}

impl JobDirectories {
    /// The job's directory as a [`VolumeDir`], for files that the agent writes while processes of the job may run.
    pub fn job_dir(&self) -> io::Result<VolumeDir> {
        Ok(VolumeDir::from(self.job.try_clone()?))
    }

    /// Writes a file below the job's directory, creating parent directories and replacing an existing file. Follows no
    /// symlink to another file.
    pub fn write(&self, relative: &str, content: &[u8], mode: u32) -> io::Result<()> {
        let (job, path) = (self.job_dir()?, SharePath::parse(relative).map_err(io::Error::other)?);
        if let Some((parent, _)) = path.split() {
            job.make_dirs(&parent)?;
        }
        job.replace_file(&path, mode)?.write_all(content)
    }
}

impl Directories {
    pub fn open(root: &Path) -> io::Result<Directories> {
        // Jobs get absolute paths; a symlink in the path must not change under them.
        let root = root.canonicalize()?;
        let handle = dirfd::open_directory(&root)?;
        for name in [MOUNTS, JOBS, HOME] {
            dirfd::make_beneath(&handle, name)?;
        }
        let dir_reuse = DirReuse::open(&handle)?;
        let tmp_dir = TmpDir::new(&root);
        Ok(Directories { root, handle, dir_reuse, tmp_dir })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn dir_reuse(&self) -> &DirReuse {
        &self.dir_reuse
    }

    /// The paths of this job.
    pub fn layout(&self, order: &TaskOrder) -> Layout {
        Layout::new(&self.root, self.tmp_dir.path(), order)
    }

    /// Directory of the cluster's volumes.
    pub fn mounts(&self) -> io::Result<OwnedFd> {
        dirfd::make_beneath(&self.handle, MOUNTS)
    }

    /// Parent of all jobs' directories.
    pub fn jobs(&self) -> io::Result<OwnedFd> {
        dirfd::make_beneath(&self.handle, JOBS)
    }

    /// Removes what earlier jobs left and creates the directories of this job.
    pub fn begin(&self, order: &TaskOrder) -> io::Result<JobDirectories> {
        let name = JobName::from(order);
        let path = name.path()?;
        if let Err(error) = self.remove_earlier_jobs(&name) {
            // A file that cannot be removed must not make every further job fail.
            tracing::warn!(%error, "not everything that an earlier job left could be removed");
        }
        let mut layout = self.layout(order);
        let (parent, last) = path.rsplit_once('/').expect("a job lies below its experiment");
        let experiment = dirfd::make_beneath(&self.handle, parent)?;
        let alone = order.hosts.len() == 1;
        let as_new = alone && self.dir_reuse.reuse_job_dir(&experiment, last);
        let job = dirfd::make_beneath(&experiment, last)?;
        let mounts = dirfd::make_beneath(&job, MOUNTS)?;
        if alone {
            // One node shares it with no other.
            dirfd::make_beneath(&job, SHARED)?;
        } else if let Some(shared) = &order.shared_temp {
            std::fs::create_dir_all(shared)?;
            symlinkat(shared, &job, SHARED)?;
        }
        write_hostfile(&job, hostfile(order).as_bytes(), as_new)?;
        if order.preparation.is_some() || order.python_environment.is_some() {
            // Filled later, but visible in the job's mount namespace only if it exists now.
            self.wheels()?;
        }
        if let Err(error) = self.tmp_dir.make_empty() {
            tracing::warn!(%error, "temporary files of the job go into its own directory");
            dirfd::make_beneath(&job, TMP)?;
            layout.tmp_dir = layout.job_temp.join(TMP);
        }
        Ok(JobDirectories { layout, job, mounts })
    }

    /// Directory of a begun job.
    pub fn job(&self, order: &TaskOrder) -> io::Result<Option<OwnedFd>> {
        dirfd::open_beneath(&self.handle, &JobName::from(order).path()?)
    }

    /// Directory of a begun job's volumes; `None` if it was not created.
    pub fn job_mounts(&self, order: &TaskOrder) -> io::Result<Option<OwnedFd>> {
        dirfd::open_beneath(&self.handle, &format!("{}/{MOUNTS}", JobName::from(order).path()?))
    }

    /// Removes the directory of a job. Logs that a job wrote to the node's disk outside of it stay until the next job.
    pub fn remove_job(&self, name: &JobName) -> io::Result<()> {
        self.tmp_dir.empty()?;
        let path = name.path()?;
        let (parent, job) = path.rsplit_once('/').expect("a job lies below its experiment");
        match dirfd::open_beneath(&self.handle, parent)? {
            Some(experiment) if self.dir_reuse.store_job_dir(&experiment, job) => Ok(()),
            Some(experiment) => dirfd::remove(&experiment, job),
            None => Ok(()),
        }
    }

    /// Removes everything of earlier jobs except for the parent directories of this job.
    fn remove_earlier_jobs(&self, name: &JobName) -> io::Result<()> {
        let jobs = dirfd::make_beneath(&self.handle, JOBS);
        if jobs.and_then(|jobs| dirfd::empty_except(&jobs, &[&name.workspace, &name.experiment])).is_err() {
            self.empty(&[JOBS])?;
        }
        self.empty(&[HOME])
    }

    /// Home directory of SSH sessions. Not that of jobs, which is emptied for each.
    pub fn login_home(&self) -> io::Result<PathBuf> {
        dirfd::make_beneath(&self.handle, LOGIN)?;
        Ok(self.root.join(LOGIN))
    }

    /// Path of the directory of the cluster's volumes.
    pub fn mount_root(&self) -> PathBuf {
        self.root.join(MOUNTS)
    }

    /// Descriptor and path of the fetched Python wheels. They stay for the next job.
    pub fn wheels(&self) -> io::Result<(OwnedFd, PathBuf)> {
        Ok((dirfd::make_beneath(&self.handle, WHEELS)?, self.root.join(WHEELS)))
    }

    /// Removes everything that jobs and mounts may have left on this node. Unmounts first, since the content of mounts
    /// belongs to others.
    pub fn clean(&self) -> io::Result<()> {
        let taken = mounts::unmount_below(&self.root);
        self.tmp_dir.remove()?;
        self.empty(&[MOUNTS, JOBS, HOME])?;
        self.dir_reuse.clear()?;
        taken.map(drop)
    }

    /// Removes the node's directories themselves, when the node is retired.
    pub fn remove(&self) -> io::Result<()> {
        mounts::unmount_below(&self.root)?;
        self.tmp_dir.remove()?;
        [MOUNTS, JOBS, HOME, LOGIN, WHEELS, PYTHON_ENVIRONMENTS, STORE_DIR]
            .into_iter()
            .try_for_each(|name| dirfd::remove(&self.handle, name))
    }

    fn empty(&self, names: &[&str]) -> io::Result<()> {
        for name in names {
            // A job may have replaced the directory by a symlink or a file.
            if dirfd::make_beneath(&self.handle, name).and_then(|directory| dirfd::empty(&directory)).is_err() {
                dirfd::remove(&self.handle, name)?;
                dirfd::make_beneath(&self.handle, name)?;
            }
        }
        Ok(())
    }
}

/// Names that identify a job's directory.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct JobName {
    pub workspace: String,
    pub experiment: String,
    pub job: String,
}

impl From<&TaskOrder> for JobName {
    fn from(order: &TaskOrder) -> JobName {
        let TaskOrder { workspace, experiment, job, .. } = order.clone();
        JobName { workspace, experiment, job }
    }
}

impl JobName {
    /// Path below the node's directory. Refuses a name that is not a single path component.
    fn path(&self) -> io::Result<String> {
        for name in [&self.workspace, &self.experiment, &self.job] {
            if dirfd::components(name)?.len() != 1 || name.contains('/') {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("'{name}' is not a directory name")));
            }
        }
        Ok(format!("{JOBS}/{}/{}/{}", self.workspace, self.experiment, self.job))
    }
}

/// Removes the directory that the job's nodes shared.
pub fn remove_shared_temp(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    match dirfd::open_directory(parent) {
        Ok(parent) => dirfd::remove(&parent, name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the hostfile. An existing file is overwritten in place, and only if it differs: some file systems flush a
/// file to disk that is truncated and rewritten.
fn write_hostfile(job: &OwnedFd, text: &[u8], is_there: bool) -> io::Result<()> {
    let fresh = if is_there { OFlags::RDWR } else { OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL };
    let flags = fresh | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = std::fs::File::from(openat(job, HOSTFILE, flags, Mode::from_raw_mode(0o644))?);
    if is_there {
        let mut old = Vec::new();
        io::Read::read_to_end(&mut &file, &mut old)?;
        if old == text {
            return Ok(());
        }
    }
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)
}

/// The hostfile in Open MPI's format. A node without a process of the layout still has a slot for a launcher that the
/// job's command starts.
fn hostfile(order: &TaskOrder) -> String {
    let mut text = String::new();
    for (host, name) in order.hosts.iter().zip(order.launch_names()) {
        let slots = if order.layout.reaches_out_alone() { host.slots.max(1) } else { host.slots };
        writeln!(text, "{name} slots={slots}").expect("writing to a string does not fail");
    }
    text
}

const MOUNTS: &str = "mounts";
/// Parent of the jobs' directories, in the node's directory.
pub(crate) const JOBS: &str = "jobs";
const HOME: &str = "home";
const LOGIN: &str = "login";
const WHEELS: &str = "wheels";
/// Default directory of Python environments, in the node's directory.
pub(crate) const PYTHON_ENVIRONMENTS: &str = "python-environments";
/// Directory shared by the job's nodes, in the job's directory.
pub const SHARED: &str = "shared";
const HOSTFILE: &str = "hostfile";
const TMP: &str = "tmp";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing;

    #[test]
    fn a_job_gets_its_directories_and_leaves_none() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let directories = Directories::open(base.path()).expect("the node's directory");
        let mut order = testing::order(2);
        let shared = base.path().join("elsewhere/shared");
        order.shared_temp = Some(shared.clone());
        fs::write(base.path().join("home/.bashrc"), "export OLD=1").expect("a file of an earlier job");
        let job = directories.begin(&order).expect("directories of the job");
        assert_eq!(job.layout.job_temp, directories.root().join("jobs/w/e/j"));
        assert!(job.layout.job_mount_root.is_dir() && !job.layout.home.join(".bashrc").exists());
        let hosts = fs::read_to_string(&job.layout.hostfile).expect("a host file");
        assert_eq!(hosts, "127.0.0.4 slots=1\n127.0.0.5 slots=1\n");
        fs::write(job.layout.shared.join("seen"), "x").expect("the shared directory works");
        directories.remove_job(&JobName::from(&order)).expect("it can be removed");
        assert!(!job.layout.job_temp.exists());
        assert!(shared.join("seen").exists(), "only the link was removed");
        remove_shared_temp(&shared).expect("it can be removed");
        assert!(!shared.exists());
        directories.remove().expect("all of it can go");
        assert!(!base.path().join("jobs").exists());
    }

    #[test]
    fn links_left_by_a_job_are_not_followed() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let outside = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(outside.path().join("e/j")).expect("directories");
        let directories = Directories::open(base.path()).expect("the node's directory");
        let order = testing::order(1);
        symlink(outside.path(), base.path().join("jobs/w")).expect("a link in place of the workspace");
        assert!(directories.remove_job(&JobName::from(&order)).is_err());
        assert!(outside.path().join("e/j").exists());
        fs::remove_dir_all(base.path().join("jobs")).expect("removable");
        symlink(outside.path(), base.path().join("jobs")).expect("a link in place of all jobs");
        directories.clean().expect("the link goes");
        assert!(outside.path().join("e/j").exists());
        assert!(fs::symlink_metadata(base.path().join("jobs")).expect("it is back").is_dir());
    }

    #[test]
    fn files_for_a_job_are_not_written_through_links() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let outside = tempfile::tempdir().expect("a temporary directory");
        fs::write(outside.path().join("key"), "secret").expect("a file");
        let directories = Directories::open(base.path()).expect("the node's directory");
        let job = directories.begin(&testing::order(1)).expect("directories of the job");
        // The image's shell runs before the agent writes these files.
        symlink(outside.path().join("key"), job.layout.job_temp.join(".bashenv")).expect("a link");
        symlink(outside.path(), job.layout.job_temp.join(".compat")).expect("a link");
        job.write(".bashenv", b"echo", 0o644).expect("the link is replaced");
        assert!(job.write(".compat/key", b"x", 0o644).is_err(), "a directory that leads out is refused");
        assert_eq!(fs::read_to_string(job.layout.job_temp.join(".bashenv")).expect("a file"), "echo");
        assert_eq!(fs::read_to_string(outside.path().join("key")).expect("it stays"), "secret");
    }

    #[test]
    fn paths_with_parent_components_are_refused() {
        let base = tempfile::tempdir().expect("a temporary directory");
        let directories = Directories::open(base.path()).expect("the node's directory");
        for name in ["..", "a/b", "", "."] {
            let order = TaskOrder { job: name.to_owned(), ..testing::order(1) };
            assert!(directories.begin(&order).is_err(), "{name:?}");
            assert!(directories.remove_job(&JobName::from(&order)).is_err(), "{name:?}");
        }
    }
}
