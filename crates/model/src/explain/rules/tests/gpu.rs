//! GPUs.

use serde_json::json;

use super::*;

const OUT_OF_MEMORY: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.78 \
                             GiB of which 1.19 GiB is free. Process 4711 has 14.59 GiB memory in use. Of the allocated memory 13.10 \
                             GiB is allocated by PyTorch, and 1.02 GiB is reserved by PyTorch but unallocated.";

#[test]
fn the_memory_of_a_gpu_is_full() {
    let key = "gpu-out-of-memory";
    job().on("Standard_NC6").check_raised(
        OUT_OF_MEMORY,
        key,
        &["has 1 GPU.", "smaller batch", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
    );
    let four = json!({"horovodSettings": {"pythonScriptFilePath": "a.py", "processCount": 8}, "nodeCount": 2});
    job().with(four.clone()).on("Standard_NC6").check_raised(
        OUT_OF_MEMORY,
        key,
        &["The 4 ranks of each node share it.", "2 in horovodSettings.processCount"],
    );
    job().with(four.clone()).on("Standard_NC12").check_raised(
        OUT_OF_MEMORY,
        key,
        &["has 2 GPUs. The 4 ranks of each node share them."],
    );
    job().with(four).on("Standard_NC24").check_raised(OUT_OF_MEMORY, key, &["each rank uses its own GPU"]);
    job().check_raised("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.78 GiB total capacity)", key, &[]);
    job().check_raised(
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        key,
        &[],
    );
    job().check_raised(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        key,
        &["XLA_PYTHON_CLIENT_PREALLOCATE=false"],
    );
    job().check_raised(
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__Fill}} OOM when allocating tensor with shape[100000,100000] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Fill]",
        key,
        &["TF_GPU_ALLOCATOR=cuda_malloc_async"],
    );
}

#[test]
fn there_is_no_gpu() {
    let key = "gpu-not-found";
    job().on("Standard_D1").check_raised(
        "RuntimeError: No CUDA GPUs are available",
        key,
        &["STANDARD_D1, has none", "--gpus 1"],
    );
    job().on("Standard_NC6").check_raised(
        "RuntimeError: No CUDA GPUs are available",
        key,
        &["STANDARD_NC6, declares 1", "'nvidia-smi'"],
    );
    for text in [
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from http://www.nvidia.com/Download/index.aspx",
        "RuntimeError: CUDA error: no CUDA-capable device is detected",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    ] {
        job().check_raised(text, key, &["if torch.cuda.is_available()"]);
    }
    job().check(127, "bash: line 1: nvidia-smi: command not found", key, &[]);
    job().check_raised(
        "AssertionError: Torch not compiled with CUDA enabled",
        "gpu-build-missing",
        &["--extra-index-url"],
    );
    // TensorFlow writes this also when it goes on without a GPU.
    let warning = "2026-01-01 10:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected";
    job().check(1, &format!("{warning}\n{FRAMES}ValueError: x"), "", &[]);
}

#[test]
fn drivers_builds_and_numbers_of_gpus() {
    job().check_raised("RuntimeError: The NVIDIA driver on your system is too old (found version 10020). Please update your GPU driver", "gpu-driver-too-old", &["'nvidia-smi'"]);
    job().check_raised(
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "gpu-not-supported",
        &["get_arch_list()"],
    );
    job().check_raised(
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        "cuda-library-missing",
        &["CUDA's library libcudart.so.11.0", "LD_LIBRARY_PATH"],
    );
    job().on("Standard_NC6").check_raised(
        "RuntimeError: CUDA error: invalid device ordinal",
        "gpu-index-wrong",
        &["STANDARD_NC6 declares 1", "hvd.local_rank()"],
    );
}

#[test]
fn errors_of_kernels_and_of_the_hardware() {
    let more = "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n\
                For debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n";
    let raised = |text: &str| format!("RuntimeError: CUDA error: {text}{more}");
    job().check_raised(
        &raised("device-side assert triggered"),
        "cuda-error",
        &["a label or an index", "CUDA_LAUNCH_BLOCKING=1"],
    );
    job().check_raised(&raised("an illegal memory access was encountered"), "cuda-error", &["CUDA_LAUNCH_BLOCKING=1"]);
    job().check_raised(&raised("unspecified launch failure"), "cuda-error", &[]);
    job().check_raised(
        &raised("uncorrectable ECC error encountered"),
        "gpu-failed",
        &["The GPU has failed", "dmesg | grep Xid"],
    );
    job().check_raised(
        &raised("CUDA-capable device(s) is/are busy or unavailable"),
        "gpu-failed",
        &["Another process uses the GPU"],
    );
    job().check(1, "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.", "gpu-failed", &[]);
    // PyTorch's C++ code without a traceback.
    job().check(
        -6,
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was encountered",
        "cuda-error",
        &[],
    );
}
