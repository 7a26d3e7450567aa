//! The program `corro`: parses the command line, runs a command, and turns its result into an exit code.
//!
//! Reading order: [`args`] (the tree of commands), [`commands`], [`resource`] and [`session`] (what client commands share), [`output`] (printing of
//! results), [`error`].

mod args;
mod background_server;
mod commands;
mod completion;
mod config_file;
#[allow(dead_code)] // The options of submissions have no reader yet.
mod defaults;
mod error;
mod ini_edit;
mod job_follow;
mod job_notes;
mod job_watch;
mod local_port;
mod node_ssh;
mod output;
mod program_name;
mod progress;
mod project_upload;
mod prompt;
mod resource;
mod retry;
mod session;
mod ssh_keys;
mod stdio;
mod terminal;
mod terminal_filter;
mod text_file;
mod webhook_options;

use std::process::ExitCode;

use args::TopCommand;
use error::CliError;

/// A request of the file service makes about a hundred small allocations. They take a fifth of its time with the C library's allocator, which also
/// retains the peak memory of each thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|command| command == "guard") {
        // The fork server of guard processes. It must start while the process has one thread.
        corro_launch::guard::run();
    }
    if arguments.get(1).is_some_and(|command| command == corro_agent::container::exec_relay::SUBCOMMAND) {
        // Runs a command of a job inside its container; needs no command line parser and no runtime.
        return corro_agent::container::exec_relay::run(&arguments[2..]);
    }
    if let Some(code) =
        arguments.get(1).and_then(|word| commands::mount::run_internal(word, arguments.get(2).map(|w| w.as_os_str())))
    {
        return ExitCode::from(code);
    }
    if arguments.get(1).is_some_and(|command| command == commands::doctor::gpu::self_test::SUBCOMMAND) {
        // Loads the libraries of GPUs, which may crash or hang.
        return ExitCode::from(commands::doctor::gpu::self_test::run(&arguments[2..]));
    }
    if let Some(arguments) = ssh_shim_arguments(&arguments) {
        return run_ssh_shim(arguments);
    }
    if arguments.get(1).is_some_and(|command| command == completion::SUBCOMMAND) {
        return completion::run(&arguments[2..]);
    }
    let (cli, path) = args::parse(arguments);
    corro_client::on_warning(|text| {
        progress::clear_line();
        stdio::note(format_args!("warning: {text}"));
    });
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            CliError::new("cannot start").cause(error).report();
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(dispatch(cli.command)) {
        Ok(code) => code,
        Err(error) => {
            error.report();
            if !error.usage_flags.is_empty() {
                stdio::note(path.usage(&error.usage_flags));
            }
            ExitCode::from(error.exit)
        }
    }
}

/// Arguments of the ssh shim, which jobs find as `ssh` in their PATH; `None` if this is not the shim.
fn ssh_shim_arguments(arguments: &[std::ffi::OsString]) -> Option<Vec<String>> {
    let is_shim = arguments.first().is_some_and(|name| corro_agent::ssh_shim::is_invoked_as_ssh(name.as_ref()));
    let n_skipped = match arguments.get(1) {
        _ if is_shim => 1,
        Some(command) if command == "remote-start" => 2,
        _ => return None,
    };
    Some(arguments.iter().skip(n_skipped).map(|argument| argument.to_string_lossy().into_owned()).collect())
}

fn run_ssh_shim(arguments: Vec<String>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        // Exit at once: a blocked read of standard input must not delay the end.
        Ok(runtime) => std::process::exit(runtime.block_on(corro_agent::ssh_shim::run(arguments))),
        Err(error) => {
            eprintln!("corro remote-start: {error}");
            ExitCode::from(255)
        }
    }
}

async fn dispatch(command: TopCommand) -> Result<ExitCode, CliError> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        TopCommand::Group(args) => commands::group::run(args).await.map(done),
        TopCommand::Batchai(args) => commands::batchai::run(args).await.map(done),
        TopCommand::Storage(args) => commands::storage::run(args).await.map(done),
        TopCommand::Ad(args) => commands::ad::run(args).await.map(done),
        TopCommand::Login(args) => commands::login::run(args).await.map(done),
        TopCommand::Logout => commands::logout::run().map(done),
        TopCommand::Account(args) => commands::account::run(args).await.map(done),
        TopCommand::Dashboard(args) => commands::dashboard::run(args).await.map(done),
        TopCommand::Cloud(args) => commands::cloud::run(args).await.map(done),
        TopCommand::Configure(args) => commands::configure::run(args).map(done),
        TopCommand::Up(args) => commands::up::run(args).await.map(done),
        TopCommand::Status(args) => commands::status::run(args).await.map(done),
        TopCommand::Stop(args) => commands::stop::run(args).await.map(done),
        TopCommand::Server(args) => commands::server::run(*args).await.map(done),
        TopCommand::Files(args) => commands::files::run(args).await.map(done),
        TopCommand::Mount(args) => commands::mount::run(*args).await.map(done),
        TopCommand::Unmount(args) => commands::unmount::run(args).map(done),
        TopCommand::Agent(args) => commands::agent::run(*args).await.map(done),
        TopCommand::Host(args) => commands::host::run(args).await.map(done),
        TopCommand::Admin(args) => commands::admin::run(args).await.map(done),
        TopCommand::Submit(args) => commands::submit::run(*args).await.map(done),
        TopCommand::Sweep(args) => commands::sweep::run(*args).await.map(done),
        TopCommand::Fetch(args) => commands::fetch::run(args).await.map(done),
        TopCommand::Notebook(args) => commands::notebook::run(*args).await.map(done),
        TopCommand::Tensorboard(args) => commands::tensorboard::run(args).await,
        TopCommand::Train(args) => commands::train::run(args).map(done),
        TopCommand::Tutorial(args) => commands::tutorial::run(args).await.map(done),
        TopCommand::Job(args) => commands::job::run(args).await,
        TopCommand::Cluster(args) => commands::cluster::run(args).await.map(done),
        TopCommand::Share(args) => commands::share::run(args).await.map(done),
        TopCommand::Init(args) => commands::init::run(&args).map(done),
        TopCommand::Schema(args) => commands::schema::run(&args).map(done),
        TopCommand::Node(args) => commands::node::run(args).await.map(done),
        TopCommand::Top(args) => commands::top::run(args).await.map(done),
        TopCommand::Events(args) => commands::events::run(args).await.map(done),
        TopCommand::Usage(args) => commands::usage::run(args).await.map(done),
        TopCommand::Doctor(args) => commands::doctor::run(args).await.map(done),
        TopCommand::Docs(args) => commands::docs::run(args).map(done),
        TopCommand::Completion(args) => commands::completion::run(&args).map(done),
        TopCommand::Reference(args) => commands::reference::run(args, args::completion_command()).map(done),
        TopCommand::Run(args) => Ok(commands::run::run(args).await?),
    }
}
