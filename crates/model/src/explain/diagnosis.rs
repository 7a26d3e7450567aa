//! Applies the rules to an error of a job: which failure its exit and its last output show. Pure.

use super::JobContext;
use super::exit_status::ExitStatus;
use super::rules::{self, Diagnosis, ErrorOutput, Failure, JobFacts};
use crate::batchai::{BatchAiError, JobSpec};
use crate::gpu::XidError;

/// Name of the detail with an error of a GPU, as [`XidError::describe`] writes it.
pub const GPU_ERROR: &str = "GpuError";

/// The failure of the process that an error is about; `None` for other errors, and for failures that no rule knows.
pub fn diagnose(error: &BatchAiError, spec: &JobSpec, context: JobContext<'_>) -> Option<Diagnosis> {
    let is_preparation = match error.code.as_str() {
        "JobFailed" => false,
        "JobPreparationFailed" | "PythonEnvironmentFailed" => true,
        _ => return None,
    };
    let failure = Failure {
        exit: ExitStatus::of(error),
        is_out_of_memory: error.detail("OutOfMemory").is_some(),
        is_out_of_processes: error.detail("OutOfProcesses").is_some(),
        xids: xids(error),
        output: ErrorOutput::parse(error.detail("StdErr").unwrap_or_default()),
    };
    rules::diagnose(&failure, &JobFacts { spec, is_preparation, vm_size: context.vm_size, project: context.project })
}

/// Numbers of the errors of GPUs that a node found in the kernel's log.
fn xids(error: &BatchAiError) -> Vec<u32> {
    let details = error.details.iter().filter(|detail| detail.name == GPU_ERROR);
    details.filter_map(|detail| XidError::number_in(&detail.value)).collect()
}
