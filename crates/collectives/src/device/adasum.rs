//! Adasum on device memory that one process can address: pairs of members at doubling distances, as on the CPU.

use std::sync::Arc;

use crate::device::context::{DeviceContext, DeviceMemory};
use crate::device::driver::{ADASUM_SCRATCH_BYTES, AdasumPair, DevicePtr};
use crate::device::error::DeviceError;
use crate::device::operation::DeviceOperation;
use crate::device::plan::PlannedTensor;
use crate::device::tasks::TaskTable;
use crate::op::Combine;

/// Submits the kernels of an Adasum. The number of members is a power of two.
pub fn run(
    context: &Arc<DeviceContext>,
    operation: &DeviceOperation<'_>,
    tensors: &[PlannedTensor],
) -> Result<(), DeviceError> {
    let (dtype, element) = (operation.dtype, operation.dtype.size());
    let n = tensors.first().map_or(0, |tensor| tensor.members.len());
    let mut zeros: Vec<DeviceMemory> = Vec::new();
    let (mut inputs, mut outputs) = (TaskTable::new(element), TaskTable::new(element));
    // The vector of each member: its output, or zeros.
    let mut vectors: Vec<Vec<DevicePtr>> = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let mut of_tensor = Vec::with_capacity(n);
        for member in &tensor.members {
            match member {
                Some(member) => {
                    if member.input != member.output || operation.prescale != 1.0 {
                        inputs.push(tensor.n_elements, &[member.input], &[member.output]);
                    }
                    if operation.postscale != 1.0 {
                        outputs.push(tensor.n_elements, &[member.output], &[member.output]);
                    }
                    of_tensor.push(member.output);
                }
                None => {
                    let n_bytes = tensor.n_elements * element as u64;
                    let memory = context.allocate(n_bytes as usize);
                    let memory = memory.map_err(|error| DeviceError::fusion_buffer(error, n_bytes))?;
                    inputs.push(tensor.n_elements, &[0], &[memory.ptr()]);
                    of_tensor.push(memory.ptr());
                    zeros.push(memory);
                }
            }
        }
        vectors.push(of_tensor);
    }
    let n_pairs = tensors.len() * n / 2;
    let scratch = context.allocate((n_pairs * ADASUM_SCRATCH_BYTES).max(1));
    let scratch =
        scratch.map_err(|error| DeviceError::fusion_buffer(error, (n_pairs * ADASUM_SCRATCH_BYTES) as u64))?;
    // SAFETY: the tensors are valid until the operation is complete; the engine's own memory is used in its stream only, and used again after
    // this work.
    unsafe {
        context.launch(context.stream, &inputs, dtype, Combine::Sum, operation.prescale, 1.0)?;
        let mut distance = 1;
        while distance < n {
            context.driver.launch_adasum(context.stream, dtype, &pairs(tensors, &vectors, distance), scratch.ptr())?;
            distance *= 2;
        }
        context.launch(context.stream, &outputs, dtype, Combine::Sum, 1.0, operation.postscale)?;
    }
    Ok(())
}

/// The pairs at a distance, of all tensors that are not empty.
fn pairs(tensors: &[PlannedTensor], vectors: &[Vec<DevicePtr>], distance: usize) -> Vec<AdasumPair> {
    let of_tensor = |(tensor, vectors): (&PlannedTensor, &Vec<DevicePtr>)| {
        let lowers = (0..vectors.len()).filter(|member| member & distance == 0);
        let n_elements = tensor.n_elements;
        let pairs: Vec<AdasumPair> = lowers
            .map(|member| AdasumPair { lower: vectors[member], upper: vectors[member | distance], n_elements })
            .collect();
        pairs
    };
    tensors.iter().zip(vectors).filter(|(tensor, _)| tensor.n_elements > 0).flat_map(of_tensor).collect()
}
