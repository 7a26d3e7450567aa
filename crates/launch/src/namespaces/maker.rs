//! Makes name spaces from inside a program of many threads: a process that works in this program's memory, as `guard::start`
//! has it, enters new ones, hides what is to be hidden and ends; what it made is held by descriptors. Only `namespaces`
//! enters here. In the new process: no allocation, no lock, no panic, system calls only.

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

use super::{NamespaceError, Namespaces, View};

const STACK: usize = 64 << 10;
/// Nothing is kept in what hides: a few directories' names.
const TMPFS: &CStr = c"mode=0755,size=1m,nr_inodes=4096";

/// What the new process does, and how far it came.
struct Plan {
    user: Option<RawFd>,
    /// It tells its id here and goes on when it hears something there.
    tell: RawFd,
    hear: RawFd,
    /// The other ends, which it must not hold: it would wait for itself.
    theirs: [RawFd; 2],
    hidden: Vec<CString>,
    shown: Vec<Shown>,
    /// Made read-only, where they are there.
    protected: Vec<CString>,
    /// The first that could not be.
    left_writable: Option<(usize, i32)>,
    problem: Option<(&'static str, Option<usize>, i32)>,
}

struct Shown {
    path: CString,
    way: Vec<CString>,
    is_read_only: bool,
    tree: c_int,
}

pub fn make(view: &View, user: Option<Arc<OwnedFd>>) -> Result<Namespaces, NamespaceError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| NamespaceError::Clone(errno.into()));
    let (told, tell) = pipe()?;
    let (hear, go_on) = pipe()?;
    let mut plan = Plan {
        user: user.as_ref().map(|user| user.as_raw_fd()),
        tell: tell.as_raw_fd(),
        hear: hear.as_raw_fd(),
        theirs: [told.as_raw_fd(), go_on.as_raw_fd()],
        hidden: view.hidden.iter().map(|path| text(path)).collect::<Result<_, _>>()?,
        shown: view.shown.iter().map(|path| shown(view, path)).collect::<Result<_, _>>()?,
        protected: protected().iter().map(|path| text(Path::new(path))).collect::<Result<_, _>>()?,
        left_writable: None,
        problem: None,
    };
    let (held, started) = std::thread::scope(|scope| {
        // This thread stands still while the new process is at work, so another one does what only outsiders may.
        let helper = scope.spawn(|| attend(File::from(told), File::from(go_on), user));
        let started = start(&mut plan);
        // If it never was there, nobody speaks any more.
        drop((tell, hear));
        (helper.join(), started)
    });
    started.map_err(NamespaceError::Clone)?;
    if let Some((step, at, errno)) = plan.problem {
        let path = at.map_or_else(|| PathBuf::from("/"), |at| plan.path(step, at));
        return Err(NamespaceError::Step { step, path, source: io::Error::from_raw_os_error(errno) });
    }
    let held = held.map_err(|_| NamespaceError::Clone(io::ErrorKind::Other.into()))?.map_err(NamespaceError::Map)?;
    let left_writable = plan.left_writable.map(|(at, errno)| {
        let path = plan.protected[at].to_string_lossy();
        format!("{path} cannot be made read-only: {}", io::Error::from_raw_os_error(errno)).into()
    });
    Ok(Namespaces { left_writable, ..held })
}

/// Settings of the machine: files of root, which anybody with root's number may write, whatever rights they lack otherwise. An ordinary user
/// may not, and keeps the right to mount file systems of these kinds in name spaces of their own; only control groups that are delegated to
/// this user, with the limits of jobs, are theirs.
fn protected() -> &'static [&'static str] {
    if geteuid().is_root() {
        return PROTECTED;
    }
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let is_delegated = groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controls), Some(path)) = (parts.next(), parts.next()) else { return false };
        let above = Path::new(CONTROL_GROUPS).join(controls.trim_start_matches("name="));
        rustix::fs::access(above.join(path.trim_start_matches('/')), rustix::fs::Access::WRITE_OK).is_ok()
    });
    if is_delegated { &[CONTROL_GROUPS] } else { &[] }
}

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// What container runtimes make read-only or hide because it can be written. `/sys` is recursive: control groups are below it.
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

