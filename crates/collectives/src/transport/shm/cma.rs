//! Cross-memory attach: reads another process's memory with `process_vm_readv`, one copy instead of two. Whether the kernel allows it is found out by
//! trying (`works`), because containers, security modules and namespaces may forbid it.

use std::io;

/// A member's process, as this process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub i32);

/// Copies `n_bytes` at `theirs` in the other process to `mine`.
///
/// # Safety
/// `mine` must be writable for `n_bytes`. The caller synchronises with writes of the other process.
pub unsafe fn read(pid: Pid, theirs: u64, mine: *mut u8, n_bytes: usize) -> io::Result<()> {
    let mut done = 0;
    while done < n_bytes {
        let local = libc::iovec {
            // SAFETY: `done` is below `n_bytes`, for which `mine` is valid by the function's contract.
            iov_base: unsafe { mine.add(done) }.cast(),
            iov_len: n_bytes - done,
        };
        let remote = libc::iovec { iov_base: (theirs as usize + done) as *mut libc::c_void, iov_len: n_bytes - done };
        // SAFETY: writes at most `n_bytes - done` bytes at `local`, which is writable by the function's contract; the kernel checks the remote address.
        let read = unsafe { libc::process_vm_readv(pid.0, &raw const local, 1, &raw const remote, 1, 0) };
        match read {
            ..0 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => done += read as usize,
        }
    }
    Ok(())
}

/// Whether process `pid` can be read and holds `token` at `theirs`: a process of another PID namespace with that number does not.
pub fn works(pid: Pid, theirs: u64, token: u128) -> bool {
    let mut seen = [0u8; 16];
    // SAFETY: an array of that size.
    let read = unsafe { read(pid, theirs, seen.as_mut_ptr(), seen.len()) };
    read.is_ok() && seen == token.to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use corro_test_support::skip;

    use super::*;

    #[test]
    fn a_process_reads_what_is_there_and_is_told_what_is_not() {
        let me = Pid(std::process::id() as i32);
        let token = Box::new(0x0123_4567_89ab_cdef_u128);
        if !works(me, &raw const *token as u64, *token) {
            skip::unsupported_machine("this kernel does not allow process_vm_readv between processes");
            return;
        }
        assert!(!works(me, &raw const *token as u64, 7));
        assert!(!works(me, 16, *token), "nothing is mapped there");
        assert!(!works(Pid(i32::MAX), &raw const *token as u64, *token));
    }
}
