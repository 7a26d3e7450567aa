//! The command line: the top-level commands, the help of the program, and its behaviour under the name `az`. Arguments of a command are defined in the
//! command's own file.

mod command_tips;

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    account, ad, admin, agent, batchai, cloud, cluster, completion, configure, dashboard, docs, doctor, events, fetch,
    files, group, host, init, job, login, mount, node, notebook, reference, run, schema, server, share, status, stop,
    storage, submit, sweep, tensorboard, top, train, tutorial, unmount, up, usage,
};
use crate::program_name::program_name;

/// Train models on your own machines: a self-hosted Azure Batch AI with its own Horovod
#[derive(Parser, Debug)]
#[command(name = "corro", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: TopCommand,
}

/// The top-level commands. Help lists them in the order of [`SECTIONS`].
#[derive(Subcommand, Debug)]
pub enum TopCommand {
    /// Manage resource groups, which hold all resources of a project
    Group(group::GroupArgs),
    /// Manage Batch AI workspaces, experiments, clusters and jobs
    Batchai(batchai::BatchaiArgs),
    /// Manage storage accounts, file shares, blob containers and their files
    Storage(storage::StorageArgs),
    /// Manage service principals: logins for users and programs
    Ad(ad::AdArgs),
    /// Log in to a server
    Login(login::LoginArgs),
    /// Log out: remove the stored login from this machine
    Logout,
    /// Show the subscription and who is logged in
    Account(account::AccountArgs),
    /// Configure the Azure CLI (az) to use this server
    Cloud(cloud::CloudArgs),
    /// Set or list the default group, workspace and other names that commands use
    Configure(configure::ConfigureArgs),
    /// Start a server that runs its nodes on this machine
    Up(up::UpArgs),
    /// Show the server that commands use: address, version, nodes and jobs
    Status(status::StatusArgs),
    /// Stop the server on this machine; running jobs go back to the queue
    Stop(stop::StopArgs),
    /// Start a server whose nodes are joined machines, Slurm allocations or Kubernetes pods
    Server(Box<server::ServerArgs>),
    /// Serve a directory as Azure Files, without clusters and jobs
    Files(files::FilesArgs),
    /// Mount a file share as a local directory
    Mount(Box<mount::MountArgs>),
    /// Unmount a file share, or list all mounts
    Unmount(unmount::UnmountArgs),
    /// Run a node on this machine, or join this machine to a server
    Agent(Box<agent::AgentArgs>),
    /// Manage the machines that have joined a server
    Host(host::HostArgs),
    /// Run a script on a cluster: send this directory, submit a job and follow its output
    Submit(Box<submit::SubmitArgs>),
    /// Run a script with many combinations of parameters, and find the best
    Sweep(Box<sweep::SweepArgs>),
    /// Download what a submitted job has written
    Fetch(fetch::FetchArgs),
    /// Run Jupyter in a job, and reach it in a browser of this machine
    Notebook(Box<notebook::NotebookArgs>),
    /// Start TensorBoard on the event files of a job or an experiment
    Tensorboard(tensorboard::TensorboardArgs),
    /// Run a command as several processes (ranks) on this machine, without a server
    Run(run::RunArgs),
    /// Train the network of the tutorial, alone or as one of several ranks
    Train(train::TrainArgs),
    /// Write a job file and a script to start from
    Init(init::InitArgs),
    /// Print the JSON Schema of job files
    Schema(schema::SchemaArgs),
    /// Run the whole tutorial on this machine, from the cluster to the trained model
    Tutorial(tutorial::TutorialArgs),
    /// List, follow, stop, fetch and explain jobs
    Job(job::JobArgs),
    /// List, create, resize and delete clusters
    Cluster(cluster::ClusterArgs),
    /// List, create and browse file shares, and copy files to and from them
    Share(share::ShareArgs),
    /// Print a login link to the dashboard, or open it in a browser
    Dashboard(dashboard::DashboardArgs),
    /// List the nodes of all clusters, or preempt one
    Node(node::NodesArgs),
    /// Show clusters, nodes, queue and jobs, updated live
    Top(top::TopArgs),
    /// Print changes on the server, one JSON object per line
    Events(events::EventsArgs),
    /// Show node-hours by user, experiment, cluster or job
    Usage(usage::UsageArgs),
    /// Back up, restore and check the data of a server, and show its history
    Admin(admin::AdminArgs),
    /// Check whether this machine can run Corro and isolate jobs
    Doctor(doctor::DoctorArgs),
    /// Print a page of the documentation, or list the pages
    Docs(docs::DocsArgs),
    /// Print a completion script for bash, zsh or fish
    #[command(
        after_help = "Examples:\n  source <(corro completion bash)\n  corro completion zsh > ~/.zfunc/_corro\n  corro completion fish > ~/.config/fish/completions/corro.fish"
    )]
    Completion(completion::CompletionArgs),
    /// Describe the command line for the documentation and for packages
    #[command(hide = true)]
    Reference(reference::ReferenceArgs),
}

