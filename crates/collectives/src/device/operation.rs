//! A negotiated operation on device memory, as the transports execute it. Plain data.

use std::sync::Arc;

use crate::coordinator::Kind;
use crate::device::context::DeviceEvent;
use crate::device::driver::DevicePtr;
use crate::device::plan::{MemberTensor, Plan, PlannedTensor};
use crate::dtype::Dtype;
use crate::op::Combine;

/// One operation on several tensors.
#[derive(Debug)]
pub struct DeviceOperation<'a> {
    pub kind: Kind,
    pub dtype: Dtype,
    pub combine: Combine,
    pub prescale: f64,
    /// Includes the division of an average.
    pub postscale: f64,
    /// Member that broadcasts.
    pub root: usize,
    pub tensors: Vec<DeviceTensor<'a>>,
    /// Events after the work that computes this rank's inputs.
    pub ready: Vec<Arc<DeviceEvent>>,
}

/// One tensor of an operation, on this rank.
#[derive(Debug)]
pub struct DeviceTensor<'a> {
    /// Allgather: rows of each member. Alltoall: rows received from each member.
    pub rows: &'a [u64],
    /// Alltoall: rows for each member.
    pub splits: &'a [u64],
    /// Elements of a member's tensor (allreduce, Adasum, broadcast, reducescatter).
    pub n_elements: u64,
    /// Rows of a member's tensor (reducescatter), and elements of a row.
    pub n_rows: u64,
    pub row: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// `None` if this rank has joined and contributes zeros.
    pub local: Option<LocalTensor>,
}

/// Addresses of this rank's tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTensor {
    pub input: DevicePtr,
    pub output: DevicePtr,
}

impl DeviceOperation<'_> {
    pub fn plan(&self) -> Plan {
        Plan { kind: self.kind, dtype: self.dtype, root: self.root }
    }
}

impl DeviceTensor<'_> {
    pub fn planned(&self, members: Vec<Option<MemberTensor>>) -> PlannedTensor {
        PlannedTensor {
            rows: self.rows.to_vec(),
            n_elements: self.n_elements,
            n_rows: self.n_rows,
            row: self.row,
            members,
        }
    }
}
