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
const LOOK: Duration = Duration::from_millis(10);

pub struct Sshfs {
    pub version: String,
    pub place: PathBuf,
    // Drop order: the mount goes before the server.
    _mount: Mounted,
    _server: Daemon,
}

struct Mounted {
    place: PathBuf,
    _client: Daemon,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.place).stderr(Stdio::null()).status();
    }
}

impl Sshfs {
    /// Mounts `source`, a directory of this machine, below `directory` through SSH.
    pub fn start(directory: &Path, source: &Path) -> Result<Self> {
        if find("sshfs").is_none() || find("sshd").is_none() {
            install(PACKAGES)?;
        }
        let (sshfs, sshd) = (find("sshfs").context("no sshfs")?, find("sshd").context("no sshd")?);
        let shown = Command::new(&sshfs).arg("-V").output()?;
        let version = String::from_utf8_lossy(&shown.stdout)
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
        let at = directory.display();
        let configuration = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nPidFile none\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n\
             Subsystem sftp internal-sftp\n"
        );
        fs::write(directory.join("sshd_config"), configuration)?;
        let mut command = Command::new(&sshd);
        command.arg("-D").arg("-f").arg(directory.join("sshd_config")).arg("-E").arg(directory.join("log"));
        let server = Daemon::start(&mut command)?;
        let log = || fs::read_to_string(directory.join("log")).unwrap_or_default();
        wait_for("sshd", LOOK, || Ok(TcpStream::connect(("127.0.0.1", port)).ok())).with_context(log)?;
        let host = fs::read_to_string(directory.join("host.pub"))?;
        let key: Vec<&str> = host.split_whitespace().take(2).collect();
        fs::write(directory.join("known"), format!("[127.0.0.1]:{port} {}\n", key.join(" ")))?;
        let place = directory.join("mount");
        let options = format!("IdentityFile={at}/user,UserKnownHostsFile={at}/known,BatchMode=yes");
        let user = if rustix::process::geteuid().is_root() { "root@" } else { "" };
        let mut command = Command::new(&sshfs);
        command.args(["-f", "-p", &port.to_string(), "-o", &options]);
        command.arg(format!("{user}127.0.0.1:{}", source.display())).arg(&place);
        let client = Daemon::start(&mut command)?;
        let mount = Mounted { place: place.clone(), _client: client };
        File::create(source.join(".here"))?;
        let there = wait_for("the mount by sshfs", LOOK, || Ok(place.join(".here").exists().then_some(())));
        there.with_context(log)?;
        fs::remove_file(source.join(".here"))?;
        ensure!(fs::read_dir(&place).is_ok(), "sshfs shows nothing: {}", log());
        Ok(Self { version, place, _mount: mount, _server: server })
    }
}
