//! The ways in which ranks exchange the memory of GPUs, as `CORRO_GPU_TRANSPORT` names them. Plain data.

/// How members exchange device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTransport {
    /// Members share one GPU: one of them maps the memory of the others (CUDA IPC) and combines it with one kernel.
    Ipc,
    /// Every member has a GPU of its own: NVIDIA's library.
    Nccl,
    /// Through pinned host memory.
    Host,
}

impl DeviceTransport {
    /// Name in `CORRO_GPU_TRANSPORT`.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceTransport::Ipc => "ipc",
            DeviceTransport::Nccl => "nccl",
            DeviceTransport::Host => "host",
        }
    }

    pub const ALL: [DeviceTransport; 3] = [DeviceTransport::Ipc, DeviceTransport::Nccl, DeviceTransport::Host];
}