const SECTIONS: [(&str, &[&str]); 2] = [
    (
        "Azure-compatible commands",
        &["group", "batchai", "storage", "ad", "login", "logout", "account", "cloud", "configure"],
    ),
    (
        "Corro commands",
        &[
            "submit",
            "sweep",
            "fetch",
            "notebook",
            "up",
            "status",
            "stop",
            "server",
            "files",
            "mount",
            "unmount",
            "agent",
            "host",
            "run",
            "train",
            "init",
            "job",
            "cluster",
            "share",
            "schema",
            "node",
            "dashboard",
            "tensorboard",
            "top",
            "events",
            "usage",
            "admin",
            "tutorial",
            "doctor",
            "docs",
            "completion",
        ],
    ),
];

const HELP_FOOTER: &str = "Run 'corro COMMAND --help' for more information about a command.";

/// Parses the command line. Exits with help (0) or a usage error (2) if there is nothing to run.
pub fn parse(arguments: Vec<OsString>) -> (Cli, CommandPath) {
    let (command, arguments) = (command(program_name()), with_horovod_spelling(arguments));
    let parsed = command.clone().try_get_matches_from(&arguments);
    let matches = parsed.unwrap_or_else(|error| command_tips::add_tip(error, &command, &arguments).exit());
    (from_matches(&matches), CommandPath::from_matches(&matches))
}

/// The path of the called command, for example `batchai`, `cluster`, `show`.
pub struct CommandPath(Vec<String>);

impl CommandPath {
    fn from_matches(matches: &ArgMatches) -> CommandPath {
        let mut path = Vec::new();
        let mut matches = matches;
        while let Some((name, below)) = matches.subcommand() {
            path.push(name.to_owned());
            matches = below;
        }
        CommandPath(path)
    }

    /// The usage line after an error about missing arguments, in clap's format. `required` are flags such as `--name/-n`.
    pub fn usage(&self, required: &[&str]) -> String {
        self.usage_of(command(program_name()), required)
    }

    fn usage_of(&self, mut command: Command, required: &[&str]) -> String {
        command.build();
        let mut called = &mut command;
        for name in &self.0 {
            called = called.find_subcommand_mut(name).expect("the parser found it");
        }
        let is_required =
            |argument: &Arg| argument.get_long().is_some_and(|long| long_names(required).any(|name| name == long));
        let usage = usage_with_required(called.clone().override_usage(Resettable::Reset), is_required);
        format!("\n{usage}\n\nFor more information, try '--help'.")
    }
}

/// The usage line of a command if all arguments that match `is_required` were required.
fn usage_with_required(command: Command, is_required: impl Fn(&Arg) -> bool) -> String {
    let mut command = command.mut_args(|argument| match is_required(&argument) {
        true => argument.required(true),
        false => argument,
    });
    command.render_usage().to_string()
}

/// Arguments that name a resource. clap does not require them: the group has a default, and commands report missing names as `az` does.
const RESOURCE_NAMES: [&str; 6] = ["resource_group", "workspace", "experiment", "cluster", "job", "name"];

/// Shows the names of the resource as required in the usage of each command of `az` that works on one resource inside a workspace. Commands
/// that also take `--ids` need no names, and the short commands look names up.
fn with_names_in_usage(command: Command, path: &str) -> Command {
    let has = |id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
    if !has("workspace") || has("ids") {
        return command.mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            with_names_in_usage(below, &path)
        });
    }
    let is_required = |argument: &Arg| RESOURCE_NAMES.contains(&argument.get_id().as_str());
    let usage = usage_with_required(command.clone().bin_name(path), is_required);
    let arguments = usage.strip_prefix(&format!("Usage: {path}")).unwrap_or_default().replacen(" [OPTIONS]", "", 1);
    command.override_usage(format!("{path} [OPTIONS]{arguments}"))
}

