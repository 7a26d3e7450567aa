//! `corro doctor`: looks at this machine and says in plain words what Corro will find: cores, memory, GPUs, container
//! engine, disk, ports, the programs that jobs need, and line by line what can be enforced on jobs (`isolation`). Leaves nothing behind.

mod isolation;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use clap::Args;
use corro_client::profile;

use crate::error::CliError;
use crate::stdio::print;
use corro_hosting::listen::DEFAULT_LISTEN;

#[derive(Args, Debug)]
pub struct DoctorArgs {}

/// One thing looked at.
struct Finding {
    mark: Mark,
    what: &'static str,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Good,
    /// Works, but someone should know.
    Note,
    /// Corro cannot work like this.
    Bad,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Mark::Good => "ok",
            Mark::Note => "note",
            Mark::Bad => "FIX",
        }
    }
}

pub async fn run(_args: DoctorArgs) -> Result<(), CliError> {
    let mut findings = vec![cores(), memory(), gpus(), containers().await, disk(), port(), shell(), python(), kernel()];
    findings
        .extend(tokio::task::spawn_blocking(isolation::findings).await.map_err(|error| CliError::from_error(&error))?);
    for Finding { mark, what, text } in &findings {
        print(format_args!("{:<4}  {what:<12}  {text}", mark.word()));
    }
    match findings.iter().filter(|finding| finding.mark == Mark::Bad).count() {
        0 => {
            print(
                "\nThis machine can run Corro. Start it with 'corro up', or see it work with 'corro tutorial --quick'.",
            );
            Ok(())
        }
        bad => Err(CliError::new(format!("{bad} of {} things must be fixed first", findings.len()))),
    }
}

fn finding(mark: Mark, what: &'static str, text: impl Into<String>) -> Finding {
    Finding { mark, what, text: text.into() }
}

fn cores() -> Finding {
    let n = std::thread::available_parallelism().map_or(1, |n| n.get());
    let text = format!("{n} processor cores. Ranks share them: more ranks than cores work, but slower");
    finding(Mark::Good, "cores", text)
}

fn memory() -> Finding {
    let gib = |field: &str| {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find(|line| line.starts_with(field))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0 / 1024.0)
    };
    match gib("MemTotal:").zip(gib("MemAvailable:")) {
        Some((total, free)) if free < 0.5 => {
            finding(Mark::Note, "memory", format!("{free:.1} of {total:.1} GiB free: little for training"))
        }
        Some((total, free)) => finding(Mark::Good, "memory", format!("{free:.1} of {total:.1} GiB free")),
        None => finding(Mark::Note, "memory", "cannot be read from /proc/meminfo"),
    }
}

fn gpus() -> Finding {
    let cards = fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |entries| entries.flatten().count());
    match cards {
        0 => finding(Mark::Good, "GPUs", "none with an NVIDIA driver: jobs run on processor cores"),
        n => finding(Mark::Good, "GPUs", format!("{n} with an NVIDIA driver")),
    }
}

async fn containers() -> Finding {
    let sockets = corro_agent::engine_sockets(|name| std::env::var(name).ok());
    match corro_agent::container::engine::find(&sockets).await {
        Ok(engine) => {
            let text = format!("{} at {}: jobs that ask for a container get one", engine.name, engine.socket.display());
            finding(Mark::Good, "containers", text)
        }
        Err(none) => finding(Mark::Note, "containers", no_containers(&none.to_string())),
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
            Mark::Bad,
            "disk",
            "there is no home directory: set CORRO_CONFIG_DIR to a directory of your own",
        );
    };
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(existing) {
        Ok(stat) => {
            let free = (stat.f_bavail * stat.f_frsize) as f64 / (1u64 << 30) as f64;
            let mark = if free < 1.0 { Mark::Note } else { Mark::Good };
            finding(mark, "disk", format!("{free:.1} GiB free for {}", dir.display()))
        }
        Err(error) => finding(Mark::Bad, "disk", format!("{} cannot be used: {error}", existing.display())),
    }
}

fn port() -> Finding {
    match TcpListener::bind(DEFAULT_LISTEN) {
        Ok(_) => finding(Mark::Good, "port", format!("{DEFAULT_LISTEN} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let text =
                format!("{DEFAULT_LISTEN} is taken: Corro runs already, or choose another with 'corro up --listen'");
            finding(Mark::Note, "port", text)
        }
        Err(error) => finding(Mark::Bad, "port", format!("{DEFAULT_LISTEN} cannot be listened on: {error}")),
    }
}

fn shell() -> Finding {
    match (on_path("bash"), on_path("sh")) {
        (Some(path), _) => finding(Mark::Good, "shell", format!("job commands run in {}", path.display())),
        (None, Some(path)) => {
            finding(Mark::Note, "shell", format!("there is no bash: job commands run in {}", path.display()))
        }
        (None, None) => finding(Mark::Bad, "shell", "there is neither bash nor sh: install bash"),
    }
}

fn python() -> Finding {
    match on_path("python").or_else(|| on_path("python3")) {
        Some(path) => finding(
            Mark::Good,
            "Python",
            format!("horovod jobs without an interpreter of their own use {}", path.display()),
        ),
        None => finding(Mark::Note, "Python", "none found: only needed by jobs that run Python scripts"),
    }
}

/// Paths are resolved with `openat2`, which came with Linux 5.6.
fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (5, 6) {
        return finding(Mark::Bad, "kernel", format!("Linux {release} is too old: 5.6 or later is needed"));
    }
    finding(Mark::Good, "kernel", format!("Linux {release}"))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}
