//! `corro server`: the server alone. Its nodes are machines that join with `corro agent` and the join token, or made by
//! whoever `--provider` names.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::Args;
use corro_model::Secret;

use crate::commands::agent::IsolationArg;
use crate::failure::Failure;
use crate::hosting::providers::{ProviderArg, ProviderArgs, kubernetes};
use crate::hosting::{self, Hosted, HostingArgs, Nodes, way_back};

#[derive(Args, Debug)]
pub struct ServerArgs {
    #[command(flatten)]
    hosting: HostingArgs,

    #[command(flatten)]
    nodes: ProviderArgs,
}

pub async fn run(args: ServerArgs) -> Result<(), Failure> {
    args.hosting.log.init();
    hosting::check(&args.hosting)?;
    args.nodes.check()?;
    if args.hosting.isolation.isolation == Some(IsolationArg::Off) {
        let message = "--isolation off is chosen on the machine where jobs run: use it with 'corro agent' there";
        return Err(Failure::usage(message).hint("--isolation auto lets jobs run that cannot be isolated"));
    }
    let Some(data) = way_back::hold(&args.hosting)? else { return Ok(()) };
    let token_path = data.path().join("join-token");
    let nodes = match args.nodes.provider {
        ProviderArg::Joined => Nodes::Joining(join_token(&token_path)?),
        ProviderArg::Slurm => {
            let search = std::env::var("PATH").unwrap_or_default();
            Nodes::Slurm(args.nodes.slurm.wishes(&search)?)
        }
        ProviderArg::Kubernetes => {
            Nodes::Kubernetes(Box::new(kubernetes::Prepared::new(&args.nodes.kubernetes, &args.hosting)?))
        }
    };
    let stop = hosting::stop_asked();
    tokio::pin!(stop);
    let hosted = tokio::select! {
        hosted = hosting::start(&args.hosting, nodes, data) => hosted?,
        asked = &mut stop => return asked,
    };
    greet(&hosted, args.nodes.provider, &token_path);
    stop.await?;
    hosted.server.stop().await;
    let _ =
        writeln!(io::stderr(), "\nStopped. Nodes and their jobs go on and are found again by the next 'corro server'.");
    Ok(())
}

fn greet(hosted: &Hosted, provider: ProviderArg, token_path: &Path) {
    let mut out = io::stdout().lock();
    let (version, url) = (env!("CARGO_PKG_VERSION"), hosted.url());
    let _ = writeln!(out, "Corro {version} listens on {url}");
    let _ = writeln!(out, "{}", hosted.describe());
    let trust = hosted.vouched.as_ref().map_or_else(String::new, |v| format!(" --ca-fingerprint {}", v.fingerprint));
    let token_path = token_path.display();
    let _ = match provider {
        ProviderArg::Joined => writeln!(
            out,
            "\nAdd a node: corro agent --server {url}{trust} --data DIR --join-token-file {token_path}\n\
             Add a machine that carries as many nodes as fit: 'corro host token' shows the command for it"
        ),
        ProviderArg::Slurm => writeln!(out, "\nNodes are Slurm allocations, whose agents look for the server at {url}"),
        ProviderArg::Kubernetes => writeln!(out, "\nNodes are pods"),
    };
    let _ = out.flush();
}

/// The token that lets machines join; made on the first start, mode 0600.
fn join_token(path: &Path) -> Result<Secret, Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot read or create {}: {error}", path.display()));
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(Secret::new(text.trim())),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let token = corro_server::new_join_token();
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{}", token.expose()).map_err(failed)?;
    Ok(token)
}
