//! sshfs and OpenSSH's server from Debian's packages, on loopback, with their own keys and configuration: the usual way to
//! mount a directory of another machine. Options are the usual ones.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Daemon, find, install, output_of};
use crate::site::wait_for;

const PACKAGES: &str = "sshfs openssh-server openssh-client fuse3";
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct Sshfs {
    pub version: String,
    pub mount_point: PathBuf,
    // Drop order: the mount goes before the server.
    _mount: SshfsMount,
    _server: Daemon,
}

struct SshfsMount {
    mount_point: PathBuf,
    _client: Daemon,
}

impl Drop for SshfsMount {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.mount_point).stderr(Stdio::null()).status();
    }
}

impl Sshfs {
    /// Mounts `source`, a directory of this machine, below `directory` through SSH.
    pub fn start(directory: &Path, source: &Path) -> Result<Self> {
        if find("sshfs").is_none() || find("sshd").is_none() {
            install(PACKAGES)?;
        }
        let (sshfs, sshd) = (find("sshfs").context("no sshfs")?, find("sshd").context("no sshd")?);
        let printed = Command::new(&sshfs).arg("-V").output()?;
        let version = String::from_utf8_lossy(&printed.stdout)
            .lines()
            .find(|line| line.starts_with("SSHFS"))
            .unwrap_or("sshfs")
            .to_owned();
        let directory = directory.join("ssh");
        fs::create_dir_all(directory.join("mount"))?;
        // Directory of its unprivileged part; Debian's start script creates it.
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd")?;
        }
        for name in ["host", "user"] {
            let file = directory.join(name);
            output_of(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let path = directory.display();
        let configuration = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {path}/host\nAuthorizedKeysFile {path}/user.pub\nPidFile none\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n\
             Subsystem sftp internal-sftp\n"
        );
        fs::write(directory.join("sshd_config"), configuration)?;
        let mut command = Command::new(&sshd);
        command.arg("-D").arg("-f").arg(directory.join("sshd_config")).arg("-E").arg(directory.join("log"));
        let server = Daemon::start(&mut command)?;
        let log = || fs::read_to_string(directory.join("log")).unwrap_or_default();
        wait_for("sshd", POLL_INTERVAL, || Ok(TcpStream::connect(("127.0.0.1", port)).ok())).with_context(log)?;
        let host = fs::read_to_string(directory.join("host.pub"))?;
        let key: Vec<&str> = host.split_whitespace().take(2).collect();
        fs::write(directory.join("known"), format!("[127.0.0.1]:{port} {}\n", key.join(" ")))?;
        let mount_point = directory.join("mount");
        let options = format!("IdentityFile={path}/user,UserKnownHostsFile={path}/known,BatchMode=yes");
        let user = if rustix::process::geteuid().is_root() { "root@" } else { "" };
        let mut command = Command::new(&sshfs);
        command.args(["-f", "-p", &port.to_string(), "-o", &options]);
        command.arg(format!("{user}127.0.0.1:{}", source.display())).arg(&mount_point);
        let client = Daemon::start(&mut command)?;
        let mount = SshfsMount { mount_point: mount_point.clone(), _client: client };
        File::create(source.join(".here"))?;
        let mounted =
            wait_for("the mount by sshfs", POLL_INTERVAL, || Ok(mount_point.join(".here").exists().then_some(())));
        mounted.with_context(log)?;
        fs::remove_file(source.join(".here"))?;
        ensure!(fs::read_dir(&mount_point).is_ok(), "the mount by sshfs cannot be listed: {}", log());
        Ok(Self { version, mount_point, _mount: mount, _server: server })
    }
}
