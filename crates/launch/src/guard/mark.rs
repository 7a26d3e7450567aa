//! Writes a guard's tag where the process table shows it. A guard is forked, not started anew, so its environment is the
//! warden's; the warden is started with a tag of `BLANK`, and each guard writes its own over it.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use crate::sweep::TAG_VARIABLE;

/// Room for the longest tag that shows whole; a longer one is cut. No tag of ours begins like this.
pub const BLANK: &str = match str::from_utf8(&[b'-'; 1024]) {
    Ok(text) => text,
    Err(_) => panic!("dashes are text"),
};

/// To be called in a process of one thread that never changed its environment.
pub fn show(tag: &OsStr) {
    let name = CString::new(TAG_VARIABLE).expect("a name without zero bytes");
    // SAFETY: the pointer, if any, is to the value in the block that the kernel gave this process at its start: nothing
    // here ever set a variable, so nothing moved it. It is as long as `strlen` says, is writable, and with one thread
    // nobody reads it meanwhile.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return;
        }
        let room = CStr::from_ptr(value).to_bytes().len();
        let tag = tag.as_bytes();
        let length = tag.len().min(room);
        std::ptr::copy_nonoverlapping(tag.as_ptr(), value.cast::<u8>(), length);
        // What is left of the blank is a variable of no name, which nobody asks for.
        *value.add(length) = 0;
    }
}
