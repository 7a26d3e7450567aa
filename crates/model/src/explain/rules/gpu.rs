//! Rules for GPUs: memory, missing devices and drivers, errors of kernels and of the hardware. Pure.

use super::facts::JobFacts;
use super::rule::{Answer, Finding, Found, MAX_ADVICE, Pattern, Rule};

pub const RULES: &[Rule] = &[
    Rule {
        key: "gpu-out-of-memory",
        pattern: Pattern::Line(&[
            "CUDA out of memory",
            "CUDA error: out of memory",
            "HIP out of memory",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_ALLOC_FAILED",
            "cudaErrorMemoryAllocation",
            "cupy.cuda.memory.OutOfMemoryError",
            "RESOURCE_EXHAUSTED: Out of memory",
        ]),
        answer: Answer::Computed(out_of_memory),
    },
    // TensorFlow logs this also when it goes on with less.
    Rule {
        key: "gpu-out-of-memory",
        pattern: Pattern::Raised(&[
            "CUDA_ERROR_OUT_OF_MEMORY",
            "OOM when allocating tensor",
            "Dst tensor is not initialized",
        ]),
        answer: Answer::Computed(|found, facts| {
            (!found.line.contains("device:CPU")).then(|| out_of_memory(found, facts)).flatten()
        }),
    },
    Rule {
        key: "gpu-driver-too-old",
        pattern: Pattern::Raised(&[
            "The NVIDIA driver on your system is too old",
            "CUDA driver version is insufficient for CUDA runtime version",
            "the provided PTX was compiled with an unsupported toolchain",
        ]),
        answer: Answer::Fixed {
            cause: "The NVIDIA driver of the node is older than the CUDA version of the framework needs.",
            advice: &[
                "Install a build of the framework for an older CUDA: 'nvidia-smi' on the node's machine shows the newest CUDA \
                 version that its driver supports.",
                "Or ask the operator to update the driver.",
            ],
        },
    },
    Rule {
        key: "gpu-not-supported",
        pattern: Pattern::Raised(&["no kernel image is available for execution on the device"]),
        answer: Answer::Fixed {
            cause: "The framework was built without support for this kind of GPU: the GPU is too old or too new for it.",
            advice: &[
                "Install a version of the framework that supports it: torch.cuda.get_arch_list() has those that a build \
                 supports, torch.cuda.get_device_capability() that of the GPU.",
            ],
        },
    },
    Rule {
        key: "gpu-build-missing",
        pattern: Pattern::Raised(&["Torch not compiled with CUDA enabled", "Torch not compiled with ROCm enabled"]),
        answer: Answer::Computed(|_, facts| {
            let install = "Install a build of PyTorch for CUDA: name its index with --extra-index-url in the requirements file, or \
                           use an image that has it (containerSettings).";
            Some(Finding::new(
                "The installed PyTorch is the build for processors without a GPU.",
                [install.to_owned(), use_the_processor(facts)],
            ))
        }),
    },
    Rule {
        key: "gpu-index-wrong",
        pattern: Pattern::Raised(&[
            "CUDA error: invalid device ordinal",
            "CUDA_ERROR_INVALID_DEVICE",
            "Attempting to deserialize object on CUDA device ",
        ]),
        answer: Answer::Computed(wrong_index),
    },
    Rule {
        key: "gpu-not-found",
        pattern: Pattern::Raised(&[
            "No CUDA GPUs are available",
            "Found no NVIDIA driver on your system",
            "no CUDA-capable device is detected",
            "is only supported with GPUs, no GPUs found",
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
            "Unexpected error from cudaGetDeviceCount()",
            "Unable to initialize backend 'cuda'",
            "cudaErrorNoDevice",
            "NVML Shared Library Not Found",
            "libcuda.so.1: cannot open shared object file",
            "NVMLError_LibraryNotFound",
        ]),
        answer: Answer::Computed(no_gpu),
    },
    Rule {
        key: "gpu-not-found",
        pattern: Pattern::LineWith(|line| super::text::is_program_missing(line, "nvidia-smi")),
        answer: Answer::Computed(no_gpu),
    },
    Rule {
        key: "cuda-library-missing",
        pattern: Pattern::Raised(&[
            "libcudart.so",
            "libcublas.so",
            "libcudnn.so",
            "libcusparse.so",
            "libcufft.so",
            "libnccl.so",
            "libnvrtc.so",
        ]),
        answer: Answer::Computed(missing_library),
    },
    Rule {
        key: "gpu-failed",
        pattern: Pattern::Line(&[
            "uncorrectable ECC error encountered",
            "cudaErrorECCUncorrectable",
            "fallen off the bus",
            "NVRM: Xid",
            "GPU is lost",
            "Unable to determine the device handle for GPU",
            "CUDA_ERROR_ECC_UNCORRECTABLE",
            "all CUDA-capable devices are busy or unavailable",
            "CUDA-capable device(s) is/are busy or unavailable",
        ]),
        answer: Answer::Computed(|found, _| {
            let is_busy = found.line.contains("busy or unavailable");
            let cause = match is_busy {
                true => "Another process uses the GPU alone, or the GPU does not respond.",
                false => "The GPU has failed: this is not a mistake of the script.",
            };
            Some(Finding::new(
                cause,
                [
                    "Tell the operator the node: 'nvidia-smi' and 'dmesg | grep Xid' on its machine show the state of the GPU."
                        .to_owned(),
                    "Submit the job again, to another node ('corro batchai cluster list' shows clusters), until it is repaired."
                        .to_owned(),
                ],
            ))
        }),
    },
    Rule {
        key: "cuda-error",
        pattern: Pattern::Line(&[
            "device-side assert triggered",
            "CUDA_ERROR_ASSERT",
            "an illegal memory access was encountered",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "unspecified launch failure",
            "CUDA_ERROR_LAUNCH_FAILED",
            "CUDA error: misaligned address",
            "CUBLAS_STATUS_EXECUTION_FAILED",
            "CUDNN_STATUS_EXECUTION_FAILED",
        ]),
        answer: Answer::Computed(kernel_error),
    },
];

