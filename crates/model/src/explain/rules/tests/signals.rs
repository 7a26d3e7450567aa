//! Signals, by exit and by the messages of shells and launchers.

use super::*;

#[test]
fn signals_are_explained() {
    let crashed = ["It crashed (SIGSEGV)", "PYTHONFAULTHANDLER=1"];
    job().check(-11, "", "crashed", &crashed);
    job().check(139, "", "crashed", &crashed);
    job().check(245, "", "crashed", &crashed);
    job().check(139, "bash: line 1: 12345 Segmentation fault      (core dumped) python3 train.py", "crashed", &crashed);
    job().check(-11, "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n  File \"a.py\", line 3 in <module>", "crashed", &crashed);
    job().check_raised(
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Segmentation fault. ",
        "crashed",
        &["num_workers=0"],
    );
    job().check(-4, "", "illegal-instruction", &["'lscpu'", "AVX"]);
    job().check(
        -6,
        "The TensorFlow library was compiled to use AVX instructions, but these aren't available on your machine.",
        "illegal-instruction",
        &[],
    );
    job().check(-6, "", "aborted", &["SIGABRT"]);
    job().check(
        134,
        "double free or corruption (out)\nAborted (core dumped)",
        "aborted",
        &["destroyed the process's own memory"],
    );
    job().check(
        -6,
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  x",
        "aborted",
        &["'what():'"],
    );
    job().check(-8, "", "crashed", &["SIGFPE"]);
    job().check(-15, "", "stopped-by-signal", &["'timeout'"]);
    job().check(143, "", "stopped-by-signal", &[]);
    job().check(-13, "", "broken-pipe", &["SIGPIPE"]);
    job().check(141, "", "broken-pipe", &[]);
    job().check(-24, "", "ulimit-exceeded", &["SIGXCPU"]);
    job().check(-25, "", "ulimit-exceeded", &["SIGXFSZ"]);
    job().check(-12, "", "", &[]);
}
