//! Creates namespaces from a multi-threaded program: a process that shares this program's memory (`CLONE_VM | CLONE_VFORK`, as in `guard::vfork_exec`)
//! enters new namespaces, hides directories and ends; descriptors keep the namespaces. In the new process: no allocation, no lock, no
//! panic, system calls only.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, getegid, geteuid, waitpid};

use super::{MountView, NamespaceError, Namespaces};

const STACK_BYTES: usize = 64 << 10;
/// Options of a tmpfs that hides a directory; it holds only directory names.
const TMPFS_OPTIONS: &CStr = c"mode=0755,size=1m,nr_inodes=4096";

/// Input and result of the new process.
struct Plan {
    user: Option<RawFd>,
    /// The process writes its pid to `pid_pipe`, and continues when it reads a byte from `continue_pipe`.
    pid_pipe: RawFd,
    continue_pipe: RawFd,
    /// The other ends of the pipes, which it closes: it would wait for itself otherwise.
    other_ends: [RawFd; 2],
    hidden: Vec<CString>,
    visible: Vec<VisibleTree>,
    /// Made read-only where they exist.
    protected: Vec<CString>,
    /// Index of the first one that could not be made read-only, and errno.
    left_writable: Option<(usize, i32)>,
    /// Failed step, index of its directory, and errno.
    problem: Option<(&'static str, Option<usize>, i32)>,
}

/// A directory that stays visible.
struct VisibleTree {
    path: CString,
    parents: Vec<CString>,
    is_read_only: bool,
    /// Descriptor of the cloned mount tree.
    tree: c_int,
}

pub fn create(view: &MountView, user: Option<Arc<OwnedFd>>) -> Result<Namespaces, NamespaceError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| NamespaceError::Clone(errno.into()));
    let (pid_reader, pid_writer) = pipe()?;
    let (continue_reader, continue_writer) = pipe()?;
    let mut plan = Plan {
        user: user.as_ref().map(|user| user.as_raw_fd()),
        pid_pipe: pid_writer.as_raw_fd(),
        continue_pipe: continue_reader.as_raw_fd(),
        other_ends: [pid_reader.as_raw_fd(), continue_writer.as_raw_fd()],
        hidden: view.hidden.iter().map(|path| text(path)).collect::<Result<_, _>>()?,
        visible: view.visible.iter().map(|path| visible_tree(view, path)).collect::<Result<_, _>>()?,
        protected: protected().iter().map(|path| text(Path::new(path))).collect::<Result<_, _>>()?,
        left_writable: None,
        problem: None,
    };
    let (namespaces, started) = std::thread::scope(|scope| {
        // This thread is suspended while the new process runs, so another one does the work that must happen outside of the namespaces.
        let helper = scope.spawn(|| assist_child(File::from(pid_reader), File::from(continue_writer), user));
        let started = start(&mut plan);
        // If the process was not started, the helper reads end of file.
        drop((pid_writer, continue_reader));
        (helper.join(), started)
    });
    started.map_err(NamespaceError::Clone)?;
    if let Some((step, at, errno)) = plan.problem {
        let path = at.map_or_else(|| PathBuf::from("/"), |at| plan.path(step, at));
        return Err(NamespaceError::Step { step, path, source: io::Error::from_raw_os_error(errno) });
    }
    let namespaces =
        namespaces.map_err(|_| NamespaceError::Clone(io::ErrorKind::Other.into()))?.map_err(NamespaceError::Map)?;
    let left_writable = plan.left_writable.map(|(at, errno)| {
        let path = plan.protected[at].to_string_lossy();
        format!("{path} cannot be made read-only: {}", io::Error::from_raw_os_error(errno)).into()
    });
    Ok(Namespaces { left_writable, ..namespaces })
}

/// Paths to make read-only: kernel settings, which are files of root that a process with root's uid can write without capabilities. For an ordinary
/// user only cgroups that are delegated to it, because they hold the limits of jobs; it keeps the right to mount such file systems in
/// namespaces of its own.
fn protected() -> &'static [&'static str] {
    if geteuid().is_root() {
        return PROTECTED;
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let is_delegated = groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return false };
        let hierarchy = Path::new(CGROUP_ROOT).join(controllers.trim_start_matches("name="));
        rustix::fs::access(hierarchy.join(path.trim_start_matches('/')), rustix::fs::Access::WRITE_OK).is_ok()
    });
    if is_delegated { &[CGROUP_ROOT] } else { &[] }
}

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The paths that container runtimes make read-only or hide. `/sys` includes the cgroup file systems below it.
const PROTECTED: &[&str] = &[
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/mtrr",
    "/sys",
];

fn visible_tree(view: &MountView, path: &Path) -> Result<VisibleTree, NamespaceError> {
    let parents = view.missing_parents(path).iter().map(|path| text(path)).collect::<Result<_, _>>()?;
    let is_read_only = view.read_only.iter().any(|known| known == path);
    Ok(VisibleTree { path: text(path)?, parents, is_read_only, tree: -1 })
}

