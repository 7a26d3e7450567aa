//! Errors of GPUs in the kernel's log, beside what the program wrote.

use super::{FRAMES, job};

#[track_caller]
fn check(xids: &[u32], exit: i32, stderr: &str, key: &str, says: &[&str]) {
    super::Job { xids: xids.to_vec(), ..job() }.check(exit, stderr, key, says);
}

#[test]
fn an_error_of_the_hardware_explains_what_the_program_wrote() {
    let ecc = format!("{FRAMES}RuntimeError: CUDA error: uncorrectable ECC error encountered\n");
    let launch = format!("{FRAMES}torch.AcceleratorError: CUDA error: unspecified launch failure\n");
    check(&[45, 48], 1, &ecc, "gpu-xid", &["(Xid 48)", "double bit ECC error", "reset", "another node"]);
    check(&[43, 79], 1, &launch, "gpu-xid", &["fallen off the bus", "(Xid 79)", "rebooted"]);
    check(&[79], -6, "", "gpu-xid", &["fallen off the bus"]);
    check(&[63], 1, &ecc, "gpu-xid", &["retires or remaps", "'nvidia-smi --gpu-reset'"]);
    check(&[94], 1, &ecc, "gpu-xid", &["contained ECC error", "ended only the programs"]);
    check(&[95, 94], 1, &ecc, "gpu-xid", &["uncontained ECC error"]);
}

#[test]
fn what_the_program_wrote_explains_its_own_errors() {
    let illegal = format!("{FRAMES}RuntimeError: CUDA error: an illegal memory access was encountered\n");
    check(&[31, 43], 1, &illegal, "cuda-error", &["accessed memory that is not its own"]);
    let module = format!("{FRAMES}ModuleNotFoundError: No module named 'torch'\n");
    check(&[45], 1, &module, "python-module-missing", &["torch"]);
}

#[test]
fn without_a_message_the_kernels_log_explains() {
    check(&[31], 1, "", "gpu-xid", &["accessed memory that is not its own", "(Xid 31)", "compute-sanitizer"]);
    check(&[13], -6, "", "gpu-xid", &["one of its kernels crashed", "(Xid 13)"]);
    check(&[45], 3, "", "gpu-xid", &["only shows that the program ended"]);
    check(&[777], 3, "", "gpu-xid", &["Xid 777"]);
    // A killed process leaves Xid 45 behind.
    check(&[45], -9, "", "killed-by-signal-9", &[]);
}
