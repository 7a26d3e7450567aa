//! Open MPI and MPICH from Debian's packages, or from an unpacked tree (`bench/pack-peers`) named by `CORRO_BENCH_MPI_ROOT`,
//! for machines where nothing can be installed. Both run `allreduce.c` with their own launchers and defaults; Open MPI runs
//! with oversubscription allowed, which makes it yield.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{find, install, output_of, output_within};
use crate::allreduce::cases::{Case, Measurement, parse_output};
use crate::allreduce::hosts::Hosts;
use crate::allreduce::placement::Placement;

const SOURCE: &str = include_str!("allreduce.c");
/// Debian's library directory, below `usr/lib`.
const LIBRARY_TRIPLET: &str = concat!("x86_64", "-linux-gnu");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    OpenMpi,
    Mpich,
}

impl Implementation {
    /// As Debian's alternatives spell it.
    fn suffix(self) -> &'static str {
        match self {
            Implementation::OpenMpi => "openmpi",
            Implementation::Mpich => "mpich",
        }
    }

    fn packages(self) -> &'static str {
        match self {
            Implementation::OpenMpi => "openmpi-bin libopenmpi-dev",
            Implementation::Mpich => "mpich libmpich-dev",
        }
    }
}

pub struct Mpi {
    implementation: Implementation,
    launcher: PathBuf,
    program: PathBuf,
    /// The tree of packages, when they are not installed.
    root: Option<PathBuf>,
    directory: PathBuf,
    pub version: String,
}

impl Mpi {
    /// Finds or installs it and builds the program, unless there is one in `prebuilt` or in the tree.
    pub fn prepare(implementation: Implementation, directory: &Path, prebuilt: Option<&Path>) -> Result<Self> {
        let root = std::env::var_os("CORRO_BENCH_MPI_ROOT").map(PathBuf::from);
        let launcher = format!("mpirun.{}", implementation.suffix());
        let launcher = match &root {
            Some(root) => root.join("usr/bin").join(launcher),
            None => match find(&launcher) {
                Some(launcher) => launcher,
                None => {
                    install(implementation.packages())?;
                    find(&launcher).with_context(|| format!("{launcher} is missing after its installation"))?
                }
            },
        };
        let mut mpi = Self {
            implementation,
            launcher,
            program: PathBuf::new(),
            root,
            directory: directory.into(),
            version: String::new(),
        };
        mpi.program = mpi.program(prebuilt)?;
        let version = output_of(mpi.environment(Command::new(&mpi.launcher)).arg("--version"))?;
        // "mpirun (Open MPI) 4.1.4" in one, "Version: 4.0.2" in the other.
        let number = version.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        mpi.version = number.unwrap_or("?").to_owned();
        Ok(mpi)
    }

    pub fn run(&self, placement: Placement<'_>, cases: &[Case], limit: Duration) -> Result<Vec<Measurement>> {
        let mut command = match placement {
            Placement::OneHost(_) => Command::new(&self.launcher),
            Placement::Hosts(hosts, _) => hosts.program(1, &self.launcher.display().to_string()),
        };
        if self.implementation == Implementation::OpenMpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        if let Placement::Hosts(hosts, ranks) = placement {
            self.configure_hosts(hosts, ranks, &mut command)?;
        }
        command
            .args(["-np", &placement.ranks().to_string()])
            .arg(&self.program)
            .args(cases.iter().map(Case::to_argument));
        parse_output(&output_within(&mut self.environment(command), limit)?, cases)
    }

    /// Adds hosts and network options. Both reach other hosts by a remote shell, which enters a namespace here.
    fn configure_hosts(&self, hosts: &Hosts, ranks: usize, command: &mut Command) -> Result<()> {
        let shell = self.directory.join("remote-shell");
        fs::write(&shell, hosts.remote_shell())?;
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755))?;
        let addresses: Vec<String> = (1..=ranks).map(|host| hosts.address(host).to_string()).collect();
        match self.implementation {
            Implementation::OpenMpi => {
                command.args(["--host", &addresses.join(",")]);
                command.args(["--mca", "plm_rsh_agent"]).arg(&shell);
                for (name, value) in [
                    ("pml", "ob1"),
                    ("btl", "tcp,self"),
                    ("btl_tcp_if_include", "eth0"),
                    ("oob_tcp_if_include", "eth0"),
                    // With one rank per host it cannot see that the cores are oversubscribed, and spins.
                    ("mpi_yield_when_idle", "1"),
                ] {
                    command.args(["--mca", name, value]);
                }
            }
            Implementation::Mpich => {
                command.args(["-hosts", &addresses.join(","), "-iface", "eth0"]);
                command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&shell);
                // Otherwise it would use shared memory, since the hosts are really one machine.
                command.args(["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", "eth0"]);
                command.args(["-genv", "MPIR_CVAR_NOLOCAL", "1"]);
            }
        }
        Ok(())
    }

    /// Sets the search paths for a tree of packages.
    fn environment(&self, mut command: Command) -> Command {
        if let Some(root) = &self.root {
            let lib = root.join("usr/lib").join(LIBRARY_TRIPLET);
            let directories = [lib.clone(), root.join("lib").join(LIBRARY_TRIPLET)];
            let path = std::env::join_paths(directories).expect("no colon in the tree's name");
            command.env("LD_LIBRARY_PATH", path);
            command.env("OPAL_PREFIX", root.join("usr")).env("PMIX_INSTALL_PREFIX", lib.join("pmix2"));
            command.env("OMPI_MCA_orte_launch_agent", root.join("usr/bin/orted"));
        }
        command
    }

    fn program(&self, prebuilt: Option<&Path>) -> Result<PathBuf> {
        let name = format!("allreduce.{}", self.implementation.suffix());
        for directory in prebuilt.into_iter().chain(self.root.as_deref()) {
            if directory.join(&name).is_file() {
                return Ok(directory.join(&name).canonicalize()?);
            }
        }
        let compiler = format!("mpicc.{}", self.implementation.suffix());
        if self.root.is_some() || find(&compiler).is_none() {
            bail!("neither a prebuilt {name} nor {compiler} found (Debian: {})", self.implementation.packages());
        }
        let (source, built) = (self.directory.join("allreduce.c"), self.directory.join(name));
        fs::write(&source, SOURCE)?;
        output_of(Command::new(compiler).args(["-O3", "-o"]).arg(&built).arg(&source))?;
        Ok(built)
    }
}
