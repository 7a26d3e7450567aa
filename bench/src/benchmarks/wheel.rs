//! Our wheel: its size, the time of an offline `pip install`, and the import time it adds to importing PyTorch.
//!
//! Each installation goes into a fresh environment. Each import is a separate process that imports the framework first, so that
//! only our own time is counted.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::{Scale, Verdict};
use crate::peers::{find, output_of, tensorflow, torch};
use crate::stats::{Samples, print_heading};
use crate::steps::package;

pub const PROMISE: &str =
    "the wheel is smaller than 10 MB, installs in under 5 s and adds under 50 ms to importing PyTorch";
const LIMIT_MB: f64 = 10.0;
const LIMIT_INSTALL_S: f64 = 5.0;
const LIMIT_IMPORT_MS: f64 = 50.0;
/// Prints the import times of the framework and of our module, in milliseconds.
const IMPORT_PROGRAM: &str = "import sys, time, importlib
began = time.perf_counter()
importlib.import_module(sys.argv[1])
between = time.perf_counter()
importlib.import_module(sys.argv[2])
print(1e3 * (between - began), 1e3 * (time.perf_counter() - between))";

pub fn run(scale: Scale, arguments: &[String]) -> Result<Verdict> {
    let given = match arguments {
        [] => None,
        [option, file] if option == "--wheel" => Some(Path::new(file)),
        _ => bail!("options of wheel: --wheel FILE"),
    };
    let directory = tempfile::Builder::new().prefix("corro-bench-wheel-").tempdir()?;
    let wheel = package::find_or_build(given)?;
    let (python, version) = torch::interpreter_with_fast_blas()?;
    println!("torch: {version}");
    let package = package::unpack(&wheel, directory.path())?;
    println!();
    print_heading();

    let size = wheel.metadata()?.len() as f64 / 1e6;
    Samples::from_values("size of the wheel", "MB", vec![size]).print_row();
    let mut install = Samples::new("pip install of it, no network", "s");
    for round in 0..scale.pick(3, 10) {
        install.add(measure_install(&directory.path().join(round.to_string()), &wheel)?);
    }
    install.print_row();
    let torch = measure_imports(&python, &package, ["torch", "horovod.torch"], scale.pick(5, 20))?;
    match tensorflow::installed() {
        Some(python) => {
            measure_imports(&python, &package, ["tensorflow", "horovod.tensorflow"], scale.pick(2, 10))?;
            // Keras imports TensorFlow, which is slow.
            if scale == Scale::Full {
                measure_imports(&python, &package, ["keras", "horovod.keras"], 10)?;
            }
        }
        None => println!("TensorFlow is not installed, so its import is not measured: bench/run keras installs it"),
    }

    let (install, torch) = (install.p50(), torch.p50());
    Ok(Verdict {
        met: size < LIMIT_MB && install < LIMIT_INSTALL_S && torch < LIMIT_IMPORT_MS,
        figures: format!(
            "{size:.1} MB (promised: under {LIMIT_MB:.0}); installed in {install:.1} s (under {LIMIT_INSTALL_S:.0}); \
             horovod.torch adds {torch:.0} ms to importing torch (under {LIMIT_IMPORT_MS:.0})"
        ),
    })
}

/// Seconds of pip alone: the environment exists before.
fn measure_install(environment: &Path, wheel: &Path) -> Result<f64> {
    let python = find("python3").context("no python3")?;
    output_of(Command::new(python).args(["-m", "venv"]).arg(environment))?;
    let mut command = Command::new(environment.join("bin/pip"));
    command.args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]).arg(wheel);
    let began = Instant::now();
    output_of(&mut command)?;
    Ok(began.elapsed().as_secs_f64())
}

/// Milliseconds that importing the second module takes after the first.
fn measure_imports(python: &Path, package: &Path, modules: [&str; 2], count: usize) -> Result<Samples> {
    let [framework, ours] = modules;
    let mut framework_times = Samples::new(format!("import of {framework}"), "ms");
    let mut our_times = Samples::new(format!("import of {ours} after it"), "ms");
    // The first import fills the page cache.
    for round in 0..=count {
        let mut command = Command::new(python);
        command
            .args(["-c", IMPORT_PROGRAM, framework, ours])
            .env("PYTHONPATH", package)
            .env("TF_CPP_MIN_LOG_LEVEL", "2");
        let output = output_of(&mut command).with_context(|| format!("cannot import {ours}"))?;
        let times: Vec<f64> = output.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        ensure!(times.len() == 2, "no times of importing {ours}: {output}");
        if round > 0 {
            framework_times.add(times[0]);
            our_times.add(times[1]);
        }
    }
    framework_times.print_row();
    our_times.print_row();
    Ok(our_times)
}
