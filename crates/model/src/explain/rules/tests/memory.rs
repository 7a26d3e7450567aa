//! Memory of a node, shared memory, limits of processes.

use serde_json::json;

use super::*;

#[test]
fn a_node_without_memory() {
    let limited = || Job { limits: (true, false), ..job() };
    limited().on("Standard_D1").check(
        -9,
        "",
        "out-of-memory",
        &["4 GiB with the VM size STANDARD_D1", "the kernel ended one", "--memory 32G"],
    );
    // What the node reports is certain, whatever the output says.
    limited().check_raised("RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly", "out-of-memory", &[]);
    for text in [
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array with shape (4000000000,) and data type float64",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)",
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[1,2] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Fill]",
    ] {
        job().check_raised(text, "out-of-memory", &["smaller batch"]);
    }
    let ranks = json!({"horovodSettings": {"pythonScriptFilePath": "a.py", "processCount": 4}});
    job().with(ranks).check_raised(
        "MemoryError",
        "out-of-memory",
        &["a node has 4 of them (nodeCount, horovodSettings.processCount)"],
    );
    job().check(
        -6,
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        "out-of-memory",
        &[],
    );
}

#[test]
fn a_killed_process() {
    let says = ["unless this was done by hand, the machine had no memory left", "'dmesg'"];
    job().check(-9, "", "killed-by-signal-9", &says);
    job().check(137, "", "killed-by-signal-9", &says);
    job().check(247, "", "killed-by-signal-9", &says);
    job().check(137, "Killed", "killed-by-signal-9", &says);
    job().check(137, "bash: line 1: 12345 Killed                  python3 train.py", "killed-by-signal-9", &says);
    job().check_raised(
        "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.",
        "killed-by-signal-9",
        &says,
    );
    job().check(1, "  traceback : Signal 9 (SIGKILL) received by PID 4711", "killed-by-signal-9", &says);
}

#[test]
fn shared_memory_of_data_loaders() {
    let worker = "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's workers \
                  are out of shared memory. Please try to raise your shared memory limit.";
    let image = |more: Value| {
        let mut settings = json!({"imageSourceRegistry": {"image": "i"}});
        settings.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        job().with(json!({"containerSettings": settings}))
    };
    job().check_raised(worker, "shared-memory-full", &["(/dev/shm) is full", "'df -h /dev/shm'", "num_workers"]);
    image(json!({})).check_raised(worker, "shared-memory-full", &[r#""shmSize": "8g" in containerSettings"#]);
    image(json!({"shmSize": "1g"})).check_raised(
        worker,
        "shared-memory-full",
        &["containerSettings.shmSize in the job file: it is 1g"],
    );
    job().check_raised("RuntimeError: unable to open shared memory object </torch_4711_123> in read-write mode: No such file or directory (2)", "shared-memory-full", &[]);
    job().check_raised("RuntimeError: unable to open shared memory object </torch_4711_123> in read-write mode: Too many open files (24)", "too-many-open-files", &["set_sharing_strategy('file_system')"]);
    job().check_raised(
        "RuntimeError: unable to write to file </torch_4711_123>: No space left on device (28)",
        "shared-memory-full",
        &[],
    );
    job().check_raised("OSError: [Errno 28] No space left on device: '/dev/shm/pym-1-abc'", "shared-memory-full", &[]);
    job().check(
        135,
        "bash: line 1: 12345 Bus error               (core dumped) python3 train.py",
        "shared-memory-full",
        &["SIGBUS"],
    );
    job().check(-7, "", "shared-memory-full", &["SIGBUS"]);
}

#[test]
fn a_limit_of_processes() {
    Job { limits: (false, true), ..job() }.check(2, "", "out-of-processes", &["--max-processes", "OMP_NUM_THREADS"]);
    job().check_raised("RuntimeError: can't start new thread", "out-of-processes", &[]);
    job().check(254, "bash: fork: retry: Resource temporarily unavailable", "out-of-processes", &[]);
}
