//! GPUs of nodes: their state at one time ([`reading`]), and the errors that the NVIDIA driver writes to the kernel's log
//! ([`xid`]) with their meaning ([`xid_table`]). Pure.

pub mod reading;
pub mod xid;
pub mod xid_table;

pub use reading::{GpuPoint, GpuReading, MAX_GPUS, bounded};
pub use xid::XidError;
