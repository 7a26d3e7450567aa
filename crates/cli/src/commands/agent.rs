//! `corro agent`: runs this machine, or a part of it, as one node of a cluster. Started by the server's local provider
//! and by hand on machines that join. The running itself is the agent crate's.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use corro_agent::{AgentConfig, AgentEnd, Isolation, IsolationMode, PortRange};
use corro_client::{Fingerprint, Trust};
use corro_launch::process::Launcher;
use corro_model::Secret;

use crate::hosting::providers::local;

#[derive(Args, Debug)]
pub struct AgentArgs {
    /// Where the server listens, for example https://gpu-box:8470
    #[arg(long, value_name = "URL")]
    server: String,

    /// A file with the certificate authority that vouches for the server (PEM) [default: whom this machine trusts]
    #[arg(long, value_name = "FILE", conflicts_with = "ca_fingerprint")]
    ca: Option<PathBuf>,

    /// The SHA-256 fingerprint of that authority, as 'corro server --tls' shows it
    #[arg(long, value_name = "HEX")]
    ca_fingerprint: Option<String>,

    /// A file that holds the server's present URL; looked into whenever the connection is lost
    #[arg(long, value_name = "FILE")]
    server_file: Option<PathBuf>,

    /// The node's own directory; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// The address at which the other nodes of a job reach this one [default: the one by which it reaches the server]
    #[arg(long, value_name = "IP")]
    address: Option<String>,

    /// On which ports this node and its ranks listen for others of their job, for example 20000-20100 [default: any that is free]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<PortRange>,

    /// A file that holds the join token
    #[arg(long, value_name = "FILE")]
    join_token_file: PathBuf,

    #[command(flatten)]
    isolation: IsolationArgs,

    /// A directory that jobs must not see, but for what is theirs in it; the node's own one is always hidden
    #[arg(long, value_name = "DIR")]
    hide: Vec<PathBuf>,

    /// Mount shares over the network, even if this machine sees the server's data directory
    #[arg(long)]
    remote_shares: bool,

    /// End when the server no longer needs this node, instead of waiting for the next cluster that does
    #[arg(long)]
    once: bool,

    /// Remove the node's directory at the end, and what agents that were killed left beside it at the start
    #[arg(long, hide = true, requires = "once")]
    leave_nothing: bool,

    #[command(flatten)]
    log: crate::logging::LogArgs,
}

/// How far jobs on one machine are kept from each other.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct IsolationArgs {
    /// Whether a job sees other jobs, their secrets and the server's files: as little as this machine allows (auto), all that
    /// this account sees (off), or not running where that cannot be prevented (strict). Execution logs say what was done
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub isolation: IsolationArg,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum IsolationArg {
    #[default]
    Auto,
    Off,
    Strict,
}

impl IsolationArg {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            IsolationArg::Auto => "auto",
            IsolationArg::Off => "off",
            IsolationArg::Strict => "strict",
        }
    }

    fn mode(self) -> IsolationMode {
        match self {
            IsolationArg::Auto => IsolationMode::Auto,
            IsolationArg::Off => IsolationMode::Off,
            IsolationArg::Strict => IsolationMode::Strict,
        }
    }
}

pub async fn run(args: AgentArgs) -> Result<()> {
    args.log.init();
    let config = AgentConfig {
        join_token: join_token(&args.join_token_file, &args.data)?,
        trust: trust(args.ca.as_deref(), args.ca_fingerprint.as_deref())?,
        server: args.server,
        server_file: args.server_file,
        root: args.data,
        guard: Launcher::this_executable(),
        address: args.address,
        ports: args.ports,
        heartbeat: AgentConfig::HEARTBEAT,
        engine_sockets: corro_agent::engine_sockets(|name| std::env::var(name).ok()),
        rejoin: !args.once,
        isolation: Isolation { mode: args.isolation.isolation.mode(), hidden: args.hide },
        remote_shares: args.remote_shares,
    };
    let tidied = args.leave_nothing.then(|| config.root.clone());
    if let Some(parent) = tidied.as_deref().and_then(Path::parent) {
        let parent = parent.to_owned();
        tokio::task::spawn_blocking(move || local::remove_left_by_killed(&parent)).await?;
    }
    let end = corro_agent::run(config).await;
    if let Some(root) = tidied {
        tokio::task::spawn_blocking(move || corro_agent::remove_node_directory(&root)).await??;
    }
    let end = end?;
    // Whoever read our stderr may be gone, which is no failure of the node.
    let _ = writeln!(io::stderr(), "{}", farewell(&end));
    Ok(())
}

fn trust(file: Option<&Path>, fingerprint: Option<&str>) -> Result<Trust> {
    Ok(match (file, fingerprint) {
        (Some(file), _) => Trust::from_file(file)?,
        (None, Some(text)) => Trust::Fingerprint(Fingerprint::parse(text)?),
        (None, None) => Trust::System,
    })
}

/// Never from the command line, which every user of the machine can read.
fn join_token(file: &Path, data: &Path) -> Result<Secret> {
    let text = match std::fs::read_to_string(file) {
        // It is needed only when this node is given up and another is to take its place.
        Err(_) if corro_agent::has_joined(data) => return Ok(Secret::new("")),
        read => read.with_context(|| {
            format!("cannot read the join token from {}: the server's operator hands out join tokens", file.display())
        })?,
    };
    match text.trim() {
        "" if corro_agent::has_joined(data) => Ok(Secret::new("")),
        "" => {
            bail!("the join token file {} is empty\n\nhint: ask the server's operator for a new token", file.display())
        }
        token => Ok(Secret::new(token)),
    }
}

fn farewell(end: &AgentEnd) -> String {
    match end {
        AgentEnd::Retired => "the server no longer needs this node: everything it left here is removed".to_owned(),
        AgentEnd::Fenced { reason } => {
            format!(
                "the server gave this node up ({reason}): its tasks are ended and its credential is removed. Start it again to join anew"
            )
        }
        AgentEnd::Stopped => "stopped; started again soon, it goes on as the same node".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_comes_from_the_file_until_the_node_has_joined() {
        let data = tempfile::tempdir().expect("a temporary directory");
        let file = data.path().join("token");
        assert!(join_token(&file, data.path()).is_err_and(|error| error.to_string().contains("cannot read")));
        std::fs::write(&file, "\n").expect("it can be written");
        assert!(join_token(&file, data.path()).is_err_and(|error| error.to_string().contains("is empty")));
        std::fs::write(&file, "t0ken\n").expect("it can be written");
        assert_eq!(join_token(&file, data.path()).expect("it is there"), Secret::new("t0ken"));
        std::fs::write(data.path().join("credential.json"), "{}").expect("it can be written");
        std::fs::remove_file(&file).expect("it is there");
        join_token(&file, data.path()).expect("a node that has joined needs no token");
    }
}