/// The long names of flags such as `--name/-n`.
fn long_names<'a>(flags: &'a [&str]) -> impl Iterator<Item = &'a str> {
    flags.iter().filter_map(|flag| flag.strip_prefix("--")).map(|flag| flag.split('/').next().unwrap_or(flag))
}

fn from_matches(matches: &ArgMatches) -> Cli {
    Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// The command tree for shell completion, without hidden commands and arguments.
pub fn completion_command() -> Command {
    let name = program_name();
    without_hidden(&command(name)).bin_name(name).version(env!("CARGO_PKG_VERSION"))
}

fn without_hidden(command: &Command) -> Command {
    // clap requires static names. The leak is small, and the process ends after the script is written.
    let name: &'static str = Box::leak(command.get_name().to_owned().into_boxed_str());
    let copy = Command::new(name).disable_help_subcommand(true);
    let about = command.get_about().cloned().unwrap_or_default();
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let copy = copy.about(about).args(arguments).subcommands(subcommands.map(without_hidden));
    let copy = command.get_long_about().cloned().into_iter().fold(copy, Command::long_about);
    command.get_after_help().cloned().into_iter().fold(copy, Command::after_help)
}

fn command(name: &'static str) -> Command {
    let command = Cli::command().name(name).bin_name(name);
    let help = grouped_help(&command).replace("corro COMMAND", &format!("{name} COMMAND"));
    let command = command
        .help_template(help)
        .mut_subcommand("batchai", |batchai| with_names_in_usage(batchai, &format!("{name} batchai")));
    if name == "az" { renamed_to_az(command).display_name("azure-cli").version(AZ_VERSION) } else { command }
}

/// Output of `az --version`, for scripts that check the version.
const AZ_VERSION: &str = concat!(
    "(2.0.38)\n\nThis is Corro ",
    env!("CARGO_PKG_VERSION"),
    ", called as az: it has the commands of that version for groups, Batch AI and storage."
);

/// Replaces `corro` by `az` in all examples and help texts.
fn renamed_to_az(command: Command) -> Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(help) => command.after_help(help.replace("corro ", "az ")),
        None => command,
    };
    let command = command.mut_args(|argument| match argument.get_help().map(ToString::to_string) {
        Some(help) if help.contains("'corro ") => argument.help(help.replace("'corro ", "'az ")),
        _ => argument,
    });
    command.mut_subcommands(renamed_to_az)
}

/// Help template with the commands by section. A test checks that every command has a section.
fn grouped_help(command: &Command) -> String {
    let mut help = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in SECTIONS {
        help.push_str(&format!("\n{title}:\n"));
        let present = names.iter().filter_map(|name| command.find_subcommand(name));
        for subcommand in present {
            let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
            help.push_str(&format!("  {:<12}{about}\n", subcommand.get_name()));
        }
    }
    help.push_str(&format!("\nOptions:\n{{options}}\n\n{HELP_FOOTER}\n"));
    help
}

/// Options of `corro run` that take a value.
const RUN_OPTIONS_WITH_VALUE: [&str; 16] = [
    "-n",
    "--np",
    "--num-proc",
    "-H",
    "--hosts",
    "--hostfile",
    "--output-filename",
    "--compat",
    "--min-np",
    "--min-num-proc",
    "--max-np",
    "--max-num-proc",
    "--host-discovery-script",
    "--slots-per-host",
    "--elastic-timeout",
    "--reset-limit",
];

/// Options of `corro run` that take two values.
const RUN_OPTIONS_WITH_TWO_VALUES: [&str; 1] = ["--blacklist-cooldown-range"];

/// Rewrites horovodrun's long options with one dash: clap would read `-np` as `-n p` and `-hostfile` as `-h`.
fn with_horovod_spelling(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "run") {
        return arguments;
    }
    // Only before the first positional argument: it begins the user's command.
    let mut n_values: usize = 0;
    for argument in arguments.iter_mut().skip(2) {
        if n_values > 0 {
            n_values -= 1;
            continue;
        }
        if argument == "--" || !argument.to_string_lossy().starts_with('-') {
            break;
        }
        if argument == "-np" {
            *argument = "--num-proc".into();
        }
        if argument == "-hostfile" {
            *argument = "--hostfile".into();
        }
        let text = argument.to_string_lossy();
        n_values = match text.as_ref() {
            option if RUN_OPTIONS_WITH_VALUE.contains(&option) => 1,
            option if RUN_OPTIONS_WITH_TWO_VALUES.contains(&option) => 2,
            _ => 0,
        };
    }
    arguments
}

#[cfg(test)]
mod tests;