fn text(path: &Path) -> Result<CString, NamespaceError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| NamespaceError::Clone(error.into()))
}

/// Reads the pid of the new process, writes its uid and gid maps, opens its namespaces, and lets it continue.
fn assist_child(mut pid_pipe: File, mut continue_pipe: File, user: Option<Arc<OwnedFd>>) -> io::Result<Namespaces> {
    let mut id = [0; 4];
    pid_pipe.read_exact(&mut id)?;
    let process = PathBuf::from(format!("/proc/{}", i32::from_ne_bytes(id)));
    let open = |name: &str| File::open(process.join("ns").join(name)).map(|file| Arc::new(OwnedFd::from(file)));
    let user = match user {
        Some(user) => user,
        None => {
            map_users(&process)?;
            open("user")?
        }
    };
    let namespaces = Namespaces { user, mount: open("mnt")?, left_writable: None };
    // If anything above fails, the pipe closes, and the process reads end of file.
    continue_pipe.write_all(&[1])?;
    Ok(namespaces)
}

/// Maps all ids to themselves. Without privileges over other users, only this user is mapped.
fn map_users(process: &Path) -> io::Result<()> {
    let write = |name: &str, text: String| std::fs::write(process.join(name), text);
    let full_map =
        |name: &str| identity_map(&std::fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default());
    if write("uid_map", full_map("uid_map")).is_ok() {
        return write("gid_map", full_map("gid_map"));
    }
    write("setgroups", "deny".to_owned())?;
    write("uid_map", identity_entry(geteuid().as_raw()))?;
    write("gid_map", identity_entry(getegid().as_raw()))
}

/// An identity map of all ids of a map (lines of first id inside, first id outside, count).
fn identity_map(map: &str) -> String {
    let line = |line: &str| {
        let mut columns = line.split_whitespace();
        let (first, count) = (columns.next()?, columns.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    };
    map.lines().filter_map(line).collect()
}

fn identity_entry(id: u32) -> String {
    format!("{id} {id} 1\n")
}

fn start(plan: &mut Plan) -> io::Result<()> {
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    let new = if plan.user.is_some() { 0 } else { libc::CLONE_NEWUSER | libc::CLONE_NEWNS };
    // SAFETY: the new process runs `child_main` on a stack of its own, in this memory. This thread continues when it has ended
    // (CLONE_VFORK), so everything that it points to stays valid, and no other thread uses the plan. It makes system calls only.
    // Signals are blocked, because a handler of this program must not run in the other process, which shares its memory.
    let id = unsafe {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | new;
        let id = libc::clone(child_main, top, flags, std::ptr::from_mut(plan).cast::<c_void>());
        let failure = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        if id > 0 { Ok(id) } else { Err(failure) }
    };
    let pid = Pid::from_raw(id?);
    // It has ended; its result is in the plan.
    let _ = waitpid(pid, WaitOptions::empty());
    Ok(())
}

extern "C" fn child_main(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes its plan, and is suspended while this process uses it.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    plan.problem = plan.set_up().err();
    0
}

type Step = Result<(), (&'static str, Option<usize>, i32)>;

const ENTER: &str = "cannot enter new namespaces at";
const KEEP: &str = "cannot keep";
const HIDE: &str = "cannot hide";
const SHOW: &str = "cannot show";

impl Plan {
    fn path(&self, step: &str, at: usize) -> PathBuf {
        let text = if step == HIDE { &self.hidden[at] } else { &self.visible[at].path };
        PathBuf::from(std::ffi::OsStr::from_bytes(text.as_bytes()))
    }

    /// Enters the namespaces and sets up the mounts.
    fn set_up(&mut self) -> Step {
        // SAFETY: system calls with C strings and descriptors of the plan, in a separate process.
        unsafe {
            for end in self.other_ends {
                libc::close(end);
            }
            if let Some(user) = self.user {
                check(libc::setns(user, libc::CLONE_NEWUSER), ENTER, None)?;
                check(libc::unshare(libc::CLONE_NEWNS), ENTER, None)?;
            }
            let id = libc::getpid().to_ne_bytes();
            let mut byte = 0u8;
            if libc::write(self.pid_pipe, id.as_ptr().cast(), id.len()) != 4
                || libc::read(self.continue_pipe, (&raw mut byte).cast(), 1) != 1
            {
                // The helper thread returns the error.
                return Ok(());
            }
            if self.user.is_none() {
                forbid_cgroup_namespaces();
            }
            // Mounts propagate from outside to inside, and not back.
            let slave = libc::MS_REC | libc::MS_SLAVE;
            check(libc::mount(null(), c"/".as_ptr(), null(), slave, null()), ENTER, None)?;
            for (at, path) in self.protected.iter().enumerate() {
                if let Err(errno) = make_read_only(path)
                    && errno != libc::ENOENT
                {
                    self.left_writable.get_or_insert((at, errno));
                }
            }
            for (at, visible) in self.visible.iter_mut().enumerate() {
                visible.tree = clone_tree(&visible.path);
                check(visible.tree, KEEP, Some(at))?;
                // Needs Linux 5.12; older kernels leave it writable.
                if visible.is_read_only
                    && set_read_only(visible.tree, 0) != 0
                    && *libc::__errno_location() != libc::ENOSYS
                {
                    check(-1, KEEP, Some(at))?;
                }
            }
            for (at, hidden) in self.hidden.iter().enumerate() {
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                let (name, options) = (c"tmpfs".as_ptr(), TMPFS_OPTIONS.as_ptr().cast());
                check(libc::mount(name, hidden.as_ptr(), name, flags, options), HIDE, Some(at))?;
            }
            for (at, visible) in self.visible.iter().enumerate() {
                for directory in &visible.parents {
                    // It may exist already; other failures appear when the tree is mounted.
                    libc::mkdir(directory.as_ptr(), 0o755);
                }
                check(mount_tree(visible.tree, &visible.path), SHOW, Some(at))?;
            }
            for (at, hidden) in self.hidden.iter().enumerate() {
                let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
                check(libc::mount(null(), hidden.as_ptr(), null(), flags, null()), HIDE, Some(at))?;
            }
        }
        Ok(())
    }
}

fn check(result: c_int, step: &'static str, at: Option<usize>) -> Step {
    if result >= 0 {
        return Ok(());
    }
    // SAFETY: `errno` of the calling thread.
    Err((step, at, unsafe { *libc::__errno_location() }))
}

/// Clones the mount tree at `path`, a file or directory with everything below, detached. Fails if the path contains a symbolic link, so that a link that
/// was created since cannot expose something else.
///
/// # Safety
/// Only in the new process: uses and sets its `errno`.
unsafe fn clone_tree(path: &CStr) -> c_int {
    let flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH) as libc::c_uint;
    // SAFETY: system calls with C strings and a plain structure, for which all zeros are valid.
    unsafe {
        let mut how: libc::open_how = MaybeUninit::zeroed().assume_init();
        how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
        how.resolve = libc::RESOLVE_NO_SYMLINKS;
        let size = size_of::<libc::open_how>();
        let opened = libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size) as c_int;
        if opened < 0 {
            return opened;
        }
        let tree = libc::syscall(libc::SYS_open_tree, opened, c"".as_ptr(), flags) as c_int;
        let failure = *libc::__errno_location();
        libc::close(opened);
        *libc::__errno_location() = failure;
        tree
    }
}

