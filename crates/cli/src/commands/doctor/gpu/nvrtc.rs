//! Test of NVRTC, the compiler of GPU kernels: its version, and a kernel that adds two numbers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use libloading::Library;

use super::library::{self, Loaded};

const NAMES: [&str; 4] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];
const KERNEL: &CStr =
    c"extern \"C\" __global__ void add(float *a, const float *b) { a[threadIdx.x] += b[threadIdx.x]; }";

pub fn test(directories: &[PathBuf], with_gpu: bool) -> Result<String, String> {
    let Loaded { library, place } = library::load(&NAMES, "libnvrtc.so", directories)?;
    // Leaked, so that it stays loaded as long as this process lives.
    let library = Box::leak(Box::new(library));
    let version = version(library)?;
    if !with_gpu {
        return Ok(format!("{version}{place}"));
    }
    compile(library).map_err(|error| format!("{version}{place}: {error}"))?;
    Ok(format!("{version}{place}: compiled a kernel"))
}

fn version(library: &Library) -> Result<String, String> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the type is that of `nvrtc.h`, and both numbers can be written.
    unsafe {
        let get: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = library::function(library, "nvrtcVersion")?;
        check(library, "nvrtcVersion", get(&mut major, &mut minor))?;
    }
    Ok(format!("{major}.{minor}"))
}

fn compile(library: &Library) -> Result<(), String> {
    type Texts = *const *const c_char;
    type Create = unsafe extern "C" fn(*mut *mut c_void, *const c_char, *const c_char, c_int, Texts, Texts) -> c_int;
    type Compile = unsafe extern "C" fn(*mut c_void, c_int, Texts) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
    let (mut program, name) = (ptr::null_mut(), c"add.cu");
    // SAFETY: the types are those of `nvrtc.h`; `program` can be written, source and name are C strings, there are no headers and no options, and
    // the program is destroyed once, after it was created.
    unsafe {
        let (create, compile): (Create, Compile) =
            (library::function(library, "nvrtcCreateProgram")?, library::function(library, "nvrtcCompileProgram")?);
        let destroy: Destroy = library::function(library, "nvrtcDestroyProgram")?;
        let created = create(&mut program, KERNEL.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null());
        check(library, "creating a program", created)?;
        let compiled = check(library, "compiling a kernel", compile(program, 0, ptr::null()));
        compiled.and(check(library, "removing a program", destroy(&mut program)))
    }
}

fn check(library: &Library, action: &str, code: c_int) -> Result<(), String> {
    library::check(action, code, |code| {
        // SAFETY: the type is that of `nvrtc.h`; the texts are constants of the library, which stays loaded.
        unsafe {
            match library::function::<unsafe extern "C" fn(c_int) -> *const c_char>(library, "nvrtcGetErrorString") {
                Ok(text) => CStr::from_ptr(text(code)).to_string_lossy().into_owned(),
                Err(_) => format!("error {code}"),
            }
        }
    })
}
