//! Kernels, compiled at first use for one element type and one operation. Compiling takes some tenths of a second; a training needs one or
//! two.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};

use crate::Dtype;
use crate::device::cuda::api::{Handle, Nvrtc, SUCCESS};
use crate::device::driver::DriverError;
use crate::device::tasks::{CHUNK_BYTES, MAX_POINTERS};
use crate::op::Combine;

const SOURCE: &str = include_str!("kernels.cu");
/// Numbers of sources for which there are special kernels.
const SPECIAL_SOURCES: usize = 4;

/// Functions of one compiled program.
#[derive(Clone, Copy)]
pub struct Program {
    any: Handle,
    by_sources: [Handle; SPECIAL_SOURCES],
    /// For floating-point types.
    pub adasum: Option<(Handle, Handle)>,
}

// SAFETY: handles of the driver, which may be used from any thread.
unsafe impl Send for Program {}

impl Program {
    pub fn combine(&self, n_sources: Option<usize>) -> Handle {
        match n_sources {
            Some(n) if (1..=SPECIAL_SOURCES).contains(&n) => self.by_sources[n - 1],
            _ => self.any,
        }
    }
}

/// Compiled programs of a device.
pub struct Kernels {
    compiler: Nvrtc,
    architecture: String,
    programs: Mutex<HashMap<(Dtype, Combine), Program>>,
}

impl Kernels {
    pub fn new(compiler: Nvrtc, major: i32, minor: i32) -> Kernels {
        Kernels { compiler, architecture: format!("--gpu-architecture=sm_{major}{minor}"), programs: Mutex::default() }
    }

    /// The program for this element type and operation. `load` loads its functions from a compiled image.
    pub fn program(
        &self,
        dtype: Dtype,
        combine: Combine,
        load: impl Fn(&[u8], &[&str]) -> Result<Vec<Handle>, DriverError>,
    ) -> Result<Program, DriverError> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(&(dtype, combine)) {
            return Ok(*program);
        }
        let image = self.compile(&options(dtype, combine))?;
        let mut names = vec!["combine_any", "combine_1", "combine_2", "combine_3", "combine_4"];
        if dtype.is_float() {
            names.extend(["adasum_dots", "adasum_combine"]);
        }
        let functions = load(&image, &names)?;
        let program = Program {
            any: functions[0],
            by_sources: [functions[1], functions[2], functions[3], functions[4]],
            adasum: dtype.is_float().then(|| (functions[5], functions[6])),
        };
        programs.insert((dtype, combine), program);
        Ok(program)
    }

    fn compile(&self, options: &[String]) -> Result<Vec<u8>, DriverError> {
        let c_string = |text: &str| CString::new(text).expect("no zero byte in sources and options");
        let source = c_string(SOURCE);
        let options: Vec<CString> = options.iter().chain([&self.architecture]).map(|option| c_string(option)).collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let api = &self.compiler;
        let mut program: Handle = std::ptr::null_mut();
        // SAFETY: the strings outlive the calls, and the buffers have the sizes that the library asked for.
        unsafe {
            let (name, none) = (c"corro.cu".as_ptr(), std::ptr::null());
            let created = (api.create.call)(&raw mut program, source.as_ptr(), name, 0, none, none);
            check("nvrtcCreateProgram", created, String::new())?;
            let compiled = (api.compile.call)(program, options.len() as i32, options.as_ptr());
            let result = if compiled == SUCCESS {
                self.image(program)
            } else {
                check("nvrtcCompileProgram", compiled, self.log(program)).map(|()| Vec::new())
            };
            (api.destroy.call)(&raw mut program);
            result
        }
    }

    /// # Safety
    /// `program` must be a compiled program.
    unsafe fn image(&self, program: Handle) -> Result<Vec<u8>, DriverError> {
        let mut n_bytes = 0;
        // SAFETY: the buffer has the size that the library asks for.
        unsafe {
            check("nvrtcGetCUBINSize", (self.compiler.cubin_size.call)(program, &raw mut n_bytes), String::new())?;
            let mut image = vec![0u8; n_bytes];
            check("nvrtcGetCUBIN", (self.compiler.cubin.call)(program, image.as_mut_ptr().cast()), String::new())?;
            Ok(image)
        }
    }

    /// # Safety
    /// `program` must be a program of the compiler.
    unsafe fn log(&self, program: Handle) -> String {
        let mut n_bytes = 0;
        // SAFETY: the buffer has the size that the library asks for.
        unsafe {
            (self.compiler.log_size.call)(program, &raw mut n_bytes);
            let mut log = vec![0u8; n_bytes];
            (self.compiler.log.call)(program, log.as_mut_ptr().cast());
            String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
        }
    }
}

