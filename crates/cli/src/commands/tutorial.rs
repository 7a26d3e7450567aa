//! `corro tutorial`: runs the whole tutorial on this machine. Starts its own server and four nodes in a temporary directory, prints each command and
//! its output, streams the job, prints the result, and cleans up.
//!
//! [`training_plan`] is what is trained, [`chapters`] are the steps, [`sandbox`] runs the commands.

mod chapters;
mod sandbox;
mod training_plan;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;

use crate::error::CliError;
use sandbox::{SERVER_LOG, Sandbox, print_line};
use training_plan::TrainingPlan;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro tutorial --quick
  corro tutorial
  corro tutorial --full --data cifar-10-binary.tar.gz

The first example takes half a minute. The second takes two minutes and trains a
better model. The third is the original training of the tutorial, on real images.")]
pub struct TutorialArgs {
    /// Train a small model in half a minute
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Train as the tutorial does: 100 epochs on CIFAR-10, shared by four ranks. It takes hours on few processors
    #[arg(long)]
    full: bool,

    /// The CIFAR-10 archive for --full, or its unpacked directory
    #[arg(long, value_name = "PATH", requires = "full")]
    data: Option<PathBuf>,

    /// Keep the temporary directory at the end
    #[arg(long)]
    keep: bool,
}

/// Exit code after Ctrl-C, as a shell reports it.
const INTERRUPTED: u8 = 130;

pub async fn run(args: TutorialArgs) -> Result<(), CliError> {
    let began = Instant::now();
    let plan = TrainingPlan::choose(args.quick, args.full, args.data)?;
    let sandbox = Arc::new(Sandbox::open()?);
    let runner = sandbox.clone();
    let running = tokio::task::spawn_blocking(move || chapters::run(&runner, &plan));
    let result = tokio::select! {
        result = running => result.map_err(|error| CliError::from_error(&error))?,
        signal = corro_hosting::signals::wait_for_shutdown_signal() => {
            signal?;
            // The running command fails now, and with it the thread of the chapters.
            sandbox.close();
            return Err(CliError::silent(INTERRUPTED));
        }
    };
    sandbox.close();
    if args.keep || result.as_ref().is_err_and(|error| !error.message.is_empty()) {
        let dir = sandbox.keep();
        result.map_err(|error| error.hint(format!("the server's log is {}", dir.join(SERVER_LOG).display())))?;
        print_line(&format!("\nAll files are kept in {}", dir.display()))?;
    } else {
        result?;
    }
    let seconds = began.elapsed().as_secs_f32();
    print_line(&format!("\nDone in {seconds:.1} s. Your own server: 'corro up', then the same commands."))
}
