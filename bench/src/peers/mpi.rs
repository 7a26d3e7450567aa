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
use crate::allreduce::cases::{Case, Measured, read};
use crate::allreduce::hosts::Hosts;
use crate::allreduce::place::Place;

const PROGRAM: &str = include_str!("allreduce.c");
/// Debian's library directory, below `usr/lib`.
const TRIPLE: &str = concat!("x86_64", "-linux-gnu");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    OpenMpi,
    Mpich,
}

impl Flavour {
    /// As Debian's alternatives spell it.
    fn suffix(self) -> &'static str {
        match self {
            Flavour::OpenMpi => "openmpi",
            Flavour::Mpich => "mpich",
        }
    }

    fn packages(self) -> &'static str {
        match self {
            Flavour::OpenMpi => "openmpi-bin libopenmpi-dev",
            Flavour::Mpich => "mpich libmpich-dev",
        }
    }
}

pub struct Mpi {
    flavour: Flavour,
    launcher: PathBuf,
    program: PathBuf,
    /// The tree of packages, when they are not installed.
    root: Option<PathBuf>,
    directory: PathBuf,
    pub version: String,
}

impl Mpi {
    /// Finds or installs it and builds the program, unless there is one in `prebuilt` or in the tree.
    pub fn prepare(flavour: Flavour, directory: &Path, prebuilt: Option<&Path>) -> Result<Self> {
        let root = std::env::var_os("CORRO_BENCH_MPI_ROOT").map(PathBuf::from);
        let launcher = format!("mpirun.{}", flavour.suffix());
        let launcher = match &root {
            Some(root) => root.join("usr/bin").join(launcher),
            None => match find(&launcher) {
                Some(launcher) => launcher,
                None => {
                    install(flavour.packages())?;
                    find(&launcher).with_context(|| format!("{launcher} is not there after it was installed"))?
                }
            },
        };
        let mut mpi = Self {
            flavour,
            launcher,
            program: PathBuf::new(),
            root,
            directory: directory.into(),
            version: String::new(),
        };
        mpi.program = mpi.program(prebuilt)?;
        let said = output_of(mpi.environment(Command::new(&mpi.launcher)).arg("--version"))?;
        // "mpirun (Open MPI) 4.1.4" in one, "Version: 4.0.2" in the other.
        let numbers = said.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
        mpi.version = numbers.unwrap_or("?").to_owned();
        Ok(mpi)
    }

    pub fn run(&self, at: Place<'_>, cases: &[Case], limit: Duration) -> Result<Vec<Measured>> {
        let mut command = match at {
            Place::Here(_) => Command::new(&self.launcher),
            Place::Hosts(hosts, _) => hosts.program(1, &self.launcher.display().to_string()),
        };
        if self.flavour == Flavour::OpenMpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        if let Place::Hosts(hosts, ranks) = at {
            self.between(hosts, ranks, &mut command)?;
        }
        command.args(["-np", &at.ranks().to_string()]).arg(&self.program).args(cases.iter().map(Case::word));
        read(&output_within(&mut self.environment(command), limit)?, cases)
    }

    /// Both reach other hosts by a remote shell; ours enters a namespace.
    fn between(&self, hosts: &Hosts, ranks: usize, command: &mut Command) -> Result<()> {
        let shell = self.directory.join("remote-shell");
        fs::write(&shell, hosts.remote_shell())?;
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755))?;
        let addresses: Vec<String> = (1..=ranks).map(|host| hosts.address(host).to_string()).collect();
        match self.flavour {
            Flavour::OpenMpi => {
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
            Flavour::Mpich => {
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
            let lib = root.join("usr/lib").join(TRIPLE);
            let places = [lib.clone(), root.join("lib").join(TRIPLE)];
            let path = std::env::join_paths(places).expect("no colon in the tree's name");
            command.env("LD_LIBRARY_PATH", path);
            command.env("OPAL_PREFIX", root.join("usr")).env("PMIX_INSTALL_PREFIX", lib.join("pmix2"));
            command.env("OMPI_MCA_orte_launch_agent", root.join("usr/bin/orted"));
        }
        command
    }

    fn program(&self, prebuilt: Option<&Path>) -> Result<PathBuf> {
        let name = format!("allreduce.{}", self.flavour.suffix());
        for place in prebuilt.into_iter().chain(self.root.as_deref()) {
            if place.join(&name).is_file() {
                return Ok(place.join(&name).canonicalize()?);
            }
        }
        let compiler = format!("mpicc.{}", self.flavour.suffix());
        if self.root.is_some() || find(&compiler).is_none() {
            bail!("there is neither a built {name} nor {compiler} (Debian: {})", self.flavour.packages());
        }
        let (source, built) = (self.directory.join("allreduce.c"), self.directory.join(name));
        fs::write(&source, PROGRAM)?;
        output_of(Command::new(compiler).args(["-O3", "-o"]).arg(&built).arg(&source))?;
        Ok(built)
    }
}