fn shown(view: &View, path: &Path) -> Result<Shown, NamespaceError> {
    let way = view.way_to(path).iter().map(|path| text(path)).collect::<Result<_, _>>()?;
    let is_read_only = view.read_only.iter().any(|known| known == path);
    Ok(Shown { path: text(path)?, way, is_read_only, tree: -1 })
}

fn text(path: &Path) -> Result<CString, NamespaceError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| NamespaceError::Clone(error.into()))
}

/// Hears of the new process, gives it the numbers of users, holds its name spaces, lets it go on.
fn attend(mut told: File, mut go_on: File, user: Option<Arc<OwnedFd>>) -> io::Result<Namespaces> {
    let mut id = [0; 4];
    told.read_exact(&mut id)?;
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
    // Should anything above fail, the pipe closes, and the process hears that too.
    go_on.write_all(&[1])?;
    Ok(namespaces)
}

/// Everybody keeps their number. Without rights over other users, only this one is known inside.
fn map_users(process: &Path) -> io::Result<()> {
    let write = |name: &str, text: String| std::fs::write(process.join(name), text);
    let everybody =
        |name: &str| same_numbers(&std::fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default());
    if write("uid_map", everybody("uid_map")).is_ok() {
        return write("gid_map", everybody("gid_map"));
    }
    write("setgroups", "deny".to_owned())?;
    write("uid_map", same_number(geteuid().as_raw()))?;
    write("gid_map", same_number(getegid().as_raw()))
}

