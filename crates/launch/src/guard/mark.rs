//! Writes a guard's tag where the process table shows it. A guard is forked, not started anew, so its environment is the
//! warden's; the warden is started with a tag of `BLANK`, and each guard writes that of its process over it.

use std::ffi::{CStr, CString};

use crate::sweep::TAG_VARIABLE;

/// Room for the longest tag that shows whole; a longer one is cut. No tag of ours begins like this.
pub const BLANK: &str = match str::from_utf8(&[b'-'; 1024]) {
    Ok(text) => text,
    Err(_) => panic!("dashes are text"),
};

/// Where this process's tag stands.
pub struct Mark {
    value: *mut u8,
    room: usize,
}

impl Mark {
    /// To be called before the tag is first written, in a process that never changes its environment.
    pub fn find() -> Option<Mark> {
        let name = CString::new(TAG_VARIABLE).expect("a name without zero bytes");
        // SAFETY: the pointer, if any, is to the value in the block that the kernel gave this process at its start:
        // nothing here ever sets a variable, so nothing moves it. It ends with a zero byte.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            (!value.is_null()).then(|| Mark { value: value.cast(), room: CStr::from_ptr(value).to_bytes().len() })
        }
    }

    pub fn show(&self, tag: &[u8]) {
        let length = tag.len().min(self.room);
        // SAFETY: the block is writable and has room for this and the zero byte behind it; there is one thread, so nobody
        // reads it meanwhile.
        unsafe {
            std::ptr::copy_nonoverlapping(tag.as_ptr(), self.value, length);
            // What is left of an earlier one is a variable of no name, which nobody asks for.
            *self.value.add(length) = 0;
        }
    }
}
