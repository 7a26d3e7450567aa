//! `corro agent join`: makes this machine a host of a server, once, and serves it as one from then on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use corro_agent::PortRange;
use corro_agent::host::{self, HostError, inventory};
use corro_model::Secret;
use corro_model::host::{Capacity, HostCredential, Inventory, JoinToken};

use super::place::{Place, plain_url};
use super::supervisor::{self, Plan};
use super::token::{hide_token, read_token, take_hidden};
use super::unit::{self, UnitKind};
use super::{IsolationArgs, NodeWords};
use crate::failure::Failure;
use crate::talk::{say, tell};

#[derive(Args, Debug)]
pub struct JoinArgs {
    /// Where the server listens [default: as the token says, or as it was when this machine joined]
    #[arg(value_name = "URL")]
    server: Option<String>,

    /// The token that 'corro host token' showed. Other users may see it for a moment in the list of processes: better use a file,
    /// standard input, or the variable CORRO_JOIN_TOKEN
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,

    /// A file that holds the token; '-' is standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// An open file that holds the token: how this program hands it to itself
    #[arg(long, value_name = "N", hide = true)]
    token_fd: Option<i32>,

    /// What the host is called [default: the machine's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// A word about the machine, for people and their scripts; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// How many cores nodes may have [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,

    /// How much memory nodes may have, in GiB [default: all]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..))]
    memory: Option<u32>,

    /// How many GPUs nodes may have, the first ones [default: all]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,

    /// Where the host keeps what it is, and its nodes what they work with [default: host/ in the configuration directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// The address at which other machines reach this one's nodes [default: the one by which it reaches the server]
    #[arg(long, value_name = "IP")]
    address: Option<String>,

    /// On which ports nodes and their ranks listen for others of their job, for example 20000-20100 [default: any that is free]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<PortRange>,

    #[command(flatten)]
    isolation: IsolationArgs,

    /// A directory that jobs must not see; the host's own one and this user's profile are always hidden
    #[arg(long, value_name = "DIR")]
    hide: Vec<PathBuf>,

    /// Mount shares over the network, even if this machine sees the server's data directory
    #[arg(long)]
    remote_shares: bool,

    /// Join, then print a systemd unit that runs the host, instead of running it
    #[arg(long, value_enum, value_name = "KIND", num_args = 0..=1, default_missing_value = "user")]
    systemd: Option<UnitKind>,

    /// Write the unit where systemd finds it, instead of printing it
    #[arg(long, requires = "systemd")]
    write: bool,

    #[command(flatten)]
    log: crate::logging::LogArgs,
}

pub async fn run(mut args: JoinArgs) -> Result<(), Failure> {
    hide_token(args.token.take())?;
    let hidden = args.token_fd.take().map(take_hidden).transpose()?;
    args.log.init();
    let root = match &args.data {
        Some(data) => data.clone(),
        None => corro_client::profile::config_dir()?.join("host"),
    };
    let lock = host::lock(&root).map_err(failure)?;
    let root = root.canonicalize().map_err(|error| Failure::new(format!("cannot use {}: {error}", root.display())))?;
    let stored = host::stored_credential(&root).map_err(failure)?;
    let found = look(&args);
    let (place, credential) = match stored {
        Some(credential) => (Place::recall(&root, args.server.as_deref())?, credential),
        None => join(&args, hidden, &root, &found).await?,
    };
    if let Some(kind) = args.systemd {
        drop(lock);
        return write_unit(&args, kind, &root);
    }
    let words = NodeWords {
        isolation: args.isolation.isolation,
        hidden: args.hide,
        remote_shares: args.remote_shares,
        ports: args.ports,
        gpus: args.gpus,
        log: args.log,
    };
    let plan = Plan { root, place, credential, inventory: found, address: args.address, words };
    let ended = supervisor::run(plan).await;
    drop(lock);
    ended
}

