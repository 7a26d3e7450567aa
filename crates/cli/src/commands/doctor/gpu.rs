//! Checks of `corro doctor` about GPUs: which of the CUDA driver, NCCL, NVRTC, CUDA IPC and peer access were found, each tried if there is a GPU.
//! The libraries are loaded and called in child processes ([`self_test`]) with a time limit, so a driver that hangs or crashes does the doctor no
//! harm. This process loads none of them.

mod children;
mod cuda;
mod ipc;
mod library;
mod nccl;
mod nvrtc;
mod peers;
pub mod self_test;

use std::fs;

use super::{Finding, Severity, find_in_path, finding};
use children::{Outcome, run_test};
use self_test::{Part, Report, Test};

/// Findings about GPUs, one for each test.
pub(super) async fn findings() -> Vec<Finding> {
    let directories = library::python_directories(find_in_path("python").or_else(|| find_in_path("python3"))).await;
    let driver = run_test(Part::Driver, false, &directories).await;
    let has_gpu = driver.reports.iter().any(|report| report.test == Test::Driver && report.is_ok);
    let (nccl, nvrtc) =
        tokio::join!(run_test(Part::Nccl, has_gpu, &directories), run_test(Part::Nvrtc, has_gpu, &directories));
    let is_expected = !is_driver_missing(&driver) || has_nvidia_card();
    let tests = [
        (Test::Driver, &driver),
        (Test::Nccl, &nccl),
        (Test::Nvrtc, &nvrtc),
        (Test::Ipc, &driver),
        (Test::Peers, &driver),
    ];
    tests.into_iter().map(|(test, outcome)| describe(test, outcome, is_expected)).collect()
}

/// The finding of a test. What is missing on a machine without a card is no limitation. Pure.
fn describe(test: Test, outcome: &Outcome, is_expected: bool) -> Finding {
    let (subject, hint) = words(test);
    let severity = |is_ok: bool| if is_ok || !is_expected { Severity::Ok } else { Severity::Note };
    match outcome.reports.iter().find(|report| report.test == test) {
        Some(Report { is_ok: true, text, .. }) => finding(Severity::Ok, subject, text.clone()),
        Some(Report { is_ok: false, text, .. }) if is_expected => {
            finding(Severity::Note, subject, format!("{text}: {hint}"))
        }
        Some(Report { text, .. }) => finding(Severity::Ok, subject, format!("{text}; only GPUs need it")),
        None => match &outcome.failure {
            Some(failure) => finding(Severity::Note, subject, format!("{failure}: {hint}")),
            None => finding(severity(false), subject, "not tested: no GPU can be used".to_owned()),
        },
    }
}

/// Whether there is no driver at all, as on most machines without GPUs.
fn is_driver_missing(driver: &Outcome) -> bool {
    driver.reports.iter().any(|report| report.test == Test::Driver && report.text.ends_with(library::NOT_FOUND))
}

/// Name of a test, and what follows when it fails.
fn words(test: Test) -> (&'static str, &'static str) {
    match test {
        Test::Driver => (
            "CUDA driver",
            "jobs run on processor cores. 'nvidia-smi' should list the GPUs: install NVIDIA's driver, reboot after an update of it, and start a \
             container with '--gpus all'",
        ),
        Test::Nccl => (
            "NCCL",
            "ranks on different GPUs exchange tensors through main memory. Install it with 'pip install nvidia-nccl-cu12' (or -cu13, as the driver), \
             or Debian's libnccl2",
        ),
        Test::Nvrtc => (
            "NVRTC",
            "GPU kernels cannot be compiled, so ranks that share a GPU exchange tensors through main memory. Install it with 'pip install \
             nvidia-cuda-nvrtc-cu12' (or nvidia-cuda-nvrtc for CUDA 13)",
        ),
        Test::Ipc => (
            "CUDA IPC",
            "ranks that share a GPU exchange tensors through main memory. Containers need '--ipc=host', and the GPU the compute mode Default \
             ('nvidia-smi --query-gpu=compute_mode --format=csv')",
        ),
        Test::Peers => (
            "peer access",
            "copies between these GPUs go through main memory. 'nvidia-smi topo -p2p r' shows why; an IOMMU or PCI access control (ACS) often \
             prevents them",
        ),
    }
}

/// Whether a card of NVIDIA is plugged in, or its driver is loaded.
fn has_nvidia_card() -> bool {
    const VENDOR: &str = "0x10de";
    // Display and 3D controllers.
    const CLASS: &str = "0x03";
    if fs::exists("/proc/driver/nvidia/version").unwrap_or(false) {
        return true;
    }
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let is_card = |path: std::path::PathBuf| {
        let begins =
            |name: &str, with: &str| fs::read_to_string(path.join(name)).is_ok_and(|text| text.starts_with(with));
        begins("vendor", VENDOR) && begins("class", CLASS)
    };
    devices.map(|device| device.path()).any(is_card)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        test: Test,
        reports: &[(Test, bool, &str)],
        failure: Option<&str>,
        is_expected: bool,
        expected: (&str, &str),
    ) {
        let report =
            |(test, is_ok, text): &(Test, bool, &str)| Report { test: *test, is_ok: *is_ok, text: (*text).to_owned() };
        let outcome = Outcome { reports: reports.iter().map(report).collect(), failure: failure.map(str::to_owned) };
        let found = describe(test, &outcome, is_expected);
        assert_eq!(found.severity.label(), expected.0);
        assert!(found.text.starts_with(expected.1), "{}", found.text);
        assert!(!found.text.contains("  "), "{}", found.text);
    }

    #[test]
    fn what_is_missing_is_a_limitation_only_where_there_is_a_card() {
        let missing = [(Test::Driver, false, "libcuda.so.1 was not found")];
        check(Test::Driver, &missing, None, false, ("ok", "libcuda.so.1 was not found; only GPUs need it"));
        check(Test::Driver, &missing, None, true, ("note", "libcuda.so.1 was not found: jobs run on processor cores"));
        check(Test::Ipc, &missing, None, false, ("ok", "not tested: no GPU can be used"));
        let works = [(Test::Driver, true, "580.65"), (Test::Ipc, false, "CUDA_ERROR_NOT_SUPPORTED")];
        check(Test::Driver, &works, None, true, ("ok", "580.65"));
        check(Test::Ipc, &works, None, true, ("note", "CUDA_ERROR_NOT_SUPPORTED: ranks that share a GPU"));
        // The driver hung after the first test.
        let hangs = Some("did not answer within 20 s");
        check(Test::Driver, &works, hangs, true, ("ok", "580.65"));
        check(Test::Peers, &works, hangs, true, ("note", "did not answer within 20 s: copies between"));
    }
}
