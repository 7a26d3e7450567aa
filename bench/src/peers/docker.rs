//! Docker's daemon from Debian's package, in the foreground, with its own directories and socket, and an image built from this
//! machine's bash. Containers use the host network, so the daemon is configured to leave bridges and iptables alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Daemon, find, install, output_of};
use crate::site::wait_for;

pub const IMAGE: &str = "corro-bench:1";
const PACKAGE: &str = "docker.io";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub struct Docker {
    /// Stopped before the directory is removed.
    daemon: Option<Daemon>,
    pub version: String,
    pub socket: PathBuf,
    directory: tempfile::TempDir,
}

impl Docker {
    pub fn start() -> Result<Self> {
        if find("dockerd").is_none() || find("docker").is_none() {
            install(PACKAGE)?;
        }
        let directory = tempfile::Builder::new().prefix("corro-docker-").tempdir()?;
        let at = |name: &str| directory.path().join(name);
        let socket = at("sock");
        let mut command = Command::new(find("dockerd").context("dockerd is missing after its installation")?);
        command.arg("--data-root").arg(at("data")).arg("--exec-root").arg(at("exec")).arg("--pidfile").arg(at("pid"));
        command.args(["--iptables=false", "--bridge=none", "-H"]).arg(format!("unix://{}", socket.display()));
        let daemon = Some(Daemon::start(&mut command)?);
        let mut docker = Self { daemon, version: String::new(), socket, directory };
        let query_version =
            || Ok(output_of(docker.command().args(["version", "--format", "{{.Server.Version}}"])).ok());
        docker.version = wait_for("dockerd", POLL_INTERVAL, query_version)?.trim().to_owned();
        docker.create_image()?;
        Ok(docker)
    }

    pub fn command(&self) -> Command {
        let mut docker = Command::new("docker");
        docker.arg("-H").arg(format!("unix://{}", self.socket.display()));
        docker
    }

    fn create_image(&self) -> Result<()> {
        let directory = self.directory.path();
        let root = directory.join("root");
        fs::create_dir_all(root.join("bin"))?;
        let bash = find("bash").context("no bash")?;
        copy(&bash, &root.join("bin/bash"))?;
        std::os::unix::fs::symlink("bash", root.join("bin/sh"))?;
        let libraries = output_of(Command::new("ldd").arg(&bash))?;
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            copy(Path::new(library), &root.join(library.trim_start_matches('/')))?;
        }
        let tar = directory.join("image.tar");
        output_of(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg("."))?;
        output_of(self.command().args(["import", "--change", "ENV PATH=/bin"]).arg(&tar).arg(IMAGE))?;
        Ok(())
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        self.daemon.take();
        // The daemon leaves a mount that prevents the removal of the directory.
        let _ = Command::new("umount").arg(self.directory.path().join("exec/netns/default")).status();
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("the path has no parent directory")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(0o755))?)
}
