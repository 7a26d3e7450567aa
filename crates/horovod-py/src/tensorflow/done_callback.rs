//! The done callback of an asynchronous kernel, moved out of the call in which TensorFlow passes it.
//!
//! `TF_AsyncOpKernelDoneCallback` is a `std::function<void()>`, and the C API passes the address of a parameter on the
//! caller's stack (TensorFlow 2.15 and 2.21). It is destroyed when the kernel function returns, before the operation
//! has ended. It is therefore moved, as libstdc++'s move constructor does: the four words are copied and the source is
//! left empty. The layout is part of libstdc++'s stable ABI. A missing [`LIBSTDCXX_SYMBOL`] reveals a TensorFlow built
//! with another standard library, for which this is not used.

use std::ffi::{c_int, c_void};

use super::api;
use super::api::Done;

/// Function of libstdc++ that an empty `std::function<void()>` calls. Other standard libraries have it in another
/// namespace.
pub const LIBSTDCXX_SYMBOL: &str = "_ZSt25__throw_bad_function_callv";

/// `_Manager_operation::__destroy_functor` of libstdc++.
const DESTROY_FUNCTOR: c_int = 3;

type Manager = unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool;

/// `std::function<void()>` of libstdc++. A functor stored inline is trivially copyable, a larger one is behind a
/// pointer: both may be moved by copying.
#[repr(C)]
struct StdFunction {
    functor: [usize; 2],
    /// Copies and destroys the functor; null if the function is empty.
    manager: Option<Manager>,
    invoker: *const c_void,
}

/// A callback that will run once.
pub struct DoneCallback(Box<StdFunction>);

// SAFETY: TensorFlow allows a done callback to be called from any thread.
unsafe impl Send for DoneCallback {}

impl DoneCallback {
    /// Moves the callback out of TensorFlow's parameter.
    ///
    /// # Safety
    ///
    /// `done` must be the argument with which TensorFlow is calling the kernel function, in a process in which
    /// [`LIBSTDCXX_SYMBOL`] was found.
    pub unsafe fn take(done: *mut Done) -> DoneCallback {
        let source: *mut StdFunction = done.cast();
        // SAFETY: the caller guarantees that it is a std::function of this layout, which no other code uses during the
        // call. Without a manager the source's destructor does nothing, so the functor has one owner.
        unsafe {
            let moved = source.read();
            (*source).manager = None;
            DoneCallback(Box::new(moved))
        }
    }

    /// Runs the callback. The op's context is invalid afterwards.
    pub fn run(mut self) {
        // SAFETY: the value is a complete std::function, which TensorFlow's function calls.
        unsafe { (api().run_done)(std::ptr::from_mut(&mut *self.0).cast()) }
    }
}

impl Drop for DoneCallback {
    fn drop(&mut self) {
        if let Some(manager) = self.0.manager.take() {
            let functor = &raw mut self.0.functor;
            // SAFETY: the same call as in std::function's destructor, made once: `take` emptied the source.
            unsafe { manager(functor, functor, DESTROY_FUNCTOR) };
        }
    }
}
