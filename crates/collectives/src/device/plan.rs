//! Plans an operation on device memory that one process can address as a whole: which vectors are combined into which. Pure.

use std::ops::Range;

use crate::algorithm::partition;
use crate::coordinator::Kind;
use crate::device::driver::DevicePtr;
use crate::device::tasks::TaskTable;
use crate::dtype::Dtype;
use crate::op::Combine;

/// One tensor of an operation, on every member.
#[derive(Clone, Debug)]
pub struct PlannedTensor {
    /// Allgather: rows of each member. Otherwise empty.
    pub rows: Vec<u64>,
    /// Elements: of a member's tensor (allreduce, broadcast, reducescatter).
    pub n_elements: u64,
    /// Elements of a row, and rows of a member's tensor (reducescatter).
    pub row: u64,
    pub n_rows: u64,
    /// By member; `None` for a member that has joined and contributes zeros.
    pub members: Vec<Option<MemberTensor>>,
}

/// Addresses of one member's tensor, and the rows it sends to each member (alltoall).
#[derive(Clone, Debug)]
pub struct MemberTensor {
    pub input: DevicePtr,
    pub output: DevicePtr,
    pub splits: Vec<u64>,
}

/// Operation to plan.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub dtype: Dtype,
    /// Member that broadcasts.
    pub root: usize,
}

impl Plan {
    /// Whether the operation combines elements; otherwise it copies bytes.
    pub fn reduces(self) -> bool {
        matches!(self.kind, Kind::Allreduce | Kind::Reducescatter)
    }

    /// Tasks of the operation, with the element type and operation of the kernel.
    pub fn tasks(self, tensors: &[PlannedTensor], combine: Combine) -> (TaskTable, Dtype, Combine) {
        if self.reduces() {
            let mut table = TaskTable::new(self.dtype.size());
            tensors.iter().for_each(|tensor| self.reduce(tensor, &mut table));
            return (table, self.dtype, combine);
        }
        let copies: Vec<Copy> = tensors.iter().flat_map(|tensor| self.copies(tensor)).collect();
        let unit = copy_unit(&copies);
        let mut table = TaskTable::new(unit.size());
        for copy in &copies {
            table.push(copy.n_bytes / unit.size() as u64, &[copy.source], &copy.destinations);
        }
        // The sum of one source is a copy of its bits, for integers.
        (table, unit, Combine::Sum)
    }

    fn reduce(self, tensor: &PlannedTensor, table: &mut TaskTable) {
        let sources = |first: u64| -> Vec<DevicePtr> {
            let offset = first * self.dtype.size() as u64;
            tensor.members.iter().map(|member| member.as_ref().map_or(0, |member| member.input + offset)).collect()
        };
        let outputs = tensor.members.iter().flatten().map(|member| member.output);
        if self.kind == Kind::Allreduce {
            table.push(tensor.n_elements, &sources(0), &outputs.collect::<Vec<_>>());
            return;
        }
        let n = tensor.members.len();
        for (member, output) in
            tensor.members.iter().enumerate().filter_map(|(at, member)| Some((at, member.as_ref()?.output)))
        {
            let own = partition::split_rows(tensor.n_rows as usize, n, member);
            table.push(own.len() as u64 * tensor.row, &sources(own.start as u64 * tensor.row), &[output]);
        }
    }

    fn copies(self, tensor: &PlannedTensor) -> Vec<Copy> {
        let element = self.dtype.size() as u64;
        let row_bytes = tensor.row * element;
        let present = || tensor.members.iter().flatten();
        match self.kind {
            Kind::Broadcast => {
                let Some(root) = &tensor.members[self.root] else { return Vec::new() };
                let destinations =
                    present().map(|member| member.output).filter(|output| *output != root.input).collect();
                vec![Copy { source: root.input, destinations, n_bytes: tensor.n_elements * element }]
            }
            Kind::Allgather => {
                let parts = consecutive(&tensor.rows, row_bytes);
                let part = |(member, part): (&Option<MemberTensor>, Range<u64>)| {
                    let destinations = present().map(|member| member.output + part.start).collect();
                    member.as_ref().map(|member| Copy {
                        source: member.input,
                        destinations,
                        n_bytes: part.end - part.start,
                    })
                };
                tensor.members.iter().zip(parts).filter_map(part).collect()
            }
            Kind::Alltoall => {
                // How far each output is filled.
                let mut filled = vec![0; tensor.members.len()];
                let mut copies = Vec::new();
                for sender in present() {
                    for (to, part) in consecutive(&sender.splits, row_bytes).enumerate() {
                        let n_bytes = part.end - part.start;
                        if let Some(receiver) = &tensor.members[to] {
                            let destinations = vec![receiver.output + filled[to]];
                            copies.push(Copy { source: sender.input + part.start, destinations, n_bytes });
                        }
                        filled[to] += n_bytes;
                    }
                }
                copies
            }
            Kind::Allreduce | Kind::Reducescatter | Kind::Adasum | Kind::Join | Kind::Barrier => Vec::new(),
        }
    }
}

/// Copy of bytes to several places.
struct Copy {
    source: DevicePtr,
    destinations: Vec<DevicePtr>,
    n_bytes: u64,
}

/// Byte ranges of consecutive parts with these numbers of rows.
fn consecutive(rows: &[u64], row_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut end = 0;
    rows.iter().map(move |rows| {
        let start = end;
        end += rows * row_bytes;
        start..end
    })
}

/// Largest integer type of which all copies are whole, aligned elements.
fn copy_unit(copies: &[Copy]) -> Dtype {
    let bits = copies.iter().filter(|copy| copy.n_bytes > 0).fold(0, |bits, copy| {
        copy.destinations.iter().fold(bits | copy.source | copy.n_bytes, |bits, destination| bits | destination)
    });
    match bits {
        bits if bits % 8 == 0 => Dtype::I64,
        bits if bits % 4 == 0 => Dtype::I32,
        bits if bits % 2 == 0 => Dtype::I16,
        _ => Dtype::U8,
    }
}
