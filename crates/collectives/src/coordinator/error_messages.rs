//! Error messages for users. Texts that Horovod also has are word for word Horovod's, because scripts match on them. Messages about
//! mismatched requests are in `controller::validate`.

use super::request::{Kind, SetId};

/// Error of operations that are pending when the engine shuts down.
pub const SHUTDOWN_MESSAGE: &str = "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to \
    allreduce, allgather or broadcast a tensor after one of the ranks finished execution. If the shutdown was caused by an \
    exception, you should see the exception in the log before the first shutdown message.";

/// [`SHUTDOWN_MESSAGE`] with the rank that requested the shutdown. Horovod does not have the last sentence.
pub fn shutdown_message_by(rank: u32) -> String {
    format!("{SHUTDOWN_MESSAGE} Rank {rank} was the first to shut down or to exit.")
}

/// Error found on this rank before any other rank is involved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error(
        "Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor that is currently being \
         processed.  If you want to request another tensor, use a different tensor name."
    )]
    DuplicateName,
    #[error("{}: Rank {rank} is not a member of the provided process set.", kind.call())]
    NotMember { kind: Kind, rank: u32 },
    #[error("{}: Process set provided does not exist, or has not been registered.", kind.call())]
    UnknownSet { kind: Kind },
    #[error("broadcast received invalid root rank {root} for provided process set")]
    InvalidRoot { root: u32 },
    #[error("splits not provided, but first dimension of tensor is not an even multiple of the number of workers.")]
    UnevenSplits,
    #[error("Sum of splits entries is greater than the first dimension of tensor.")]
    SplitsTooLarge,
    #[error("Number of entries in splits does not equal number of workers.")]
    WrongNumberOfSplits,
    #[error("Reducescatter currently only supports AVERAGE and SUM.")]
    ReducescatterOp,
    /// Not in Horovod, whose tensors have shapes. The same holds for `LengthMismatch`.
    #[error("reducescatter received {n_elements} elements, which is not a multiple of the row length {row}")]
    PartialRows { n_elements: usize, row: usize },
    #[error("the output has {output} elements and the input {input}: the lengths must be equal")]
    LengthMismatch { input: usize, output: usize },
    #[error("Tensors in list must be on same device.")]
    MixedDevices,
    #[error("Tensors in list must be in same process set.")]
    MixedSets,
    #[error("{} is not an operation on a tensor", kind.call())]
    NotATensorOp { kind: Kind },
    #[error("Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding/removing process sets after Horovod initialization.")]
    DynamicSetsDisabled,
    /// Removal of the global set or of an unregistered set. Horovod's `remove_process_set` returns `false`.
    #[error("process set {} cannot be removed", set.0)]
    NotRemovable { set: SetId },
    /// The engine has shut down; the text says why.
    #[error("{0}")]
    Ended(std::sync::Arc<str>),
}

impl SubmitError {
    /// True for wrong arguments (Python's ValueError), false for Horovod's internal error.
    pub fn is_invalid_argument(&self) -> bool {
        !matches!(self, SubmitError::Ended(_) | SubmitError::ReducescatterOp | SubmitError::MixedDevices)
    }
}

/// Error of a collective request to add or remove process sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessSetError {
    #[error("Attempted to register process set with mismatching size on different ranks")]
    MismatchedSize,
    #[error("Attempted to register process set with mismatching values on different ranks")]
    MismatchedValues,
    #[error("Different ranks tried to set up mismatching numbers of process sets")]
    MismatchedNumber,
    #[error("Tried to register process set with duplicate rank: {0}")]
    DuplicateRank(u32),
    #[error("Tried to register process set with invalid rank: {0}")]
    InvalidRank(u32),
    #[error("Tried to register process set without ranks")]
    Empty,
    #[error("Attempted to add a duplicate process set: {0:?}")]
    Exists(Vec<u32>),
    #[error("Attempted to remove different process sets on different ranks")]
    MismatchedRemoval,
    #[error("Process set provided does not exist, or has not been registered.")]
    Unknown,
    #[error("Ranks did not agree whether to add or to remove a process set")]
    MismatchedAction,
}
