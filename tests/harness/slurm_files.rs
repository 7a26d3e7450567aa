//! Files of a private Slurm on this machine: directories, a key and a configuration. Tests and benchmarks pass their own node
//! resources and scheduling settings. Starts nothing.

use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

pub const NODES: usize = 4;

/// Writes everything below `directory`. `node` holds the resources of each node and `settings` more lines, both in slurm.conf
/// syntax.
pub fn write(directory: &Path, node: &str, settings: &str) -> io::Result<()> {
    for name in ["run", "state", "log"] {
        fs::create_dir_all(directory.join(name))?;
    }
    for number in 1..=NODES {
        fs::create_dir_all(directory.join(format!("spool/n{number}")))?;
    }
    let mut key = [0; 128];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let file = directory.join("munge.key");
    fs::write(&file, key)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400))?;
    fs::write(directory.join("slurm.conf"), configuration(directory, node, settings)?)
}

/// Command line of munged, the authentication service.
pub fn munged(directory: &Path) -> Vec<String> {
    let files = [
        ("socket", "run/munge.sock"),
        ("key-file", "munge.key"),
        ("pid-file", "run/munged.pid"),
        ("log-file", "log/munged.log"),
        ("seed-file", "run/munge.seed"),
    ];
    let files = files.map(|(option, file)| format!("--{option}={}", directory.join(file).display()));
    ["--foreground", "--force"].map(str::to_owned).into_iter().chain(files).collect()
}

fn configuration(directory: &Path, node: &str, settings: &str) -> io::Result<String> {
    // All held open until every port is known, so that no two are the same.
    let ports: Vec<_> = (0..=NODES).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<_>>()?;
    let ports: Vec<u16> = ports.iter().map(|port| Ok(port.local_addr()?.port())).collect::<io::Result<_>>()?;
    let host = Command::new("hostname").arg("-s").output()?;
    let host = String::from_utf8_lossy(&host.stdout).trim().to_owned();
    let at = directory.display();
    let mut text = format!(
        "ClusterName=corro
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/run/munge.sock
SlurmctldPort={}
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool/%n
SlurmctldPidFile={at}/run/slurmctld.pid
SlurmdPidFile={at}/run/slurmd.%n.pid
SlurmctldLogFile={at}/log/slurmctld.log
SlurmdLogFile={at}/log/slurmd.%n.log
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
{settings}
",
        ports[0]
    );
    for (number, port) in (1..).zip(&ports[1..]) {
        let place = format!("NodeHostname={host} NodeAddr=127.0.0.1 Port={port}");
        text += &format!("NodeName=n{number} {place} {node} State=UNKNOWN\n");
    }
    Ok(text + &format!("PartitionName=main Nodes=n[1-{NODES}] Default=YES MaxTime=INFINITE State=UP\n"))
}
