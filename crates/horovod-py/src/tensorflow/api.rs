//! The part of TensorFlow's C API that is used: opaque types, and a table of functions resolved at run time. A flat
//! table.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Status codes from TensorFlow's `tf_status.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Unknown = 2,
    InvalidArgument = 3,
    FailedPrecondition = 9,
}

macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _inside: [u8; 0] })* };
}
opaque!(RawStatus Tensor Context Construction OpDefinition KernelBuilder ShapeContext ShapeHandle Done);

pub type ShapeFunction = unsafe extern "C" fn(*mut ShapeContext, *mut RawStatus);
pub type Create = unsafe extern "C" fn(*mut Construction) -> *mut c_void;
pub type ComputeAsync = unsafe extern "C" fn(*mut c_void, *mut Context, *mut Done);
pub type Delete = unsafe extern "C" fn(*mut c_void);

macro_rules! table {
    ($($field:ident $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the loaded TensorFlow library.
        pub struct Api { $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        /// Names of the functions to resolve.
        pub const SYMBOLS: &[&str] = &[$($symbol),*];

        impl Api {
            /// Builds the table from addresses; returns the first missing name otherwise.
            ///
            /// # Safety
            ///
            /// Each address must be that of TensorFlow's function of that name, valid for the life of the process.
            pub unsafe fn from_symbols(symbols: &HashMap<String, usize>) -> Result<Api, &'static str> {
                $(
                    let address = symbols.get($symbol).copied().filter(|address| *address != 0).ok_or($symbol)?;
                    let pointer: *const () = std::ptr::with_exposed_provenance(address);
                    // SAFETY: the caller guarantees that the address is TensorFlow's function of this name, which has
                    // this type by its headers.
                    let $field = unsafe {
                        std::mem::transmute::<*const (), unsafe extern "C" fn($($argument),*) $(-> $result)?>(pointer)
                    };
                )*
                Ok(Api { $($field,)* })
            }
        }
    };
}

table! {
    new_status "TF_NewStatus" () -> *mut RawStatus;
    delete_status "TF_DeleteStatus" (*mut RawStatus);
    set_status "TF_SetStatus" (*mut RawStatus, c_int, *const c_char);
    status_code "TF_GetCode" (*const RawStatus) -> c_int;
    status_message "TF_Message" (*const RawStatus) -> *const c_char;

    new_op_definition "TF_NewOpDefinitionBuilder" (*const c_char) -> *mut OpDefinition;
    add_attribute "TF_OpDefinitionBuilderAddAttr" (*mut OpDefinition, *const c_char);
    add_input "TF_OpDefinitionBuilderAddInput" (*mut OpDefinition, *const c_char);
    add_output "TF_OpDefinitionBuilderAddOutput" (*mut OpDefinition, *const c_char);
    set_stateful "TF_OpDefinitionBuilderSetIsStateful" (*mut OpDefinition, bool);
    set_shape_function "TF_OpDefinitionBuilderSetShapeInferenceFunction" (*mut OpDefinition, ShapeFunction);
    register_op "TF_RegisterOpDefinition" (*mut OpDefinition, *mut RawStatus);

    n_shapes "TF_ShapeInferenceContextNumInputs" (*mut ShapeContext) -> i64;
    new_shape "TF_NewShapeHandle" () -> *mut ShapeHandle;
    delete_shape "TF_DeleteShapeHandle" (*mut ShapeHandle);
    input_shape "TF_ShapeInferenceContextGetInput" (*mut ShapeContext, c_int, *mut ShapeHandle, *mut RawStatus);
    set_output_shape "TF_ShapeInferenceContextSetOutput" (*mut ShapeContext, c_int, *mut ShapeHandle, *mut RawStatus);
    set_unknown_shapes "TF_ShapeInferenceContextSetUnknownShape" (*mut ShapeContext, *mut RawStatus);

    new_kernel "TF_NewAsyncKernelBuilder" (*const c_char, *const c_char, Create, ComputeAsync, Delete) -> *mut KernelBuilder;
    host_memory "TF_KernelBuilder_HostMemory" (*mut KernelBuilder, *const c_char);
    run_done "TF_RunAsyncOpKernelDoneCallback" (*mut Done);
    register_kernel "TF_RegisterKernelBuilder" (*const c_char, *mut KernelBuilder, *mut RawStatus);

    attribute_size "TF_OpKernelConstruction_GetAttrSize"
        (*mut Construction, *const c_char, *mut i32, *mut i32, *mut RawStatus);
    attribute_string "TF_OpKernelConstruction_GetAttrString"
        (*mut Construction, *const c_char, *mut c_char, usize, *mut RawStatus);
    attribute_int "TF_OpKernelConstruction_GetAttrInt64" (*mut Construction, *const c_char, *mut i64, *mut RawStatus);
    attribute_bool "TF_OpKernelConstruction_GetAttrBool" (*mut Construction, *const c_char, *mut u8, *mut RawStatus);
    fail_construction "TF_OpKernelConstruction_Failure" (*mut Construction, *mut RawStatus);

    n_inputs "TF_NumInputs" (*mut Context) -> c_int;
    input "TF_GetInput" (*mut Context, c_int, *mut *mut Tensor, *mut RawStatus);
    allocate_output "TF_AllocateOutput"
        (*mut Context, c_int, c_int, *const i64, c_int, usize, *mut RawStatus) -> *mut Tensor;
    fail "TF_OpKernelContext_Failure" (*mut Context, *mut RawStatus);

    delete_tensor "TF_DeleteTensor" (*mut Tensor);
    tensor_type "TF_TensorType" (*const Tensor) -> c_int;
    n_dimensions "TF_NumDims" (*const Tensor) -> c_int;
    dimension "TF_Dim" (*const Tensor, c_int) -> i64;
    n_bytes "TF_TensorByteSize" (*const Tensor) -> usize;
    bytes "TF_TensorData" (*const Tensor) -> *mut c_void;
}

/// A TF_Status, freed on drop.
pub struct Status<'a> {
    api: &'a Api,
    raw: *mut RawStatus,
}

impl Status<'_> {
    pub fn new(api: &Api) -> Status<'_> {
        // SAFETY: the function takes no arguments.
        Status { api, raw: unsafe { (api.new_status)() } }
    }

    pub fn raw(&self) -> *mut RawStatus {
        self.raw
    }

    pub fn set(&self, code: Code, text: &str) {
        let text = CString::new(text.replace('\0', " ")).expect("there is no zero left in it");
        // SAFETY: `raw` is valid until drop, and TensorFlow copies the text.
        unsafe { (self.api.set_status)(self.raw, code as c_int, text.as_ptr()) }
    }

    /// The error message, unless the status is OK.
    pub fn check(&self) -> Result<(), String> {
        // SAFETY: `raw` is valid until drop; its message is copied before the status changes.
        unsafe {
            if (self.api.status_code)(self.raw) == 0 {
                return Ok(());
            }
            Err(CStr::from_ptr((self.api.status_message)(self.raw)).to_string_lossy().into_owned())
        }
    }
}

impl Drop for Status<'_> {
    fn drop(&mut self) {
        // SAFETY: `raw` was created by `new_status` and is freed only here.
        unsafe { (self.api.delete_status)(self.raw) }
    }
}
