//! `corro tutorial`: the whole tutorial on this machine, as a person would type it. Starts its own server and four nodes
//! in a temporary directory, shows each command and its output, streams the job, ends with the result, and cleans up.
//!
//! `lesson` is what is trained, `chapters` tells the story on a `stage`.

mod chapters;
mod lesson;
mod stage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;

use crate::error::CliError;
use lesson::Lesson;
use stage::{SERVER_LOG, Stage, say};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  corro tutorial --quick
  corro tutorial
  corro tutorial --full --data cifar-10-binary.tar.gz

The first takes half a minute, the second two minutes for a better model, the
third is the tutorial's own training on real images.")]
pub struct TutorialArgs {
    /// Train only a little: done within half a minute
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Train as the tutorial does, 100 epochs shared by four ranks on CIFAR-10: hours on few processors
    #[arg(long)]
    full: bool,

    /// CIFAR-10 for --full, as its archive or the directory in it
    #[arg(long, value_name = "PATH", requires = "full")]
    data: Option<PathBuf>,

    /// Leave the temporary directory and what was made in it behind
    #[arg(long)]
    keep: bool,
}

/// As a shell reports an end by Ctrl-C.
const INTERRUPTED: u8 = 130;

pub async fn run(args: TutorialArgs) -> Result<(), CliError> {
    let began = Instant::now();
    let lesson = Lesson::choose(args.quick, args.full, args.data)?;
    let stage = Arc::new(Stage::open()?);
    let teller = stage.clone();
    let telling = tokio::task::spawn_blocking(move || chapters::tell(&teller, &lesson));
    let told = tokio::select! {
        told = telling => told.map_err(|error| CliError::from_error(&error))?,
        asked = corro_hosting::signals::wait_for_shutdown_signal() => {
            asked?;
            // Commands that still run fail now, and the teller with them.
            stage.close();
            return Err(CliError::silent(INTERRUPTED));
        }
    };
    stage.close();
    if args.keep || told.as_ref().is_err_and(|failure| !failure.message.is_empty()) {
        let dir = stage.keep();
        told.map_err(|failure| failure.hint(format!("the server's log is {}", dir.join(SERVER_LOG).display())))?;
        say(&format!("\nEverything is left in {}", dir.display()))?;
    } else {
        told?;
    }
    let seconds = began.elapsed().as_secs_f32();
    say(&format!("\nDone in {seconds:.1} s. Your own server: 'corro up', then the same commands."))
}