async fn join(
    args: &JoinArgs,
    hidden: Option<Secret>,
    root: &Path,
    found: &Inventory,
) -> Result<(Place, HostCredential), Failure> {
    let token = hidden.map_or_else(|| read_token(args.token_file.as_deref()), Ok)?;
    let Some(token) = JoinToken::decode(token.expose()) else {
        return Err(Failure::usage("the join token cannot be read: it begins with 'corro-join-' and is one long word")
            .hint("copy it whole from what 'corro host token' showed, or make a new one"));
    };
    let server = plain_url(args.server.as_deref().unwrap_or(&token.server))?;
    let place = Place { server, fingerprint: token.ca_fingerprint };
    let name = args.name.clone().unwrap_or_else(inventory::machine_name);
    host::check_name(&name).map_err(|error| {
        Failure::usage(format!("--name: {}", error.message)).hint("choose a name with --name, for example gpu-1")
    })?;
    let trust = place.trust()?;
    let asked = host::join(root, (&place.server, &trust), token.secret, name, found.clone());
    let credential = asked.await.map_err(failure)?;
    place.keep(root)?;
    say(format_args!("joined {} as host {} with {}", place.server, credential.name, found.capacity()));
    Ok((place, credential))
}

fn look(args: &JoinArgs) -> Inventory {
    let labels: BTreeMap<String, String> = args.labels.iter().cloned().collect();
    let own = inventory::find(labels, None);
    let all = own.capacity();
    let offered = Capacity {
        cores: args.cores.unwrap_or(all.cores),
        memory_bytes: args.memory.map_or(all.memory_bytes, |gib| u64::from(gib) << 30),
        gpus: args.gpus.unwrap_or(all.gpus),
    };
    if offered.gpus > all.gpus {
        say(format_args!("note: --gpus {} offers more than the {} that were found here", offered.gpus, all.gpus));
    }
    Inventory { offered: (offered != all).then_some(offered), ..own }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write a label as KEY=VALUE, for example rack=a1".to_owned()),
    }
}

fn write_unit(args: &JoinArgs, kind: UnitKind, root: &Path) -> Result<(), Failure> {
    let mut words: Vec<OsString> = vec!["--data".into(), root.into()];
    let mut option =
        |name: &str, value: Option<OsString>| words.extend(value.into_iter().flat_map(|v| [name.into(), v]));
    option("--cores", args.cores.map(|n| n.to_string().into()));
    option("--memory", args.memory.map(|n| n.to_string().into()));
    option("--gpus", args.gpus.map(|n| n.to_string().into()));
    option("--address", args.address.as_ref().map(Into::into));
    option("--ports", args.ports.map(|ports| ports.to_string().into()));
    option("--isolation", args.isolation.isolation.map(|mode| mode.word().into()));
    args.labels.iter().for_each(|(key, value)| option("--label", Some(format!("{key}={value}").into())));
    args.hide.iter().for_each(|dir| option("--hide", Some(dir.into())));
    if args.remote_shares {
        words.push("--remote-shares".into());
    }
    let text = unit::text(kind, &unit::program()?, &words)?;
    if !args.write {
        tell(text.trim_end());
        return Ok(());
    }
    let path = unit::write(kind, &text)?;
    say(format_args!(
        "wrote {}. To start the host now and whenever the machine starts:\n  {}",
        path.display(),
        kind.enable()
    ));
    Ok(())
}

pub fn failure(error: HostError) -> Failure {
    let hint = match &error {
        HostError::Untrusted { .. } => Some(
            "somebody else may answer there, or the server has a new authority: make a new token with 'corro host token'",
        ),
        HostError::Unreachable { .. } => {
            Some("does the server run, and may this machine reach it? Only outbound connections are needed")
        }
        _ => None,
    };
    let failure = Failure::of(&error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked() {
        assert_eq!(label("rack=a=1"), Ok(("rack".to_owned(), "a=1".to_owned())));
        assert!(label("rack").is_err() && label("=x").is_err());
    }
}
