//! Test of NCCL: its version, and a communicator on the first GPU.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use libloading::Library;

use super::library::{self, Loaded};

pub fn test(directories: &[PathBuf], with_gpu: bool) -> Result<String, String> {
    let Loaded { library, place } = library::load(&["libnccl.so.2"], "libnccl.so", directories)?;
    // Leaked, so that it stays loaded as long as this process lives.
    let library = Box::leak(Box::new(library));
    let version = version(library)?;
    if !with_gpu {
        return Ok(format!("{version}{place}"));
    }
    make_communicator(library).map_err(|error| format!("{version}{place}: {error}"))?;
    Ok(format!("{version}{place}: made a communicator"))
}

fn version(library: &Library) -> Result<String, String> {
    let mut version = 0;
    // SAFETY: the type is that of `nccl.h`, and `version` can be written.
    unsafe {
        let get: unsafe extern "C" fn(*mut c_int) -> c_int = library::function(library, "ncclGetVersion")?;
        check(library, "ncclGetVersion", get(&mut version))?;
    }
    Ok(format_version(version))
}

/// Before 2.9 the number had one digit less for the minor version.
fn format_version(version: c_int) -> String {
    let (major, rest) =
        if version < 10_000 { (version / 1000, version % 1000) } else { (version / 10_000, version % 10_000) };
    format!("{major}.{}.{}", rest / 100, rest % 100)
}

fn make_communicator(library: &Library) -> Result<(), String> {
    type InitAll = unsafe extern "C" fn(*mut *mut c_void, c_int, *const c_int) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
    let (mut communicator, devices) = (ptr::null_mut(), [0]);
    // SAFETY: the types are those of `nccl.h`; there is room for one communicator and one device is named, and the communicator is destroyed once,
    // after it was made.
    unsafe {
        let (init, destroy): (InitAll, Destroy) =
            (library::function(library, "ncclCommInitAll")?, library::function(library, "ncclCommDestroy")?);
        check(library, "making a communicator", init(&mut communicator, 1, devices.as_ptr()))?;
        check(library, "destroying a communicator", destroy(communicator))
    }
}

fn check(library: &Library, action: &str, code: c_int) -> Result<(), String> {
    library::check(action, code, |code| {
        // SAFETY: the type is that of `nccl.h`; the texts are constants of the library, which stays loaded.
        unsafe {
            match library::function::<unsafe extern "C" fn(c_int) -> *const c_char>(library, "ncclGetErrorString") {
                Ok(text) => format!("'{}'", CStr::from_ptr(text(code)).to_string_lossy()),
                Err(_) => format!("error {code}"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_forms() {
        assert_eq!([2708, 2804, 21003, 22803].map(format_version), ["2.7.8", "2.8.4", "2.10.3", "2.28.3"]);
    }
}
