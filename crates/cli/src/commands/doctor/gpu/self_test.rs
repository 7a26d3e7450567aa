//! The child process of a GPU test: `corro gpu-self-test PART`. Loads libraries, calls them, and prints one report per test as a line of JSON as
//! soon as it is known, so that the reports before a call that hangs are not lost.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{cuda, ipc, nccl, nvrtc, peers};

pub const SUBCOMMAND: &str = "gpu-self-test";
/// Argument of the tests of libraries that also use a GPU.
pub const WITH_GPU: &str = "--with-gpu";

/// One child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Driver, IPC and peer access.
    Driver,
    /// The other process of the IPC test.
    IpcImporter,
    Nccl,
    Nvrtc,
}

impl Part {
    const ALL: [Part; 4] = [Part::Driver, Part::IpcImporter, Part::Nccl, Part::Nvrtc];

    pub fn name(self) -> &'static str {
        match self {
            Part::Driver => "driver",
            Part::IpcImporter => "ipc-importer",
            Part::Nccl => "nccl",
            Part::Nvrtc => "nvrtc",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Test {
    Driver,
    Nccl,
    Nvrtc,
    Ipc,
    Peers,
}

/// Result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub test: Test,
    pub is_ok: bool,
    pub text: String,
}

impl Report {
    pub fn print(test: Test, result: Result<String, String>) {
        let (is_ok, text) = match result {
            Ok(text) => (true, text),
            Err(text) => (false, text),
        };
        let line = serde_json::to_string(&Report { test, is_ok, text }).expect("a report is plain data");
        // Without a reader nobody wants the report any more.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Runs a part; the exit code. The arguments are its name, [`WITH_GPU`], and directories of libraries.
pub fn run(arguments: &[OsString]) -> u8 {
    let part = arguments.first().and_then(|name| Part::ALL.into_iter().find(|part| name == part.name()));
    let with_gpu = arguments.iter().any(|argument| argument == WITH_GPU);
    let directories: Vec<PathBuf> =
        arguments.iter().skip(1).filter(|argument| *argument != WITH_GPU).map(PathBuf::from).collect();
    match part {
        Some(Part::Driver) => test_driver(),
        Some(Part::IpcImporter) => return u8::from(ipc::import().is_err()),
        Some(Part::Nccl) => Report::print(Test::Nccl, nccl::test(&directories, with_gpu)),
        Some(Part::Nvrtc) => Report::print(Test::Nvrtc, nvrtc::test(&directories, with_gpu)),
        None => return 2,
    }
    0
}

fn test_driver() {
    let driver = match cuda::Driver::open() {
        Ok(driver) => driver,
        Err(error) => return Report::print(Test::Driver, Err(error)),
    };
    let devices = driver.devices();
    let tested = devices.and_then(|devices| cuda::test_memory(&driver, &devices).map(|text| (devices, text)));
    let devices = match tested {
        Ok((devices, text)) => {
            Report::print(Test::Driver, Ok(text));
            devices
        }
        Err(error) => return Report::print(Test::Driver, Err(error)),
    };
    Report::print(Test::Ipc, ipc::test(&driver, &devices[0]));
    Report::print(Test::Peers, peers::test(&driver, &devices));
}
