//! Starts the guarded program as `vfork` would: until the program takes over, its process works in the guard's own memory
//! while the guard stands still. Copying the guard first costs more than everything else that a short job needs. Only
//! `tree` enters here. In the new process: no allocation, no lock, no panic, system calls only.

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

use super::order::Order;
use super::signals;
use crate::sweep::TAG_VARIABLE;

/// Where programs are looked for when the environment does not say, as the C library has it.
const USUAL_PATH: &[u8] = b"/bin:/usr/bin";
/// What the new process needs until the program takes over is a few frames.
const STACK: usize = 64 << 10;

/// The kernel's number for the right to mount and unmount.
const CAP_SYS_ADMIN: libc::c_ulong = 21;

/// Starts the order's program, reading from `input`. Standard output and error are those of the guard.
pub fn start(order: &Order, input: BorrowedFd<'_>, has_terminal: bool) -> io::Result<Pid> {
    let program = order.argv.first().ok_or(Errno::INVAL)?;
    let places = places_of(program, &order.env);
    let tag = CString::new([TAG_VARIABLE.as_bytes(), b"=", order.tag.as_bytes()].concat())?;
    let (name, _) = tag.as_bytes().split_at(TAG_VARIABLE.len() + 1);
    let kept = order.env.iter().filter(|variable| !variable.as_bytes().starts_with(name));
    let variables = pointers(kept.map(|variable| variable.as_c_str()).chain([tag.as_c_str()]));
    // A script without a first line that names its interpreter is the shell's; its name takes the place of the second word.
    let words = pointers([c"/bin/sh"].into_iter().chain(order.argv.iter().map(CString::as_c_str)));
    let mut plan =
        Plan { input, has_terminal, guard: getpid(), order, places: &places, words, variables, problem: None };
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    // SAFETY: the new process runs `enter` on a stack of its own, in this memory; this thread, the only one, goes on when
    // it has ended or become another program (CLONE_VFORK), so everything it points to stays. It makes system calls only.
    let id = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(enter, top, flags, (&raw mut plan).cast::<c_void>())
    };
    let Some(pid) = Pid::from_raw(id).filter(|_| id > 0) else { return Err(io::Error::last_os_error()) };
    match plan.problem {
        None => Ok(pid),
        Some(problem) => {
            // It has ended, with nothing to tell but the above.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            Err(problem.into())
        }
    }
}

struct Plan<'a> {
    input: BorrowedFd<'a>,
    has_terminal: bool,
    guard: Pid,
    order: &'a Order,
    places: &'a [CString],
    /// The shell's name, then all words of the command.
    words: Vec<*const c_char>,
    variables: Vec<*const c_char>,
    /// Told back through the memory that both processes have.
    problem: Option<Errno>,
}

/// The new process's whole life before the program.
extern "C" fn enter(plan: *mut c_void) -> c_int {
    // SAFETY: `start` gave us its plan and waits.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    plan.problem = Some(plan.become_program());
    127
}

impl Plan<'_> {
    /// Returns only when it did not work.
    fn become_program(&mut self) -> Errno {
        match self.prepare() {
            Ok(()) => self.execute_anywhere(),
            Err(problem) => problem,
        }
    }

    fn prepare(&self) -> Result<(), Errno> {
        dup2_stdin(self.input)?;
        // Its own session: no terminal may stop it, signal it or be read by it.
        setsid()?;
        if self.has_terminal {
            // Unless it was given one.
            ioctl_tiocsctty(stdin())?;
        }
        self.enter_namespaces()?;
        // Who changes what they are is no longer told of their parent's death, so only now.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The guard may have been killed before the line above took effect.
        if getppid() != Some(self.guard) {
            return Err(Errno::SRCH);
        }
        chdir(self.order.cwd.as_c_str())?;
        if let Some(processors) = &self.order.processors {
            // A limit that does not hold is no reason to run nothing.
            let _ = sched_setaffinity(None, processors);
        }
        signals::unblock_all();
        Ok(())
    }

    /// Inside, a user who is root there could take away what hides, so this right ends here.
    fn enter_namespaces(&self) -> Result<(), Errno> {
        let Some([user, mount]) = &self.order.namespaces else { return Ok(()) };
        // SAFETY: system calls on descriptors that are open and on numbers.
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

    fn execute_anywhere(&mut self) -> Errno {
        let mut problem = Errno::NOENT;
        for place in self.places {
            match self.execute(place) {
                // As a shell does: go on, but remember that there was one.
                Errno::ACCESS => problem = Errno::ACCESS,
                Errno::NOENT | Errno::NOTDIR => {}
                other => return other,
            }
        }
        problem
    }

    fn execute(&mut self, place: &CStr) -> Errno {
        let problem = execve(place, &self.words[1..], &self.variables);
        if problem != Errno::NOEXEC {
            return problem;
        }
        self.words[1] = place.as_ptr();
        execve(c"/bin/sh", &self.words, &self.variables)
    }
}

fn execve(program: &CStr, words: &[*const c_char], variables: &[*const c_char]) -> Errno {
    // SAFETY: both lists end with a null pointer; all others are to texts that `start` holds.
    unsafe {
        libc::execve(program.as_ptr(), words.as_ptr(), variables.as_ptr());
    }
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A name without a slash is looked for along the `PATH` that the program is given.
fn places_of(program: &CString, env: &[CString]) -> Vec<CString> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.clone()];
    }
    let path = env.iter().find_map(|variable| variable.as_bytes().strip_prefix(b"PATH=")).unwrap_or(USUAL_PATH);
    let place = |directory: &[u8]| match directory {
        // An empty one means the working directory.
        b"" => CString::new([b"./", program.as_bytes()].concat()),
        _ => CString::new([directory, b"/", program.as_bytes()].concat()),
    };
    path.split(|byte| *byte == b':').filter_map(|directory| place(directory).ok()).collect()
}

fn pointers<'a>(texts: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    texts.map(CStr::as_ptr).chain([null()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_along_the_path_they_are_given() {
        let check = |program: &str, env: &[&str], expected: &[&str]| {
            let text = |text: &&str| CString::new(*text).expect("plain text");
            let env: Vec<_> = env.iter().map(text).collect();
            assert_eq!(places_of(&text(&program), &env), expected.iter().map(text).collect::<Vec<_>>());
        };
        check("sh", &["A=b", "PATH=/one::/two", "PATH=/three"], &["/one/sh", "./sh", "/two/sh"]);
        check("sh", &["PATHS=/one"], &["/bin/sh", "/usr/bin/sh"]);
        check("./sh", &["PATH=/one"], &["./sh"]);
    }
}
