//! The done callback of an asynchronous kernel, kept beyond the call that TensorFlow hands it to.
//!
//! `TF_AsyncOpKernelDoneCallback` is a `std::function<void()>` by another name, and the C API gives the address of a parameter on the
//! caller's stack (TensorFlow 2.15 and 2.21): it is destroyed when the kernel's function returns, when nothing has ended yet. So it is
//! moved out, as libstdc++'s move constructor does: copy the four words, and leave the source empty. The layout is part of libstdc++'s
//! stable ABI; [`LIBSTDCXX_SYMBOL`] tells a TensorFlow that is built with another library, which is then not used in this way.

use std::ffi::{c_int, c_void};

use super::api;
use super::api::Done;

/// A function of libstdc++ that `std::function<void()>` calls when it is empty. Other libraries have it in another namespace.
pub const LIBSTDCXX_SYMBOL: &str = "_ZSt25__throw_bad_function_callv";

/// `_Manager_operation::__destroy_functor` of libstdc++.
const DESTROY_FUNCTOR: c_int = 3;

type Manager = unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool;

/// `std::function<void()>` of libstdc++. A functor that is stored inside is trivially copyable, a larger one is behind a pointer: either
/// may be moved by copying.
#[repr(C)]
struct StdFunction {
    functor: [usize; 2],
    /// Copies and destroys the functor; null when the function is empty.
    manager: Option<Manager>,
    invoker: *const c_void,
}

/// A callback that is still to run, once.
pub struct DoneCallback(Box<StdFunction>);

// SAFETY: TensorFlow allows a done callback to be called from any thread.
unsafe impl Send for DoneCallback {}

impl DoneCallback {
    /// Moves the callback out of where TensorFlow has it.
    ///
    /// # Safety
    /// `done` must be what TensorFlow has just called the kernel's function with, in a process where [`LIBSTDCXX_SYMBOL`] was found.
    pub unsafe fn take(done: *mut Done) -> DoneCallback {
        let source: *mut StdFunction = done.cast();
        // SAFETY: it is a std::function of this layout that nobody else uses during the call. Its destructor does nothing without a manager,
        // so that the functor has one owner.
        unsafe {
            let moved = source.read();
            (*source).manager = None;
            DoneCallback(Box::new(moved))
        }
    }

    /// The operation has ended, and its context is gone from here on.
    pub fn run(mut self) {
        // SAFETY: it is a whole std::function, which TensorFlow's function calls.
        unsafe { (api().run_done)(std::ptr::from_mut(&mut *self.0).cast()) }
    }
}

impl Drop for DoneCallback {
    fn drop(&mut self) {
        if let Some(manager) = self.0.manager.take() {
            let functor = &raw mut self.0.functor;
            // SAFETY: as the destructor of std::function does, once: `take` left nothing to the source.
            unsafe { manager(functor, functor, DESTROY_FUNCTOR) };
        }
    }
}
