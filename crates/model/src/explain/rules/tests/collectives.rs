//! NCCL, Horovod, MPI.

use serde_json::json;

use super::*;

#[test]
fn nccl() {
    let two = || job().with(json!({"pyTorchSettings": {"pythonScriptFilePath": "a.py"}, "nodeCount": 2}));
    let key = "nccl-error";
    two().check_raised(
        "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1269, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.14.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nsocketStartConnect: Connect to 10.0.0.4<49152> failed : Software caused connection abort",
        key,
        &["the network failed in NCCL", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG=INFO"],
    );
    two().check_raised(
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:318, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        key,
        &["lost the connection to another rank"],
    );
    two().check_raised(
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.18.1\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
        key,
        &["Two ranks use the same GPU", "torch.cuda.set_device(local_rank)"],
    );
    two().check(
        -6,
        "[E ProcessGroupNCCL.cpp:474] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.",
        "nccl-timeout",
        &["a rank did not take part", "timedelta(hours=2)"],
    );
    let image = json!({"containerSettings": {"imageSourceRegistry": {"image": "i"}}});
    job().with(image).check_raised(
        "RuntimeError: NCCL error in: x.cpp:1, unhandled system error, NCCL version 2.14.3",
        key,
        &["shmSize"],
    );
}

#[test]
fn horovod() {
    job().check_raised(
        "ValueError: Horovod has not been initialized; use hvd.init().",
        "horovod-not-initialized",
        &["hvd.init()"],
    );
    let internal = |text: &str| format!("horovod.common.exceptions.HorovodInternalError: {text}");
    job().check_raised(
        &internal("Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [3], but another rank sent a tensor of shape [4]."),
        "mismatched-tensors",
        &["drop_last=True"],
    );
    job().check_raised(
        &internal("Mismatched data types: One rank had type float32, but another rank had type float64."),
        "mismatched-tensors",
        &[],
    );
    job().check_raised(
        &internal("Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution."),
        "horovod-shut-down",
        &["hvd.join()"],
    );
    job().check_raised(&internal("rank 2 on host n1 has died"), "rank-died", &["Another rank ended"]);
    job().check(
        1,
        "One or more rank (marked by \"!\") is stalled for longer than 60 seconds. Will shutdown.",
        "ranks-stalled",
        &["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"],
    );
    // A warning of a job that fails for another reason.
    job().check(
        1,
        &format!("One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n{FRAMES}ValueError: x"),
        "",
        &[],
    );
    job().check_raised(
        "ValueError: Horovod initialization failed: ranks 2, 3 did not join the rendezvous within 30.0s: check that they run, and read their last output",
        "ranks-missing",
        &["HOROVOD_GLOO_TIMEOUT_SECONDS"],
    );
}

#[test]
fn mpi() {
    let mpi = || job().with(json!({"customMpiSettings": {"commandLine": "mpirun -np 4 a", "processCount": 2}}));
    let line = "--------------------------------------------------------------------------\n";
    mpi().check(
        1,
        &format!("{line}There are not enough slots available in the system to satisfy the 4\nslots that were requested by the application:\n\n  a\n{line}"),
        "mpi-slots",
        &["2 on 1 node", "customMpiSettings.processCount", "--oversubscribe"],
    );
    mpi().check(
        1,
        &format!("{line}mpirun has detected an attempt to run as root.\n\nRunning as root is *strongly* discouraged"),
        "mpi-as-root",
        &["OMPI_ALLOW_RUN_AS_ROOT=1"],
    );
    mpi().check(1, "prterun has detected an attempt to run as root.", "mpi-as-root", &[]);
    mpi().check(127, "bash: line 1: mpirun: command not found", "mpirun-missing", &["customMpiSettings.commandLine"]);
    mpi().check(
        1,
        &format!("{line}ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:"),
        "mpi-daemon-lost",
        &[],
    );
    mpi().check(1, &format!("{line}PRTE has lost communication with a remote daemon."), "mpi-daemon-lost", &[]);
    mpi().check(
        134,
        "mpirun was unable to launch the specified application as it could not access\nor execute an executable:\n\nExecutable: ./a",
        "mpi-program-missing",
        &["whole path"],
    );
}