/// Mounts a read-only clone of the mount tree at `path` over it.
///
/// # Safety
/// Only in the new process: uses its `errno`.
unsafe fn make_read_only(path: &CStr) -> Result<(), i32> {
    // SAFETY: this is the new process, by the function's contract; the descriptor closes when it ends.
    unsafe {
        let tree = clone_tree(path);
        let is_done = tree >= 0 && set_read_only(tree, libc::AT_RECURSIVE) == 0 && mount_tree(tree, path) >= 0;
        if is_done { Ok(()) } else { Err(*libc::__errno_location()) }
    }
}

/// Makes a mount tree read-only; with `AT_RECURSIVE` also the mounts within it. Changes only this flag, because others may be locked.
///
/// # Safety
/// `tree` must be a descriptor of the calling process.
unsafe fn set_read_only(tree: c_int, recursive: c_int) -> c_int {
    let attributes = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let (flags, size) = (libc::AT_EMPTY_PATH | recursive, size_of::<libc::mount_attr>());
    // SAFETY: the system call reads a plain structure of the given size.
    unsafe { libc::syscall(libc::SYS_mount_setattr, tree, c"".as_ptr(), flags, &raw const attributes, size) as c_int }
}

/// Forbids cgroup namespaces in this user namespace and its descendants. A kernel without the setting has no cgroup namespaces.
///
/// # Safety
/// Only in the new process, which is in the user namespace.
unsafe fn forbid_cgroup_namespaces() {
    // SAFETY: system calls with C strings and a descriptor that is opened here.
    unsafe {
        let file = libc::open(c"/proc/sys/user/max_cgroup_namespaces".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, c"0".as_ptr().cast(), 1);
            libc::close(file);
        }
    }
}

/// Mounts a detached mount tree at `path`.
///
/// # Safety
/// `tree` must be a descriptor of the calling process.
unsafe fn mount_tree(tree: c_int, path: &CStr) -> c_int {
    let empty = c"".as_ptr();
    // SAFETY: a system call with C strings and a descriptor of this process.
    unsafe {
        libc::syscall(libc::SYS_move_mount, tree, empty, libc::AT_FDCWD, path.as_ptr(), libc::MOVE_MOUNT_F_EMPTY_PATH)
            as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_mapped_to_themselves() {
        assert_eq!(identity_map("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity_map(" 0 1000 1\n 1 100000 65536\n"), "0 0 1\n1 1 65536\n");
        assert_eq!(identity_map("odd"), "");
    }
}
