//! The part of XLA's foreign function interface that is used: structs of `xla/ffi/api/c_api.h` (0.1 to 0.3), in which the fields used here
//! never moved. A flat table.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::NonNull;

/// `XLA_FFI_Error_Code` of failed operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    InvalidArgument = 3,
    FailedPrecondition = 9,
    Internal = 13,
}

/// `XLA_FFI_ExecutionStage_EXECUTE`.
pub const EXECUTE: c_int = 3;
/// `XLA_FFI_Extension_Metadata`.
pub const METADATA: c_int = 1;
/// `XLA_FFI_ArgType_BUFFER` and `XLA_FFI_RetType_BUFFER`.
pub const BUFFER: c_int = 1;
/// `XLA_FFI_AttrType_STRING`.
pub const STRING: c_int = 4;

/// An error that XLA frees.
#[repr(C)]
pub struct RawError {
    _inside: [u8; 0],
}

#[repr(C)]
pub struct Extension {
    pub struct_size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

#[repr(C)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

#[repr(C)]
pub struct ApiVersion {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

/// Later versions have more fields, which stay zero.
#[repr(C)]
pub struct Metadata {
    pub struct_size: usize,
    pub version: ApiVersion,
    pub traits: u32,
}

#[repr(C)]
pub struct Api {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub version: ApiVersion,
    pub internal: *const c_void,
    pub create_error: unsafe extern "C" fn(*mut CreateError) -> *mut RawError,
    _error_message_destroy_register: [*const c_void; 3],
    pub get_stream: unsafe extern "C" fn(*mut GetStream) -> *mut RawError,
}

#[repr(C)]
pub struct CreateError {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub message: *const c_char,
    pub code: c_int,
}

#[repr(C)]
pub struct GetStream {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub context: *mut c_void,
    pub stream: *mut c_void,
}

#[repr(C)]
pub struct Buffer {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub dtype: c_int,
    pub data: *mut c_void,
    pub rank: i64,
    pub dims: *const i64,
}

/// Arguments or results of a call.
#[repr(C)]
pub struct Values {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub types: *const c_int,
    pub values: *const *const Buffer,
}

#[repr(C)]
pub struct ByteSpan {
    pub bytes: *const u8,
    pub len: usize,
}

#[repr(C)]
pub struct Attributes {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub size: i64,
    pub types: *const c_int,
    pub names: *const *const ByteSpan,
    pub values: *const *const c_void,
}

#[repr(C)]
pub struct CallFrame {
    pub struct_size: usize,
    pub extension: *mut Extension,
    pub api: *const Api,
    pub context: *mut c_void,
    pub stage: c_int,
    pub arguments: Values,
    pub results: Values,
    pub attributes: Attributes,
}

impl CallFrame {
    /// Where to write metadata, if this call asks for them.
    ///
    /// # Safety
    /// The frame must be that of a call of XLA, which is in progress.
    pub unsafe fn metadata(&self) -> Option<NonNull<Metadata>> {
        let mut extension = self.extension;
        // SAFETY: XLA ends the list of its extensions with null, and an extension has the struct of its kind.
        unsafe {
            while !extension.is_null() {
                if (*extension).kind == METADATA {
                    return NonNull::new((*extension.cast::<MetadataExtension>()).metadata);
                }
                extension = (*extension).next;
            }
        }
        None
    }

    /// The stream in which XLA executes the call, or XLA's error.
    ///
    /// # Safety
    /// As [`CallFrame::metadata`].
    pub unsafe fn stream(&self) -> Result<u64, *mut RawError> {
        let mut arguments = GetStream {
            struct_size: size_of::<GetStream>(),
            extension: std::ptr::null_mut(),
            context: self.context,
            stream: std::ptr::null_mut(),
        };
        // SAFETY: XLA's function with its argument, and the context of the call in progress.
        let error = unsafe { ((*self.api).get_stream)(&raw mut arguments) };
        if error.is_null() { Ok(arguments.stream.expose_provenance() as u64) } else { Err(error) }
    }

    /// An error for XLA, which frees it.
    ///
    /// # Safety
    /// As [`CallFrame::metadata`].
    pub unsafe fn error(&self, code: Code, text: &str) -> *mut RawError {
        let message = CString::new(text.replace('\0', " ")).expect("there is no zero left in it");
        let mut arguments = CreateError {
            struct_size: size_of::<CreateError>(),
            extension: std::ptr::null_mut(),
            message: message.as_ptr(),
            code: code as c_int,
        };
        // SAFETY: XLA's function with its argument; XLA copies the message.
        unsafe { ((*self.api).create_error)(&raw mut arguments) }
    }
}

impl Values {
    /// The buffers, or `None` if there are values of another type.
    ///
    /// # Safety
    /// The values must be those of a call of XLA, which is in progress.
    pub unsafe fn buffers(&self) -> Option<Vec<&Buffer>> {
        // SAFETY: XLA's arrays have `size` entries, and an entry of this type is a buffer.
        let buffer = |index: usize| unsafe { (*self.types.add(index) == BUFFER).then(|| &**self.values.add(index)) };
        (0..self.size as usize).map(buffer).collect()
    }
}

impl Buffer {
    pub fn shape(&self) -> Vec<u64> {
        // SAFETY: XLA's array has `rank` dimensions.
        (0..self.rank as usize).map(|axis| unsafe { *self.dims.add(axis) } as u64).collect()
    }
}

impl Attributes {
    /// The text of an attribute.
    ///
    /// # Safety
    /// As [`Values::buffers`].
    pub unsafe fn string(&self, name: &str) -> Option<&str> {
        // SAFETY: XLA's arrays have `size` entries; names are spans, and so are attributes of this type.
        unsafe {
            let text = |span: *const ByteSpan| {
                std::str::from_utf8(std::slice::from_raw_parts((*span).bytes, (*span).len)).ok()
            };
            let is_named = |index: &usize| text(*self.names.add(*index)) == Some(name);
            let index = (0..self.size as usize).find(is_named)?;
            if *self.types.add(index) == STRING { text((*self.values.add(index)).cast()) } else { None }
        }
    }
}
