//! `corro up`: everything in one process and its nodes beside it. Starts, says where it listens, ends on Ctrl-C.

use std::io::{self, Write};
use std::time::Instant;

use clap::Args;

use crate::failure::Failure;
use crate::hosting::{self, Hosted, HostingArgs, Nodes, way_back};

#[derive(Args, Debug)]
pub struct UpArgs {
    #[command(flatten)]
    hosting: HostingArgs,
}

pub async fn run(args: UpArgs) -> Result<(), Failure> {
    let began = Instant::now();
    args.hosting.log.init();
    hosting::check(&args.hosting)?;
    let Some(data) = way_back::hold(&args.hosting)? else { return Ok(()) };
    // A signal during the start ends it: until the server is there, nothing runs outside this process.
    let stop = hosting::stop_asked();
    tokio::pin!(stop);
    let hosted = tokio::select! {
        hosted = hosting::start(&args.hosting, Nodes::Local, data) => hosted?,
        asked = &mut stop => return asked,
    };
    greet(&hosted, began);
    stop.await?;
    let _ = writeln!(io::stderr(), "\nStopping the nodes …");
    let Hosted { server, .. } = hosted;
    let stopped = tokio::select! {
        stopped = server.stop_with_nodes() => stopped.map_err(|error| Failure::of(error.as_ref()))?,
        asked = hosting::stop_asked() => {
            asked?;
            return Err(Failure { exit: 130, ..Failure::new("stopped at once: nodes may still run") }
                .hint("the next 'corro up' on the same directory finds them or removes what is left"));
        }
    };
    let _ = match stopped.requeued {
        0 => writeln!(io::stderr(), "Stopped."),
        1 => writeln!(
            io::stderr(),
            "Stopped. One running job went back to the queue: it starts again with the next 'corro up'."
        ),
        n => writeln!(
            io::stderr(),
            "Stopped. {n} running jobs went back to the queue: they start again with the next 'corro up'."
        ),
    };
    if !stopped.left.is_empty() {
        let nodes = stopped.left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(format!("these nodes could not be ended: {nodes}")));
    }
    Ok(())
}

/// Whoever reads this may have gone away; the server stays.
fn greet(hosted: &Hosted, began: Instant) {
    let mut out = io::stdout().lock();
    let version = env!("CARGO_PKG_VERSION");
    let (url, took) = (hosted.url(), began.elapsed().as_millis());
    let _ = writeln!(out, "Corro {version} listens on {url} (ready in {took} ms)");
    let _ = writeln!(out, "  pages    {url}/ui/ ('corro dashboard --open' logs in and shows them)");
    let _ = writeln!(out, "{}", hosted.describe());
    let _ =
        writeln!(out, "\nTry 'corro group create --name demo --location eastus' in another terminal. Ctrl-C stops.");
    let _ = out.flush();
}
