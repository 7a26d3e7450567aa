//! PyTorch, as Debian's `python3-torch` or as `python3` can import it: Gloo through `torch.distributed`, and training; also
//! upstream Horovod if installed. They run `allreduce.py` and `training_torch.py`, and their ranks use the same rendezvous as
//! ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{find, install, output_of};
use crate::allreduce::cases::{Case, Measurement, parse_output};
use crate::allreduce::gang;
use crate::allreduce::placement::Placement;
use crate::trainer::gang::Program;

const SYSTEM_PYTHON: &str = "/usr/bin/python3";
const ALLREDUCE: &str = include_str!("allreduce.py");
const TRAINING: &str = include_str!("training_torch.py");
const GLOO_VERSION: &str =
    "import torch.distributed as d, torch; assert d.is_gloo_available(); print(torch.__version__)";
const HOROVOD_VERSION: &str = "import horovod, horovod.torch; print(horovod.__version__)";
/// Prints whether torch uses the reference BLAS, which Debian uses when there is no other: a step in fp32 then takes two to
/// three times as long.
const USES_REFERENCE_BLAS: &str = "import torch; c = torch.__config__.show(); maps = open('/proc/self/maps').read(); \
     print('BLAS_INFO=generic' in c and 'openblas' not in maps)";
/// OpenBLAS with OpenMP threads, which torch uses too.
const FAST_BLAS_PACKAGE: &str = "libopenblas0-openmp";

/// Time for a rank to become ready on a busy core.
const START_TIME_PER_RANK: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Torch {
    engine: &'static str,
    python: PathBuf,
    script: PathBuf,
    pub version: String,
}

impl Torch {
    pub fn gloo(directory: &Path) -> Result<Self> {
        let (python, version) = interpreter()?;
        Self::with("gloo", python, version, directory)
    }

    /// Never installed here: it has to be built for the installed torch.
    pub fn horovod(directory: &Path) -> Result<Self> {
        let python = find("python3").context("no python3")?;
        let version = eval(&python, HOROVOD_VERSION).context("python3 cannot import horovod.torch")?;
        Self::with("horovod", python, version, directory)
    }

    fn with(engine: &'static str, python: PathBuf, version: String, directory: &Path) -> Result<Self> {
        let script = directory.join("allreduce.py");
        fs::write(&script, ALLREDUCE)?;
        Ok(Self { engine, python, script, version })
    }

    /// Extends the limit by the start of Python, which is not measured.
    pub fn run(&self, placement: Placement<'_>, cases: &[Case], limit: Duration) -> Result<Vec<Measurement>> {
        let limit = limit + START_TIME_PER_RANK * u32::try_from(placement.ranks()).expect("few ranks");
        let mut arguments = vec![self.script.display().to_string(), self.engine.to_owned()];
        arguments.extend(cases.iter().map(Case::to_argument));
        parse_output(&gang::run(placement, &self.python, &arguments, limit)?, cases)
    }
}

/// Command of a training rank, and the version of torch.
pub fn training(directory: &Path) -> Result<(Program, String)> {
    let (python, version) = interpreter_with_fast_blas()?;
    let script = directory.join("training_torch.py");
    fs::write(&script, TRAINING)?;
    let arguments = vec![script.display().to_string()];
    Ok((Program { program: python, arguments, variables: Vec::new(), ports: false }, version))
}

/// A Python with a torch on a fast BLAS, and its version.
pub fn interpreter_with_fast_blas() -> Result<(PathBuf, String)> {
    let (python, version) = interpreter()?;
    if eval(&python, USES_REFERENCE_BLAS)? == "True" {
        install(FAST_BLAS_PACKAGE)?;
    }
    Ok((python, version))
}

/// A Python that can import torch with Gloo, and its version. Installs nothing.
pub fn installed() -> Result<(PathBuf, String)> {
    // Debian's own interpreter sees Debian's packages; the first in the path may be another.
    let pythons = [Some(PathBuf::from(SYSTEM_PYTHON)), find("python3")];
    let found = pythons.into_iter().flatten().find_map(|python| {
        let version = eval(&python, GLOO_VERSION).ok()?;
        Some((python, version))
    });
    found.context("no python3 can import torch: install python3-torch")
}

/// As [`installed`]; installs Debian's package if there is none.
fn interpreter() -> Result<(PathBuf, String)> {
    let system = PathBuf::from(SYSTEM_PYTHON);
    if let Ok(found) = installed() {
        return Ok(found);
    }
    install("python3-torch")?;
    let version = eval(&system, GLOO_VERSION)?;
    Ok((system, version))
}

/// Output of a one-line Python program.
pub fn eval(python: &Path, program: &str) -> Result<String> {
    Ok(output_of(Command::new(python).args(["-c", program]))?.trim().to_owned())
}