fn check(call: &'static str, code: i32, text: String) -> Result<(), DriverError> {
    if code == SUCCESS { Ok(()) } else { Err(DriverError { call, code, text: format!("error {code}. {text}") }) }
}

/// Options of the compiler: the element type, the type to compute in, and the operation. Pure.
fn options(dtype: Dtype, combine: Combine) -> Vec<String> {
    let integer = |c_type: &str, lowest: &str, highest: &str| {
        let scale = format!("scaled_integer<{c_type}>(x,factor,{lowest},{highest})");
        (c_type.to_owned(), c_type.to_owned(), "(x)".to_owned(), "(a)".to_owned(), scale)
    };
    let half = |load: &str, store: &str| {
        (
            "u16".to_owned(),
            "float".to_owned(),
            format!("{load}(x)"),
            format!("{store}(a)"),
            "((x)*(float)(factor))".into(),
        )
    };
    let float = |c_type: &str| {
        let scale = format!("((x)*({c_type})(factor))");
        (c_type.to_owned(), c_type.to_owned(), "(x)".to_owned(), "(a)".to_owned(), scale)
    };
    let (element, accumulator, load, store, scale) = match dtype {
        Dtype::Bool => ("unsigned char".into(), "unsigned char".into(), "((x)!=0)".into(), "(a)".into(), "(x)".into()),
        Dtype::U8 => integer("unsigned char", "0.0", "255.0"),
        Dtype::I8 => integer("signed char", "-128.0", "127.0"),
        Dtype::U16 => integer("u16", "0.0", "65535.0"),
        Dtype::I16 => integer("short", "-32768.0", "32767.0"),
        Dtype::I32 => integer("int", "-2147483648.0", "2147483647.0"),
        Dtype::I64 => integer("long long", "-9223372036854775808.0", "9223372036854775807.0"),
        Dtype::F16 => half("from_half", "to_half"),
        Dtype::Bf16 => half("from_bfloat", "to_bfloat"),
        Dtype::F32 => float("float"),
        Dtype::F64 => float("double"),
    };
    let combined = match (combine, dtype) {
        (Combine::Sum | Combine::Max, Dtype::Bool) => "((a)|(b))".to_owned(),
        (Combine::Product | Combine::Min, Dtype::Bool) => "((a)&(b))".to_owned(),
        (Combine::Sum, _) => format!("({accumulator})((a)+(b))"),
        (Combine::Product, _) => format!("({accumulator})((a)*(b))"),
        (Combine::Min, _) => format!("minimum<{accumulator}>(a,b)"),
        (Combine::Max, _) => format!("maximum<{accumulator}>(a,b)"),
    };
    let mut options = vec![
        format!("-DELEMENT={element}"),
        format!("-DACCUMULATOR={accumulator}"),
        format!("-DLOAD(x)={load}"),
        format!("-DSTORE(a)={store}"),
        format!("-DSCALE(x,factor)={scale}"),
        format!("-DCOMBINE(a,b)={combined}"),
        format!("-DMAX_POINTERS={MAX_POINTERS}"),
        format!("-DCHUNK_BYTES={CHUNK_BYTES}"),
        "--std=c++17".to_owned(),
    ];
    if dtype.is_float() {
        options.push("-DADASUM=1".to_owned());
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_define_all_that_the_source_uses() {
        for dtype in Dtype::ALL {
            for combine in Combine::ALL {
                let options = options(dtype, combine);
                for name in ["ELEMENT", "ACCUMULATOR", "LOAD(x)", "STORE(a)", "SCALE(x,factor)", "COMBINE(a,b)"] {
                    assert!(options.iter().any(|option| option.starts_with(&format!("-D{name}="))), "{name} {dtype:?}");
                }
                assert_eq!(options.contains(&"-DADASUM=1".to_owned()), dtype.is_float());
            }
        }
        let bf16 = options(Dtype::Bf16, Combine::Max);
        assert!(bf16.contains(&"-DLOAD(x)=from_bfloat(x)".to_owned()) && bf16.contains(&"-DELEMENT=u16".to_owned()));
        assert!(bf16.contains(&"-DCOMBINE(a,b)=maximum<float>(a,b)".to_owned()));
    }
}