fn out_of_memory(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let (ranks, gpus) = (facts.ranks_per_node(), facts.size().map_or(0, |size| size.gpus as usize));
    let of_size = facts.size().filter(|size| size.gpus > 0).map(|size| {
        let noun = if size.gpus == 1 { "GPU" } else { "GPUs" };
        format!(" A node of the VM size {} has {} {noun}.", size.name, size.gpus)
    });
    let shared = match (ranks, gpus) {
        (2.., 1) => format!(" The {ranks} ranks of each node share it."),
        (ranks, 2..) if ranks > gpus => format!(" The {ranks} ranks of each node share them."),
        _ => String::new(),
    };
    let cause = format!("The memory of a GPU is full.{}{shared}", of_size.unwrap_or_default());
    let mut advice = vec!["Use a smaller batch in each rank, or mixed precision; gradient accumulation keeps the effect of a large batch.".to_owned()];
    if gpus > 0 && ranks > gpus {
        let field = facts.process_count_field().unwrap_or_else(|| "processCount".to_owned());
        let total = gpus * usize::try_from(facts.spec.node_count).unwrap_or(1).max(1);
        advice.insert(
            0,
            format!("Start as many ranks as there are GPUs: {total} in {field} ('corro submit --processes {total}')."),
        );
    } else if ranks > 1 {
        advice.push(
            "Check that each rank uses its own GPU: torch.cuda.set_device(hvd.local_rank()), or LOCAL_RANK.".to_owned(),
        );
    }
    advice.push(match framework(found) {
        Framework::Jax => facts.set_variable("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
        Framework::TensorFlow => facts.set_variable("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
        Framework::Other => format!(
            "If the message says that much memory is reserved but unallocated: {}",
            lower(&facts.set_variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"))
        ),
    });
    advice.truncate(MAX_ADVICE);
    Some(Finding { cause, advice })
}

fn lower(sentence: &str) -> String {
    sentence.replacen("Set ", "set ", 1)
}

enum Framework {
    Jax,
    TensorFlow,
    Other,
}

fn framework(found: &Found<'_>) -> Framework {
    let has = |texts: &[&str]| texts.iter().any(|text| found.line.contains(text));
    if has(&["XlaRuntimeError", "JaxRuntimeError"]) {
        Framework::Jax
    } else if has(&["tensorflow", "OOM when allocating tensor", "ResourceExhaustedError", "Dst tensor"]) {
        Framework::TensorFlow
    } else {
        Framework::Other
    }
}

fn no_gpu(_: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let larger =
        "Use a cluster of a VM size with GPUs: 'corro submit --gpus 1', or vmSize Standard_NC6 of a new cluster."
            .to_owned();
    Some(match facts.size() {
        Some(size) if size.gpus == 0 => Finding::new(
            format!("The script needs a GPU, and the VM size of the cluster, {}, has none.", size.name),
            [larger, use_the_processor(facts)],
        ),
        Some(size) => Finding::new(
            format!("The script needs a GPU and found none, although the VM size of the cluster, {}, declares {}.", size.name, size.gpus),
            [
                "Run 'nvidia-smi' on the node's machine: it may have no GPU or no driver. 'corro doctor' shows what Corro finds there.".to_owned(),
                "Check that the script does not set CUDA_VISIBLE_DEVICES: the node sets it.".to_owned(),
                use_the_processor(facts),
            ],
        ),
        None => Finding::new("The script needs a GPU and found none.", [larger, use_the_processor(facts)]),
    })
}

fn use_the_processor(_: &JobFacts<'_>) -> String {
    "Or let the script run without: device = 'cuda' if torch.cuda.is_available() else 'cpu'; torch.load(…, map_location='cpu'); \
     the backend gloo instead of nccl."
        .to_owned()
}

fn wrong_index(_: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let size =
        facts.size().map_or_else(String::new, |size| format!(" (the VM size {} declares {})", size.name, size.gpus));
    let ranks = facts.ranks_per_node();
    let many = match ranks {
        0 | 1 => String::new(),
        ranks => format!(" Each node has {ranks} ranks."),
    };
    Some(Finding::new(
        format!("The script asks for a GPU by a number that the node does not have{size}.{many}"),
        [
            "Use the rank's number on its node, not its number in the job: hvd.local_rank(), or int(os.environ['LOCAL_RANK']).".to_owned(),
            "Do not start more ranks on a node than it has GPUs: AZ_BATCHAI_NUM_GPUS has their number.".to_owned(),
        ],
    ))
}

fn missing_library(found: &Found<'_>, _: &JobFacts<'_>) -> Option<Finding> {
    if !found.line.contains("cannot open shared object file") && !found.line.contains("not found") {
        return None;
    }
    let library =
        found.line.split([' ', '\'', '"']).find(|word| word.contains(".so")).map(|word| word.trim_end_matches(':'));
    let library = super::text::quotable(library?);
    Some(Finding::new(
        format!("A package needs CUDA's library {library}, which the job does not find."),
        [
            "Install a build of the package that brings CUDA with it: wheels of PyTorch do, and 'tensorflow[and-cuda]'.".to_owned(),
            "Or use an image with that version of CUDA (containerSettings), or set LD_LIBRARY_PATH to its directory in \
             environmentVariables."
                .to_owned(),
        ],
    ))
}

fn kernel_error(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let blocking = format!(
        "{} Errors are then reported by the line that causes them.",
        facts.set_variable("CUDA_LAUNCH_BLOCKING", "1")
    );
    let is_assert = found.line.contains("assert") || found.line.contains("CUDA_ERROR_ASSERT");
    Some(match is_assert {
        true => Finding::new(
            "A check in a GPU kernel failed: most often a label or an index is outside of its range.",
            [
                "Compare labels with the number of classes, and token ids with the size of the embedding.".to_owned(),
                blocking,
                "Or run one step on the CPU, which names the value.".to_owned(),
            ],
        ),
        false => Finding::new(
            "A GPU kernel accessed memory that is not its own, or crashed: a mistake in a kernel, an index out of range, or a \
             failing GPU.",
            [
                blocking,
                "If the same script fails on one node only, its GPU may be failing: 'nvidia-smi' and 'dmesg | grep Xid' there.".to_owned(),
            ],
        ),
    })
}