/// Lines of first number inside, first outside, how many: all that have a number here keep it.
fn same_numbers(map: &str) -> String {
    let line = |line: &str| {
        let mut columns = line.split_whitespace();
        let (first, count) = (columns.next()?, columns.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    };
    map.lines().filter_map(line).collect()
}

fn same_number(id: u32) -> String {
    format!("{id} {id} 1\n")
}

fn start(plan: &mut Plan) -> io::Result<()> {
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let new = if plan.user.is_some() { 0 } else { libc::CLONE_NEWUSER | libc::CLONE_NEWNS };
    // SAFETY: the new process runs `enter` on a stack of its own, in this memory; this thread goes on when it has ended
    // (CLONE_VFORK), so everything it points to stays, and nobody else knows of it. It makes system calls only.
    // Signals wait: a handler of this program must not run in the other process, which has its memory.
    let id = unsafe {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | new;
        let id = libc::clone(enter, top, flags, std::ptr::from_mut(plan).cast::<c_void>());
        let failure = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        if id > 0 { Ok(id) } else { Err(failure) }
    };
    let pid = Pid::from_raw(id?);
    // It has ended; what it had to tell is in the plan.
    let _ = waitpid(pid, WaitOptions::empty());
    Ok(())
}

extern "C" fn enter(plan: *mut c_void) -> c_int {
    // SAFETY: `start` gave us its plan and waits.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    plan.problem = plan.furnish().err();
    0
}

type Step = Result<(), (&'static str, Option<usize>, i32)>;

const ENTER: &str = "cannot enter new name spaces at";
const KEEP: &str = "cannot keep";
const HIDE: &str = "cannot hide";
const SHOW: &str = "cannot show";

impl Plan {
    fn path(&self, step: &str, at: usize) -> PathBuf {
        let text = if step == HIDE { &self.hidden[at] } else { &self.shown[at].path };
        PathBuf::from(std::ffi::OsStr::from_bytes(text.as_bytes()))
    }

    fn furnish(&mut self) -> Step {
        // SAFETY: system calls on texts and numbers of this plan, in a process of our own.
        unsafe {
            for end in self.theirs {
                libc::close(end);
            }
            if let Some(user) = self.user {
                check(libc::setns(user, libc::CLONE_NEWUSER), ENTER, None)?;
                check(libc::unshare(libc::CLONE_NEWNS), ENTER, None)?;
            }
            let id = libc::getpid().to_ne_bytes();
            let mut word = 0u8;
            if libc::write(self.tell, id.as_ptr().cast(), id.len()) != 4
                || libc::read(self.hear, (&raw mut word).cast(), 1) != 1
            {
                // The other thread says why.
                return Ok(());
            }
            if self.user.is_none() {
                forbid_group_namespaces();
            }
            // What is mounted or unmounted outside is so inside too, and not the other way round.
            let slave = libc::MS_REC | libc::MS_SLAVE;
            check(libc::mount(null(), c"/".as_ptr(), null(), slave, null()), ENTER, None)?;
            for (at, path) in self.protected.iter().enumerate() {
                if let Err(errno) = make_read_only(path)
                    && errno != libc::ENOENT
                {
                    self.left_writable.get_or_insert((at, errno));
                }
            }
            for (at, shown) in self.shown.iter_mut().enumerate() {
                shown.tree = clone_tree(&shown.path);
                check(shown.tree, KEEP, Some(at))?;
                // Linux can do it from 5.12 on; an older one shows it as it is.
                if shown.is_read_only && set_read_only(shown.tree, 0) != 0 && *libc::__errno_location() != libc::ENOSYS
                {
                    check(-1, KEEP, Some(at))?;
                }
            }
            for (at, hidden) in self.hidden.iter().enumerate() {
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                let (name, options) = (c"tmpfs".as_ptr(), TMPFS.as_ptr().cast());
                check(libc::mount(name, hidden.as_ptr(), name, flags, options), HIDE, Some(at))?;
            }
            for (at, shown) in self.shown.iter().enumerate() {
                for directory in &shown.way {
                    // One that is there already is as good; another failure shows below.
                    libc::mkdir(directory.as_ptr(), 0o755);
                }
                check(place_tree(shown.tree, &shown.path), SHOW, Some(at))?;
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
    // SAFETY: the calling thread's own, which stands still.
    Err((step, at, unsafe { *libc::__errno_location() }))
}

/// A copy of what is mounted there, file or directory, with everything below, that lies nowhere yet. The path leads through no link: one that was put
/// there since the view was made is an error, so nothing else can be shown instead.
unsafe fn clone_tree(path: &CStr) -> c_int {
    let flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH) as libc::c_uint;
    // SAFETY: system calls on texts that end with a zero byte and on a plain structure, which is all zeros but for what is set.
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

/// Lays a read-only copy of what is mounted at `path`, with everything below, over it.
unsafe fn make_read_only(path: &CStr) -> Result<(), i32> {
    // SAFETY: as above; the copy is of this process and closed when it ends.
    unsafe {
        let tree = clone_tree(path);
        let is_done = tree >= 0 && set_read_only(tree, libc::AT_RECURSIVE) == 0 && place_tree(tree, path) >= 0;
        if is_done { Ok(()) } else { Err(*libc::__errno_location()) }
    }
}

/// With `AT_RECURSIVE` also what is mounted in it. Only this flag changes: others are locked by whoever mounted it.
unsafe fn set_read_only(tree: c_int, recursive: c_int) -> c_int {
    let attributes = libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let (flags, size) = (libc::AT_EMPTY_PATH | recursive, size_of::<libc::mount_attr>());
    // SAFETY: a system call on a plain structure.
    unsafe { libc::syscall(libc::SYS_mount_setattr, tree, c"".as_ptr(), flags, &raw const attributes, size) as c_int }
}

/// In this name space of users and all that are made in it. A kernel without the setting has no such name spaces either.
unsafe fn forbid_group_namespaces() {
    // SAFETY: system calls on texts that end with a zero byte.
    unsafe {
        let file = libc::open(c"/proc/sys/user/max_cgroup_namespaces".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, c"0".as_ptr().cast(), 1);
            libc::close(file);
        }
    }
}

unsafe fn place_tree(tree: c_int, path: &CStr) -> c_int {
    let empty = c"".as_ptr();
    // SAFETY: as above.
    unsafe {
        libc::syscall(libc::SYS_move_mount, tree, empty, libc::AT_FDCWD, path.as_ptr(), libc::MOVE_MOUNT_F_EMPTY_PATH)
            as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_as_they_are() {
        assert_eq!(same_numbers("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(same_numbers(" 0 1000 1\n 1 100000 65536\n"), "0 0 1\n1 1 65536\n");
        assert_eq!(same_numbers("odd"), "");
    }
}
