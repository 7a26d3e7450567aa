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
mod terminal_filter;
mod whole_file;

use std::process::ExitCode;

use args::TopCommand;
use failure::Failure;

/// A request of the file service makes a hundred small allocations, a fifth of its time with the C library's allocator, which moreover keeps what
/// each thread once needed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|command| command == "guard") {
        // The parent of the small parents of ranks; it must begin while there is one thread.
        corro_launch::guard::run();
    }
    if arguments.get(1).is_some_and(|command| command == corro_agent::container::exec_relay::SUBCOMMAND) {
        // A job's process in its container; it needs nothing of the below.
        return corro_agent::container::exec_relay::run(&arguments[2..]);
    }
    if let Some(code) =
        arguments.get(1).and_then(|word| commands::mount::hidden(word, arguments.get(2).map(|w| w.as_os_str())))
    {
        return ExitCode::from(code);
    }
    if let Some(words) = remote_start(&arguments) {
        return start_remotely(words);
    }
    let (cli, path) = args::parse(arguments);
    corro_client::on_warning(|text| {
        progress::clear_line();
        talk::say(format_args!("warning: {text}"));
    });
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

/// The words for the helper that a job's processes find as `ssh`, if this is it.
fn remote_start(arguments: &[std::ffi::OsString]) -> Option<Vec<String>> {
    let is_ssh_shim = arguments.first().is_some_and(|name| corro_agent::ssh_shim::is_invoked_as_ssh(name.as_ref()));
    let skipped = match arguments.get(1) {
        _ if is_ssh_shim => 1,
        Some(command) if command == "remote-start" => 2,
        _ => return None,
    };
    Some(arguments.iter().skip(skipped).map(|word| word.to_string_lossy().into_owned()).collect())
}

fn start_remotely(words: Vec<String>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        // A read of its input that nobody will answer must not hold it up.
        Ok(runtime) => std::process::exit(runtime.block_on(corro_agent::ssh_shim::run(words))),
        Err(error) => {
            eprintln!("corro remote-start: {error}");
            ExitCode::from(255)
        }
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
        TopCommand::Dashboard(args) => commands::dashboard::run(args).await.map(done),
        TopCommand::Cloud(args) => commands::cloud::run(args).await.map(done),
        TopCommand::Up(args) => commands::up::run(args).await.map(done),
        TopCommand::Server(args) => commands::server::run(*args).await.map(done),
        TopCommand::Files(args) => commands::files::run(args).await.map(done),
        TopCommand::Mount(args) => commands::mount::mount(*args).await.map(done),
        TopCommand::Unmount(args) => commands::mount::unmount(args).map(done),
        TopCommand::Agent(args) => commands::agent::run(*args).await.map(done),
        TopCommand::Host(args) => commands::host::run(args).await.map(done),
        TopCommand::Admin(args) => commands::admin::run(args).await.map(done),
        TopCommand::Train(args) => commands::train::run(args).map(done),
        TopCommand::Tutorial(args) => commands::tutorial::run(args).await.map(done),
        TopCommand::Job(args) => commands::job::run(args).await,
        TopCommand::Node(args) => commands::node::run(args).await.map(done),
        TopCommand::Top(args) => commands::top::run(args).await.map(done),
        TopCommand::Events(args) => commands::events::run(args).await.map(done),
        TopCommand::Usage(args) => commands::usage::run(args).await.map(done),
        TopCommand::Doctor(args) => commands::doctor::run(args).await.map(done),
        TopCommand::Completion(args) => commands::completion::run(args, args::for_completion()).map(done),
        TopCommand::Run(args) => Ok(commands::run::run(args).await?),
    }
}
