//! Test site for the retired service's clients: a real server with TLS, reached by host names. Only the clients started here
//! resolve the names, through a hosts file of their own, so that accounts are hosts (`ACCOUNT.file.NAME`) as in the original
//! service.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use corro_test_support::skip;

use super::harness::fault_injection::JoinedAgent;
use super::harness::host::azure_client;
use super::harness::{CommandOutput, Site};

/// The host name of the server.
pub const NAME: &str = "corro.test";
/// Accounts with resolvable host names. Tests use these names.
pub const ACCOUNTS: [&str; 3] = ["mystorageaccount", "secondaccount", "thirdaccount"];

pub struct RealSite {
    pub site: Site,
}

impl RealSite {
    /// A server without resources, and `az` logged in to it. `None`, with a notice, if the clients are not installed.
    pub fn start() -> Option<Self> {
        Self::start_with("az", &[])
    }

    /// The same with one of the installed command lines (`az`, `az38`, `az64`), and with `tools` on the server's machine (see
    /// [`Site::start_with_tools`]).
    pub fn start_with(version: &str, tools: &[(&str, &str)]) -> Option<Self> {
        let real = Self::not_logged_in(version, tools)?;
        real.log_in();
        Some(real)
    }

    /// The server alone, for tests that need no `az`.
    pub fn not_logged_in(version: &str, tools: &[(&str, &str)]) -> Option<Self> {
        let client = azure_client(version)?;
        let unshare = unshare_flags()?;
        let site = Site::start_with_tools(tools, &["--no-containers", "--tls", "--name", NAME]);
        Some(Self::among_names(site, unshare, &client))
    }

    fn among_names(site: Site, unshare: &str, client: &Path) -> Self {
        let accounts = ACCOUNTS.map(|account| format!(" {account}.file.{NAME} {account}.blob.{NAME}")).concat();
        site.write("hosts", format!("127.0.0.1 localhost {NAME}{accounts}\n"));
        let real = Self { site };
        real.write_programs(unshare, &client.join("bin"));
        real
    }

    /// The same with `corro server` and so many machines that have joined it.
    pub fn served(version: &str, machines: usize) -> Option<(Self, Vec<JoinedAgent>)> {
        let client = azure_client(version)?;
        let unshare = unshare_flags()?;
        let mut site = Site::unstarted(&["--no-containers", "--tls", "--name", NAME]);
        site.start_server("server", "127.0.0.1:0", "info");
        let real = Self::among_names(site, unshare, &client);
        let (server, ca) = (real.own("server"), real.ca());
        let trust = ["--ca", ca.to_str().expect("a plain path")];
        let join = |number| JoinedAgent::start_at(&real.site, &format!("machine-{number}"), &server, &trust);
        let agents = (0..machines).map(join).collect();
        Some((real, agents))
    }

    /// Registers the cloud and logs in.
    fn log_in(&self) {
        let mut setup = self.site.command("corro");
        setup.args(["cloud", "setup-az", "--write", "--host", NAME, "--hosts-file", "hosts"]);
        CommandOutput::from(setup.env("AZURE_CONFIG_DIR", self.azure()).output().expect("corro starts")).ok();
        let [id, secret, tenant] = ["clientId", "clientSecret", "tenant"].map(|name| self.own(name));
        self.az(&format!("login --service-principal -u {id} -p {secret} --tenant {tenant}")).ok();
    }

    /// Configuration directory of `az`.
    fn azure(&self) -> PathBuf {
        self.site.home().join(".azure")
    }

