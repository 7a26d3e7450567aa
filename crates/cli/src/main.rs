//! The one program, `corro`: reads the command line, hands over to a command, and turns its end into an exit code.
//!
//! Reading order: `args` (which commands there are), `commands`, `session` (what client commands share), `output` (what
//! they print), `failure` (what they say when they cannot).

mod args;
mod commands;
mod failure;
mod hosting;
mod logging;
mod output;
mod progress;
mod prompt;
mod session;
mod ssh_keys;
mod talk;
mod whole_file;

use std::process::ExitCode;

use args::TopCommand;
use failure::Failure;

fn main() -> ExitCode {
    few_arenas();
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|command| command == "guard") {
        // The parent of the small parents of ranks; it must begin while there is one thread.
        corro_launch::guard::run();
    }
    let (cli, path) = args::parse(arguments);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            Failure { causes: vec![error.to_string()], ..Failure::new("cannot start") }.report();
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(dispatch(cli.command)) {
        Ok(code) => code,
        Err(failure) => {
            failure.report();
            if !failure.needs.is_empty() {
                talk::say(path.usage(&failure.needs));
            }
            ExitCode::from(failure.exit)
        }
    }
}

/// The C library gives every thread a heap of its own and keeps what each once needed: after large transfers a server
/// would hold twice the memory it uses (61 MB against 27 MB, measured after 1 GiB up and down). Two heaps are enough.
fn few_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a setting of the allocator, made before there is a second thread; it touches no memory of ours.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

async fn dispatch(command: TopCommand) -> Result<ExitCode, Failure> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        TopCommand::Group(args) => commands::group::run(args).await.map(done),
        TopCommand::Batchai(args) => commands::batchai::run(args).await.map(done),
        TopCommand::Storage(args) => commands::storage::run(args).await.map(done),
        TopCommand::Ad(args) => commands::ad::run(args).await.map(done),
        TopCommand::Login(args) => commands::login::login(args).await.map(done),
        TopCommand::Logout => commands::login::logout().map(done),
        TopCommand::Account(args) => commands::login::account(args).await.map(done),
        TopCommand::Cloud(args) => commands::cloud::run(args).await.map(done),
        TopCommand::Up(args) => commands::up::run(args).await.map(done),
        TopCommand::Server(args) => commands::server::run(args).await.map(done),
        TopCommand::Files(args) => commands::files::run(args).await.map(done),
        TopCommand::Agent(args) => Ok(commands::agent::run(args).await.map(done)?),
        TopCommand::Admin(args) => commands::upkeep::run(args).await.map(done),
        TopCommand::Train(args) => commands::train::run(args).map(done),
        TopCommand::Tutorial(args) => commands::tutorial::run(args).await.map(done),
        TopCommand::Job(args) => commands::job_why::run(args).await.map(done),
        TopCommand::Doctor(args) => commands::doctor::run(args).map(done),
        TopCommand::Completion(args) => commands::completion::run(args, args::for_completion()).map(done),
        TopCommand::Run(args) => Ok(commands::run::run(args).await?),
    }
}
