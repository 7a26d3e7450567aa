//! Writes a guard's tag into its environment block, where `/proc/PID/environ` shows it. A guard is forked without exec, so its environment is that of
//! the fork server, which is started with the tag `BLANK_TAG`; each guard overwrites it with the tag of its process.

use std::ffi::{CStr, CString};

use crate::kill_tagged::TAG_VARIABLE;

/// Placeholder with space for a tag; longer tags are truncated. No tag begins with a dash.
pub const BLANK_TAG: &str = match str::from_utf8(&[b'-'; 1024]) {
    Ok(text) => text,
    Err(_) => panic!("dashes are text"),
};

/// Location of the tag in this process's environment block.
pub struct ProcTag {
    value: *mut u8,
    capacity: usize,
}

impl ProcTag {
    /// Finds the tag variable. Call it before the tag is first written, in a process that never changes its environment.
    pub fn find() -> Option<ProcTag> {
        let name = CString::new(TAG_VARIABLE).expect("a name without zero bytes");
        // SAFETY: the pointer, if not null, is the zero-terminated value in the block that the kernel gave this process at its start.
        // Nothing here sets a variable, so the block is never moved.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            (!value.is_null())
                .then(|| ProcTag { value: value.cast(), capacity: CStr::from_ptr(value).to_bytes().len() })
        }
    }

    pub fn write(&self, tag: &[u8]) {
        let length = tag.len().min(self.capacity);
        // SAFETY: the block is writable, and has `capacity` bytes and a zero byte at `value`; this process has one thread, so
        // nothing reads it meanwhile.
        unsafe {
            std::ptr::copy_nonoverlapping(tag.as_ptr(), self.value, length);
            // The rest of an earlier tag becomes an entry without a name, which nothing looks up.
            *self.value.add(length) = 0;
        }
    }
}