    /// `https://NAME:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.suffix())
    }

    /// `NAME:PORT`: accounts are at `ACCOUNT.file.` this.
    pub fn suffix(&self) -> String {
        let port = self.own("server").rsplit(':').next().map(str::to_owned).expect("an address has a port");
        format!("{NAME}:{}", port.trim_end_matches('/'))
    }

    /// The file with the server's certificate authority.
    pub fn ca(&self) -> PathBuf {
        self.site.data().join("tls/ca.pem")
    }

    /// A field of the profile that the server wrote for its owner.
    pub fn own(&self, field: &str) -> String {
        self.site.profile()[field].as_str().expect("text").to_owned()
    }

    /// Runs the real command line; arguments are split at spaces, double quotes around them are dropped.
    pub fn az(&self, line: &str) -> CommandOutput {
        self.site.run_as("az", line)
    }

    /// Our own command line under the same names, so that links and addresses are the same.
    pub fn corro(&self, line: &str) -> CommandOutput {
        self.site.run_as("ours", line)
    }

    /// Runs a program of `tests/azure/python` with the libraries of `environment` (`sdk1`, `sdk2`, `sdk12`). Environment
    /// variables name the server (`SERVER`, `SUFFIX`, `CA`) and the owner's login (`CLIENT_ID`, `CLIENT_SECRET`, `TENANT`,
    /// `SUBSCRIPTION`), plus `vars`. `None`, with a notice, if that environment is not installed.
    pub fn python(&self, environment: &str, program: &str, vars: &[(&str, &str)]) -> Option<CommandOutput> {
        let python = azure_client(environment)?.join("bin/python");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/azure/python").join(program);
        let mut command = self.site.command("among-names");
        command
            .arg(python)
            .arg("-B")
            .arg(program)
            .env("SERVER", self.url())
            .env("SUFFIX", self.suffix())
            .env("CA", self.ca());
        for (name, field) in [
            ("CLIENT_ID", "clientId"),
            ("CLIENT_SECRET", "clientSecret"),
            ("TENANT", "tenant"),
            ("SUBSCRIPTION", "subscription"),
        ] {
            command.env(name, self.own(field));
        }
        command.envs(vars.iter().copied());
        Some(CommandOutput::from(command.output().expect("Python starts")))
    }

    /// Writes programs into the site's directory that hide those of the same names from [`Site::command`]: `among-names` runs
    /// another program that resolves the site's names and trusts its authority, `az` is the real one, so run, `ours` our own.
    fn write_programs(&self, unshare: &str, clients: &Path) {
        let dir = self.site.path();
        let program = |name: &str, script: String| {
            self.site.write(name, format!("#!/bin/sh\n{script}\n"));
            std::fs::set_permissions(dir.join(name), Permissions::from_mode(0o755)).expect("it can be made executable");
        };
        let (azure, ca) = (self.azure(), self.ca());
        program(
            "among-names",
            format!(
                "export AZURE_CONFIG_DIR={} AZURE_CORE_COLLECT_TELEMETRY=no PYTHONWARNINGS=ignore NO_PROXY='*'\n\
                 export REQUESTS_CA_BUNDLE={}\ncd {}\n\
                 # Lines that the setup command prints for the shell.\n\
                 [ ! -f config/az/corro-az.sh ] || . config/az/corro-az.sh\n\
                 exec unshare {unshare} sh -c 'mount --bind hosts /etc/hosts && exec \"$@\"' sh \"$@\"",
                azure.display(),
                ca.display(),
                dir.display()
            ),
        );
        let (own, az) = (dir.join("among-names"), clients.join("az"));
        let corro = env!("CARGO_BIN_EXE_corro");
        program("ours", format!("export CORRO_SERVER={}\nexec {} {corro} \"$@\"", self.url(), own.display()));
        // Its first line searches Python on the path.
        program("az", format!("PATH={}:$PATH\nexec {} {} \"$@\"", clients.display(), own.display(), az.display()));
    }
}

/// Flags of `unshare` that give the clients their own hosts file. `None`, with a notice, if that is impossible.
fn unshare_flags() -> Option<&'static str> {
    static FLAGS: OnceLock<Option<&str>> = OnceLock::new();
    let found = *FLAGS.get_or_init(|| {
        let works = |flags: &&str| {
            let probe = Command::new("unshare").args([flags, "mount", "--bind", "/etc/hosts", "/etc/hosts"]).output();
            probe.is_ok_and(|output| output.status.success())
        };
        ["-m", "-rm"].into_iter().find(works)
    });
    if found.is_none() {
        skip::unsupported_machine(
            "this user may not make a mount namespace, so the clients cannot have names of their own",
        );
    }
    found
}
