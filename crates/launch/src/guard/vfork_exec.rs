//! Starts the guarded program with `clone(CLONE_VM | CLONE_VFORK)`, as `vfork`: until exec, the new process runs in the guard's memory
//! while the guard is suspended. A plain fork would cost more than everything else that a short job needs. In the new process: no
//! allocation, no lock, no panic, system calls only.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, chdir, getpid, getppid, ioctl_tiocsctty, set_parent_process_death_signal, setsid, waitpid,
};
use rustix::stdio::{dup2_stdin, stdin};
use rustix::thread::sched_setaffinity;

use super::signals;
use super::spawn_request::SpawnRequest;
use crate::kill_tagged::TAG_VARIABLE;

/// `PATH` when the environment has none, as in the C library.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
/// Stack of the new process until exec, which needs only a few frames.
const STACK_BYTES: usize = 64 << 10;

/// The capability to mount and unmount.
const CAP_SYS_ADMIN: libc::c_ulong = 21;

/// Starts the program of a request with `input` as standard input. Standard output and error are those of the guard.
pub fn start(request: &SpawnRequest, input: BorrowedFd<'_>, has_terminal: bool) -> io::Result<Pid> {
    let program = request.argv.first().ok_or(Errno::INVAL)?;
    let paths = candidate_paths(program, &request.env);
    let tag = CString::new([TAG_VARIABLE.as_bytes(), b"=", request.tag.as_bytes()].concat())?;
    let (name, _) = tag.as_bytes().split_at(TAG_VARIABLE.len() + 1);
    let other_variables = request.env.iter().filter(|variable| !variable.as_bytes().starts_with(name));
    let variables = pointers(other_variables.map(|variable| variable.as_c_str()).chain([tag.as_c_str()]));
    // A script without `#!` is run by the shell: `execute` replaces the second word by the path of the script.
    let words = pointers([c"/bin/sh"].into_iter().chain(request.argv.iter().map(CString::as_c_str)));
    let mut plan =
        ChildPlan { input, has_terminal, guard: getpid(), request, paths: &paths, words, variables, problem: None };
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    // SAFETY: the new process runs `child_main` on a stack of its own, in this memory. This thread, the only one, continues when
    // the child has ended or called exec (CLONE_VFORK), so everything that it points to stays valid. The child makes system calls only.
    let id = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(child_main, top, flags, (&raw mut plan).cast::<c_void>())
    };
    let Some(pid) = Pid::from_raw(id).filter(|_| id > 0) else { return Err(io::Error::last_os_error()) };
    match plan.problem {
        None => Ok(pid),
        Some(problem) => {
            // It has ended; the problem is already known.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            Err(problem.into())
        }
    }
}

struct ChildPlan<'a> {
    input: BorrowedFd<'a>,
    has_terminal: bool,
    guard: Pid,
    request: &'a SpawnRequest,
    paths: &'a [CString],
    /// The shell, then all arguments of the command.
    words: Vec<*const c_char>,
    variables: Vec<*const c_char>,
    /// Set by the new process, in the shared memory.
    problem: Option<Errno>,
}

/// Entry point of the new process.
extern "C" fn child_main(plan: *mut c_void) -> c_int {
    // SAFETY: `start` passes its plan, and is suspended while this process uses it.
    let plan = unsafe { &mut *plan.cast::<ChildPlan<'_>>() };
    plan.problem = Some(plan.exec());
    127
}

impl ChildPlan<'_> {
    /// Prepares the process and calls exec. Returns only on failure.
    fn exec(&mut self) -> Errno {
        match self.prepare() {
            Ok(()) => self.execute_candidates(),
            Err(problem) => problem,
        }
    }

    fn prepare(&self) -> Result<(), Errno> {
        dup2_stdin(self.input)?;
        // A session of its own, without a controlling terminal that could stop or signal it.
        setsid()?;
        if self.has_terminal {
            // The terminal it was given becomes its controlling terminal.
            ioctl_tiocsctty(stdin())?;
        }
        self.enter_namespaces()?;
        // Entering namespaces clears the parent death signal, so it is set only now.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The guard may have been killed before the signal was set.
        if getppid() != Some(self.guard) {
            return Err(Errno::SRCH);
        }
        chdir(self.request.cwd.as_c_str())?;
        if let Some(processors) = &self.request.processors {
            // The process runs even without its affinity.
            let _ = sched_setaffinity(None, processors);
        }
        signals::unblock_all();
        Ok(())
    }

    /// Enters the namespaces, and drops CAP_SYS_ADMIN: a process that is root inside could otherwise unmount what hides directories.
    fn enter_namespaces(&self) -> Result<(), Errno> {
        let Some([user, mount]) = &self.request.namespaces else { return Ok(()) };
        // SAFETY: system calls with open descriptors and integers.
        let entered = unsafe {
            libc::setns(user.as_raw_fd(), libc::CLONE_NEWUSER) == 0
                && libc::setns(mount.as_raw_fd(), libc::CLONE_NEWNS) == 0
                && libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0
        };
        match entered {
            true => Ok(()),
            false => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }

    fn execute_candidates(&mut self) -> Errno {
        let mut problem = Errno::NOENT;
        for path in self.paths {
            match self.execute(path) {
                // As in a shell: try the next directory, but report EACCES if none has the program.
                Errno::ACCESS => problem = Errno::ACCESS,
                Errno::NOENT | Errno::NOTDIR => {}
                other => return other,
            }
        }
        problem
    }

    fn execute(&mut self, path: &CStr) -> Errno {
        let problem = execve(path, &self.words[1..], &self.variables);
        if problem != Errno::NOEXEC {
            return problem;
        }
        self.words[1] = path.as_ptr();
        execve(c"/bin/sh", &self.words, &self.variables)
    }
}

fn execve(program: &CStr, words: &[*const c_char], variables: &[*const c_char]) -> Errno {
    // SAFETY: both lists end with a null pointer; the other pointers are to C strings that `start` holds.
    unsafe {
        libc::execve(program.as_ptr(), words.as_ptr(), variables.as_ptr());
    }
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Paths to try for a program: a name without a slash is searched in the `PATH` of the new environment.
fn candidate_paths(program: &CString, env: &[CString]) -> Vec<CString> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.clone()];
    }
    let path = env.iter().find_map(|variable| variable.as_bytes().strip_prefix(b"PATH=")).unwrap_or(DEFAULT_PATH);
    let in_directory = |directory: &[u8]| match directory {
        // An empty entry means the working directory.
        b"" => CString::new([b"./", program.as_bytes()].concat()),
        _ => CString::new([directory, b"/", program.as_bytes()].concat()),
    };
    path.split(|byte| *byte == b':').filter_map(|directory| in_directory(directory).ok()).collect()
}

fn pointers<'a>(texts: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    texts.map(CStr::as_ptr).chain([null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_in_the_path_of_the_new_environment() {
        let check = |program: &str, env: &[&str], expected: &[&str]| {
            let text = |text: &&str| CString::new(*text).expect("plain text");
            let env: Vec<_> = env.iter().map(text).collect();
            assert_eq!(candidate_paths(&text(&program), &env), expected.iter().map(text).collect::<Vec<_>>());
        };
        check("sh", &["A=b", "PATH=/one::/two", "PATH=/three"], &["/one/sh", "./sh", "/two/sh"]);
        check("sh", &["PATHS=/one"], &["/bin/sh", "/usr/bin/sh"]);
        check("./sh", &["PATH=/one"], &["./sh"]);
    }
}
