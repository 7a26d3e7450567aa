//! `corro doctor`: checks this machine: cores, memory, GPUs with their driver and libraries ([`gpu`]), container engine, disk, port, the programs that
//! jobs need, and which isolation and limits can be enforced on jobs ([`isolation`]). Leaves no files.

pub mod gpu;
mod isolation;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use clap::Args;
use corro_base::procfs;
use corro_client::profile;
use corro_hosting::listen::DEFAULT_LISTEN;

use crate::error::CliError;
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct DoctorArgs {}

/// Result of one check: one line of the output.
struct Finding {
    severity: Severity,
    subject: &'static str,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Severity {
    Ok,
    /// Corro works, with a limitation.
    Note,
    /// Corro cannot work.
    Error,
}

impl Severity {
    fn label(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Error => "FIX",
        }
    }
}

pub async fn run(_args: DoctorArgs) -> Result<(), CliError> {
    let mut findings = vec![cores(), memory(), gpus()];
    findings.extend(gpu::findings().await);
    findings.extend([containers().await, disk(), port(), shell(), python(), kernel()]);
    findings
        .extend(tokio::task::spawn_blocking(isolation::findings).await.map_err(|error| CliError::from_error(&error))?);
    for Finding { severity, subject, text } in &findings {
        print(format_args!("{:<4}  {subject:<12}  {text}", severity.label()));
    }
    match findings.iter().filter(|finding| finding.severity == Severity::Error).count() {
        0 => {
            print(
                "\nThis machine can run Corro. Start it with 'corro up', or see it work with 'corro tutorial --quick'.",
            );
            Ok(())
        }
        errors => Err(CliError::new(format!("{errors} of {} checks failed", findings.len()))),
    }
}

fn finding(severity: Severity, subject: &'static str, text: impl Into<String>) -> Finding {
    Finding { severity, subject, text: text.into() }
}

fn cores() -> Finding {
    let n = std::thread::available_parallelism().map_or(1, |n| n.get());
    let text = format!("{n} processor cores. Ranks share them: more ranks than cores work, but slower");
    finding(Severity::Ok, "cores", text)
}

fn memory() -> Finding {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match procfs::Memory::read().map(|memory| (gib(memory.total), gib(memory.available))) {
        Some((total, free)) if free < 0.5 => {
            finding(Severity::Note, "memory", format!("{free:.1} of {total:.1} GiB free: little for training"))
        }
        Some((total, free)) => finding(Severity::Ok, "memory", format!("{free:.1} of {total:.1} GiB free")),
        None => finding(Severity::Note, "memory", "cannot be read from /proc/meminfo"),
    }
}

fn gpus() -> Finding {
    let cards = fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |entries| entries.flatten().count());
    match cards {
        0 => finding(Severity::Ok, "GPUs", "none with an NVIDIA driver: jobs run on processor cores"),
        n => finding(Severity::Ok, "GPUs", format!("{n} with an NVIDIA driver")),
    }
}

async fn containers() -> Finding {
    let sockets = corro_agent::engine_sockets(|name| std::env::var(name).ok());
    match corro_agent::container::engine::find(&sockets).await {
        Ok(engine) => {
            let text = format!("{} at {}: jobs that ask for a container get one", engine.name, engine.socket.display());
            finding(Severity::Ok, "containers", text)
        }
        Err(none) => finding(Severity::Note, "containers", no_containers(&none.to_string())),
    }
}

fn no_containers(why: &str) -> String {
    format!(
        "{why}: jobs that ask for a container fail, or run directly on this machine with 'corro up --no-containers'. \
         Only they need an engine: Docker or Podman"
    )
}

fn disk() -> Finding {
    let Ok(dir) = profile::config_dir() else {
        return finding(
            Severity::Error,
            "disk",
            "there is no home directory: set CORRO_CONFIG_DIR to a directory of your own",
        );
    };
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(existing) {
        Ok(stat) => {
            let free = (stat.f_bavail * stat.f_frsize) as f64 / (1u64 << 30) as f64;
            let severity = if free < 1.0 { Severity::Note } else { Severity::Ok };
            finding(severity, "disk", format!("{free:.1} GiB free for {}", dir.display()))
        }
        Err(error) => finding(Severity::Error, "disk", format!("{} cannot be used: {error}", existing.display())),
    }
}

fn port() -> Finding {
    match TcpListener::bind(DEFAULT_LISTEN) {
        Ok(_) => finding(Severity::Ok, "port", format!("{DEFAULT_LISTEN} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let text =
                format!("{DEFAULT_LISTEN} is taken: Corro runs already, or choose another with 'corro up --listen'");
            finding(Severity::Note, "port", text)
        }
        Err(error) => finding(Severity::Error, "port", format!("{DEFAULT_LISTEN} cannot be listened on: {error}")),
    }
}

fn shell() -> Finding {
    match (find_in_path("bash"), find_in_path("sh")) {
        (Some(path), _) => finding(Severity::Ok, "shell", format!("job commands run in {}", path.display())),
        (None, Some(path)) => {
            finding(Severity::Note, "shell", format!("there is no bash: job commands run in {}", path.display()))
        }
        (None, None) => finding(Severity::Error, "shell", "there is neither bash nor sh: install bash"),
    }
}

fn python() -> Finding {
    match find_in_path("python").or_else(|| find_in_path("python3")) {
        Some(path) => finding(
            Severity::Ok,
            "Python",
            format!("horovod jobs without an interpreter of their own use {}", path.display()),
        ),
        None => finding(Severity::Note, "Python", "none found: only needed by jobs that run Python scripts"),
    }
}

/// Paths are resolved with `openat2`, which needs Linux 5.6.
fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (5, 6) {
        return finding(Severity::Error, "kernel", format!("Linux {release} is too old: 5.6 or later is needed"));
    }
    finding(Severity::Ok, "kernel", format!("Linux {release}"))
}

/// The path of a program in PATH.
fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}
