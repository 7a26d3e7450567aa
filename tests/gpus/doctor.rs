//! `corro doctor` with libraries that the test compiles: a driver with GPUs in main memory, NCCL and NVRTC.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use corro_test_support::skip;

use crate::sources;

/// Compiles a library of `tests/gpus` under this name; `false` without a C compiler.
fn compile(source: &str, library: &Path) -> bool {
    let output =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(sources().join(source)).output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(_) => {
            skip::missing_component("no C compiler, so no driver can be made for corro doctor");
            false
        }
    }
}

const SUBJECTS: [&str; 5] = ["CUDA driver", "NCCL", "NVRTC", "CUDA IPC", "peer access"];

/// Mark and text of the findings about GPUs.
type Findings = BTreeMap<&'static str, (String, String)>;

fn doctor(dir: &Path, library_path: &Path, variables: &[(&str, &str)]) -> Findings {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
    command.arg("doctor").env("HOME", dir).env("CORRO_CONFIG_DIR", dir.join("config")).env("TMPDIR", dir);
    command.env("LD_LIBRARY_PATH", library_path).env("FAKE_CUDA_DIR", dir).env("PATH", dir.join("bin"));
    command.envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = |subject: &'static str| {
        let line = out.lines().find(|line| line.get(6..).is_some_and(|rest| rest.starts_with(subject)));
        let line = line.unwrap_or_else(|| panic!("no line about {subject} in {out}"));
        (subject, (line[..4].trim().to_owned(), line[6 + subject.len()..].trim().to_owned()))
    };
    SUBJECTS.into_iter().map(found).collect()
}

#[track_caller]
fn check(findings: &Findings, subject: &str, mark: &str, begin: &str) {
    let (found_mark, text) = &findings[subject];
    assert!(found_mark == mark && text.starts_with(begin), "{subject}: {found_mark} {text}");
}

#[test]
fn the_doctor_tries_driver_libraries_ipc_and_peer_access() {
    let dir = tempfile::tempdir().expect("a directory");
    let libraries = dir.path().join("libraries");
    std::fs::create_dir(&libraries).expect("made");
    let made = [("fake_cuda.c", "libcuda.so.1"), ("fake_nccl.c", "libnccl.so.2"), ("fake_nvrtc.c", "libnvrtc.so.13")]
        .map(|(source, name)| compile(source, &libraries.join(name)));
    if made != [true; 3] {
        return;
    }
    let doctor = |variables: &[(&str, &str)]| doctor(dir.path(), &libraries, variables);

    let found = doctor(&[]);
    check(&found, "CUDA driver", "ok", "CUDA 13.0, 1 GPU (Fake 0); memory was allocated and copied");
    check(&found, "NCCL", "ok", "2.28.3: made a communicator");
    check(&found, "NVRTC", "ok", "13.0: compiled a kernel");
    check(&found, "CUDA IPC", "ok", "works: a process read and wrote GPU memory of another one");
    check(&found, "peer access", "ok", "not needed: there is one GPU");

    let found = doctor(&[("FAKE_CUDA_DEVICES", "4")]);
    check(&found, "CUDA driver", "ok", "CUDA 13.0, 4 GPUs (Fake 0)");
    check(&found, "peer access", "ok", "works between all 6 pairs");

    let with_fault =
        |fault| doctor(&[("FAKE_CUDA_DEVICES", "4"), ("FAKE_CUDA_FAULT", fault), ("FAKE_NCCL_FAULT", "1")]);
    let found = with_fault("island");
    check(&found, "peer access", "note", "missing between the GPUs 0-2, 1-2, 2-3: copies between these GPUs");
    check(
        &found,
        "NCCL",
        "note",
        "2.28.3: making a communicator failed with 'unhandled cuda error': ranks on different GPUs",
    );
    check(&with_fault("peer"), "peer access", "note", "GPU 0 to 1: other bytes arrive than were sent");
    let found = with_fault("ipc");
    check(
        &found,
        "CUDA IPC",
        "note",
        "naming memory for another process failed with CUDA_ERROR_NOT_SUPPORTED: ranks that share",
    );
    check(&found, "peer access", "ok", "works");
    check(
        &with_fault("memory"),
        "CUDA driver",
        "note",
        "GPU 0 (Fake 0): its memory returns other bytes than were written",
    );
    let found = with_fault("crash");
    check(&found, "CUDA driver", "note", "crashed when it was tried (signal 11)");
    // Without a GPU the libraries are found, and not tried.
    check(&found, "NVRTC", "ok", "13.0");
    let leftover = std::fs::read_dir(dir.path()).expect("readable").count();
    assert_eq!(leftover, 1, "only the libraries are there");
}

#[test]
fn a_driver_that_hangs_does_not_hang_the_doctor() {
    let dir = tempfile::tempdir().expect("a directory");
    if !compile("fake_cuda.c", &dir.path().join("libcuda.so.1")) {
        return;
    }
    let began = Instant::now();
    let hangs = |fault| {
        let variables = [("FAKE_CUDA_FAULT", fault), ("CORRO_TEST_GPU_TIMEOUT_MS", "2000")];
        doctor(dir.path(), dir.path(), &variables)
    };
    let found = hangs("hang");
    check(&found, "CUDA driver", "note", "did not answer within 2 s: ");
    check(&found, "peer access", "note", "did not answer within 2 s: ");
    let found = hangs("hang-ipc");
    check(&found, "CUDA driver", "ok", "CUDA 13.0, 1 GPU");
    check(&found, "CUDA IPC", "note", "did not answer within 2 s: ");
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn what_is_not_there_is_said_and_no_limitation_without_a_card() {
    let dir = tempfile::tempdir().expect("a directory");
    let nowhere = dir.path().join("nowhere");
    let found = doctor(dir.path(), &nowhere, &[]);
    let (mark, text) = &found["CUDA driver"];
    if mark == "note" || !text.contains("was not found") {
        skip::unsupported_machine("this machine has a GPU");
        return;
    }
    check(&found, "CUDA driver", "ok", "libcuda.so.1 was not found; only GPUs need it");
    check(&found, "CUDA IPC", "ok", "not tested: no GPU can be used");
}
