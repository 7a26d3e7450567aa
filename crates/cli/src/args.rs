//! The command line as a whole: which commands there are, and the help of the program. Arguments of a command stand in
//! the command's own file. Entered by `main` only.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    account, ad, admin, agent, batchai, cloud, completion, dashboard, doctor, events, files, group, host, job, login,
    mount, node, run, server, storage, top, train, tutorial, unmount, up, usage,
};
use crate::program_name::program_name;

/// Distributed training on your own machines: a self-hosted Batch AI with its own Horovod.
#[derive(Parser, Debug)]
#[command(name = "corro", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: TopCommand,
}

/// Their order in the help is that of `SECTIONS`.
#[derive(Subcommand, Debug)]
pub enum TopCommand {
    /// Resource groups: the boxes that hold everything of a project
    Group(group::GroupArgs),
    /// Workspaces, experiments, clusters and jobs
    Batchai(batchai::BatchaiArgs),
    /// Storage accounts, file shares, directories and files
    Storage(storage::StorageArgs),
    /// Who else may use the server, and as what
    Ad(ad::AdArgs),
    /// Log in to a server
    Login(login::LoginArgs),
    /// Forget the login of this user on this machine
    Logout,
    /// The subscription in use, and who uses it
    Account(account::AccountArgs),
    /// Let the real az talk to this server, and undo it
    Cloud(cloud::CloudArgs),
    /// Start a server and its nodes on this machine: all you need to begin
    Up(up::UpArgs),
    /// Start a server whose nodes are machines that join it, or Slurm's
    Server(Box<server::ServerArgs>),
    /// Serve Azure Files from a directory, and nothing else
    Files(files::FilesArgs),
    /// Show a share as a directory of this machine
    Mount(Box<mount::MountArgs>),
    /// Take a mounted share away again
    Unmount(unmount::UnmountArgs),
    /// Serve this machine, or a part of it, as a node of a cluster; or join a server with all of it
    Agent(Box<agent::AgentArgs>),
    /// Machines that join a server: tokens for them, what they have, and taking them out of service
    Host(host::HostArgs),
    /// Run a command as several ranks on this machine, without a server
    Run(run::RunArgs),
    /// Train the tutorial's network, alone or as one of many ranks
    Train(train::TrainArgs),
    /// See the whole tutorial run on this machine, from cluster to trained model
    Tutorial(tutorial::TutorialArgs),
    /// Ask about a job in plain words, watch its processes, run a command beside them
    Job(job::JobArgs),
    /// The server's pages in a browser, logged in
    Dashboard(dashboard::DashboardArgs),
    /// Single nodes: list them, and take low-priority ones back
    Node(node::NodesArgs),
    /// Clusters, nodes, queue and jobs as a live page of the terminal
    Top(top::TopArgs),
    /// What changes, as it changes: one JSON object in each line
    Events(events::EventsArgs),
    /// Who used how many node-hours
    Usage(usage::UsageArgs),
    /// Back up, restore and check a server's data; read its history
    Admin(admin::AdminArgs),
    /// Look at this machine and say what Corro will find
    Doctor(doctor::DoctorArgs),
    /// Print a script that completes commands and options in bash, zsh or fish
    #[command(
        after_help = "Examples:\n  source <(corro completion bash)\n  corro completion zsh > ~/.zfunc/_corro\n  corro completion fish > ~/.config/fish/completions/corro.fish"
    )]
    Completion(completion::CompletionArgs),
}

const SECTIONS: [(&str, &[&str]); 2] = [
    ("Azure-compatible commands", &["group", "batchai", "storage", "ad", "login", "logout", "account", "cloud"]),
    (
        "Running Corro",
        &[
            "up",
            "server",
            "files",
            "mount",
            "unmount",
            "agent",
            "host",
            "run",
            "train",
            "job",
            "node",
            "dashboard",
            "top",
            "events",
            "usage",
            "admin",
            "tutorial",
            "doctor",
            "completion",
        ],
    ),
];

const CLOSING: &str = "Use 'corro COMMAND --help' to read about a command.";

/// Reads the command line; ends the process with help (exit 0) or a usage error (exit 2) when there is nothing to run.
pub fn parse(arguments: Vec<OsString>) -> (Cli, CommandPath) {
    let matches = command(program_name()).get_matches_from(with_horovod_spelling(arguments));
    (from_matches(&matches), CommandPath::of(&matches))
}

/// The command that was called: `batchai`, `cluster`, `show`.
pub struct CommandPath(Vec<String>);

impl CommandPath {
    fn of(matches: &ArgMatches) -> CommandPath {
        let mut path = Vec::new();
        let mut matches = matches;
        while let Some((name, below)) = matches.subcommand() {
            path.push(name.to_owned());
            matches = below;
        }
        CommandPath(path)
    }

    /// What follows an error about missing arguments, as the parser itself has it. `needs` are flags, `--name/-n`.
    pub fn usage(&self, needs: &[&str]) -> String {
        self.usage_of(command(program_name()), needs)
    }

    fn usage_of(&self, mut command: Command, needs: &[&str]) -> String {
        command.build();
        let mut called = &mut command;
        for name in &self.0 {
            called = called.find_subcommand_mut(name).expect("it was called");
        }
        let is_needed = |argument: &Arg| argument.get_long().is_some_and(|long| names(needs).any(|name| name == long));
        let mut shown = called.clone().mut_args(|argument| match is_needed(&argument) {
            true => argument.required(true),
            false => argument,
        });
        format!("\n{}\n\nFor more information, try '--help'.", shown.render_usage())
    }
}

/// The long names in `--name/-n`.
fn names<'a>(flags: &'a [&str]) -> impl Iterator<Item = &'a str> {
    flags.iter().filter_map(|flag| flag.strip_prefix("--")).map(|flag| flag.split('/').next().unwrap_or(flag))
}

fn from_matches(matches: &ArgMatches) -> Cli {
    Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// The whole command line, for a shell to complete. What is hidden from help is hidden here too.
pub fn for_completion() -> Command {
    let name = program_name();
    visible(&command(name)).bin_name(name).version(env!("CARGO_PKG_VERSION"))
}

fn visible(command: &Command) -> Command {
    // Names must outlive the command; they are few, and the process ends when the script is written.
    let name: &'static str = Box::leak(command.get_name().to_owned().into_boxed_str());
    let copy = Command::new(name).disable_help_subcommand(true);
    let about = command.get_about().cloned().unwrap_or_default();
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    copy.about(about).args(arguments).subcommands(subcommands.map(visible))
}

fn command(name: &'static str) -> Command {
    let command = Cli::command().name(name).bin_name(name);
    let help = grouped_help(&command).replace("corro COMMAND", &format!("{name} COMMAND"));
    let command = command.help_template(help);
    if name == "az" { as_az(command).display_name("azure-cli").version(AZ_VERSION) } else { command }
}

/// In the form of `az --version`, for scripts and readers that look whether it is new enough.
const AZ_VERSION: &str = concat!(
    "(2.0.38)\n\nThis is Corro ",
    env!("CARGO_PKG_VERSION"),
    ", called as az: it has the commands of that version for groups, Batch AI and storage."
);

/// With the name in every example and explanation.
fn as_az(command: Command) -> Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(help) => command.after_help(help.replace("corro ", "az ")),
        None => command,
    };
    let command = command.mut_args(|argument| match argument.get_help().map(ToString::to_string) {
        Some(help) if help.contains("'corro ") => argument.help(help.replace("'corro ", "'az ")),
        _ => argument,
    });
    command.mut_subcommands(as_az)
}

/// The commands by section; one that belongs to no section is a mistake that a test finds.
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
    help.push_str(&format!("\nOptions:\n{{options}}\n\n{CLOSING}\n"));
    help
}

/// The options of `corro run` that are followed by a value.
const RUN_OPTIONS_WITH_VALUE: [&str; 8] =
    ["-n", "--np", "--num-proc", "-H", "--hosts", "--hostfile", "--output-filename", "--compat"];

/// `horovodrun -np 4` writes a long name with one dash, which clap reads as `-n p`; `-hostfile` would be `-h`.
fn with_horovod_spelling(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "run") {
        return arguments;
    }
    // Only among our own options: what follows the first plain word is the user's command.
    let mut takes_value = false;
    for argument in arguments.iter_mut().skip(2) {
        if !takes_value && (argument == "--" || !argument.to_string_lossy().starts_with('-')) {
            break;
        }
        if !takes_value && argument == "-np" {
            *argument = "--num-proc".into();
        }
        if !takes_value && argument == "-hostfile" {
            *argument = "--hostfile".into();
        }
        let text = argument.to_string_lossy();
        takes_value = !takes_value && !text.contains('=') && RUN_OPTIONS_WITH_VALUE.contains(&text.as_ref());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn try_parse(text: &str) -> Result<Cli, clap::Error> {
        let matches = command("corro").try_get_matches_from(with_horovod_spelling(words(text)))?;
        Cli::from_arg_matches(&matches)
    }

    #[test]
    fn examples_can_be_pasted_from_a_narrow_terminal() {
        fn check(command: &Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 78, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&command("corro"));
    }

    #[test]
    fn the_definition_is_sound() {
        command("corro").debug_assert();
    }

    #[test]
    fn every_command_of_the_tutorial_is_understood() {
        for line in [
            "az group create --name batchai.horovod --location eastus",
            "az batchai workspace create --resource-group batchai.horovod --workspace batchaidev",
            "az batchai experiment create --resource-group batchai.horovod --workspace batchaidev --name cifar",
            "az batchai cluster create --resource-group batchai.horovod --workspace batchaidev --name nc6cluster --vm-priority dedicated --vm-size Standard_NC6 --target 4 --generate-ssh-keys",
            "az batchai cluster show --name nc6cluster --workspace batchaidev --resource-group batchai.horovod --output table",
            "az storage account create --resource-group batchai.horovod --name mystorageaccount --location eastus --sku Standard_LRS",
            "az storage share create --name myshare --account-name mystorageaccount",
            "az storage directory create --name cifar --share-name myshare --account-name mystorageaccount",
            "az storage file upload --path cifar --share-name myshare --source cifar_cnn_distributed.py --account-name mystorageaccount",
            "az batchai job create --cluster nc6cluster --name cifar_distributed --resource-group batchai.horovod --workspace batchaidev --experiment cifar --config-file job.json --storage-account-name mystorageaccount",
            "az batchai job show --experiment cifar --name cifar_distributed --resource-group batchai.horovod --workspace batchaidev --query executionState",
            "az batchai cluster show --name nc6cluster --workspace batchaidev --resource-group batchai.horovod --query nodeStateCounts",
            "az batchai job file list --experiment cifar --job cifar_distributed --resource-group batchai.horovod --workspace batchaidev --output table",
            "az batchai job file stream --experiment cifar --file-name stdout.txt --job cifar_distributed --resource-group batchai.horovod --workspace batchaidev",
            "az storage file download --path cifar/saved_models/keras_cifar10_trained_model.h5 --share-name myshare --account-name mystorageaccount",
            "az batchai cluster resize --name nc6cluster --resource-group batchai.horovod --target 0 --workspace batchaidev",
            "az group delete --name batchai.horovod",
        ] {
            if let Err(error) = try_parse(line) {
                panic!("{line}\n{error}");
            }
        }
    }

    #[test]
    fn short_forms() {
        for line in [
            "corro group create -n g -l eastus --tags a=b c",
            "corro group delete -g g -y --no-wait",
            "corro batchai workspace show -g g -n w -o table",
            "corro batchai workspace list",
            "corro batchai cluster create -g g -w w -n c -u me -k key -p pw -f c.json -i UbuntuLTS -s Standard_D1 -t 1",
            "corro batchai cluster show --ids /subscriptions/a /subscriptions/b",
            "corro batchai cluster resize -g g -w w -n c -t 0",
            "corro batchai job create -g g -w w -e e -n j -f job.json -c cluster",
            "corro batchai job file list -g g -w w -e e -j j -d stdouterr -p . --expiry 5",
            "corro batchai job wait -g g -w w -e e -n j --interval 1 --subscription s",
            "corro storage account keys list -g g -n a",
            "corro storage file list -s share -p dir --exclude-dir --num-results 5 --account-name a --account-key k",
            "corro run -np 2 -H localhost:2 python -np x.py",
            "corro run -np 2 --gloo --verbose -hostfile hosts python -u x.py --verbose",
            "corro run -np 2 -- -odd-name -x",
            "corro storage share create -n s --account-name a --metadata k=v l=w --fail-on-exist",
            "corro storage directory create -n d -s s --account-name a --metadata k=v --fail-on-exist",
            "corro storage file upload -s s --source f --account-name a --metadata k=v --content-type t --content-md5 m --content-encoding e --content-language l --content-disposition d --content-cache-control c",
            "corro storage file download -s s -p f --account-name a --open-mode ab",
            "corro storage account create -g g -n a --access-tier Hot --encryption-services blob file --custom-domain d --assign-identity --bypass Logging Metrics --default-action allow --tags k=v --kind StorageV2 --https-only true",
        ] {
            if let Err(error) = try_parse(line) {
                panic!("{line}\n{error}");
            }
        }
    }

    #[test]
    fn a_wrong_command_line_exits_with_2() {
        for line in [
            "corro nonsense",
            "corro batchai job create",
            "corro group create --bogus",
            "corro batchai job show -o xml",
            "corro run -np 2 --bogus train",
            "corro run -np 2 -x train",
        ] {
            let error = try_parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
        let error = try_parse("corro run -np 2 --bogus train").expect_err("no such option").to_string();
        assert!(error.contains("'--bogus'") && error.contains("-- --bogus"), "{error}");
    }

    #[test]
    fn the_help_shows_every_command_in_its_section_and_the_programs_name() {
        for name in ["corro", "az"] {
            let mut command = command(name);
            let help = command.render_help().to_string();
            for subcommand in Cli::command().get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
                let line = format!("\n  {:<12}", subcommand.get_name());
                assert_eq!(help.matches(&line).count(), 1, "{} in\n{help}", subcommand.get_name());
            }
            assert!(help.contains(&format!("Usage: {name} <COMMAND>")), "{help}");
        }
    }

    #[test]
    fn missing_arguments_are_followed_by_the_usage() {
        let check = |line: &str, needs: &[&str], expected: &str| {
            let matches = command("corro").try_get_matches_from(words(line)).expect(line);
            let usage = CommandPath::of(&matches).usage_of(command("corro"), needs);
            assert_eq!(usage, format!("\nUsage: {expected}\n\nFor more information, try '--help'."), "{line}");
        };
        let cluster = ["--resource-group/-g", "--workspace/-w", "--name/-n"];
        check(
            "corro batchai cluster show -n x",
            &cluster,
            "corro batchai cluster show [OPTIONS] --resource-group <GROUP> --workspace <WORKSPACE> --name <CLUSTER>",
        );
        check(
            "corro job why x",
            &["--resource-group/-g", "NAME"],
            "corro job why [OPTIONS] --resource-group <GROUP> [NAME]",
        );
    }

    #[test]
    fn called_as_az_it_speaks_as_az() {
        let az = command("az");
        let version = az.render_version();
        assert!(version.starts_with("azure-cli (2.0.38)\n") && version.contains("Corro"), "{version}");
        fn check(command: &Command) {
            let arguments = command.get_arguments().filter_map(|argument| argument.get_help());
            for text in command.get_after_help().into_iter().chain(arguments).map(ToString::to_string) {
                assert!(!text.contains("'corro ") && !text.contains("  corro "), "{text}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&az);
        assert_eq!(command("corro").render_version(), concat!("corro ", env!("CARGO_PKG_VERSION"), "\n"));
    }

    #[test]
    fn horovods_np_is_ours_only_before_the_command() {
        assert_eq!(
            with_horovod_spelling(words("corro run -np 4 -H a:1 train -np 3")),
            words("corro run --num-proc 4 -H a:1 train -np 3")
        );
        assert_eq!(
            with_horovod_spelling(words("corro run --compat keras-2018 -np 4 train")),
            words("corro run --compat keras-2018 --num-proc 4 train")
        );
        assert_eq!(
            with_horovod_spelling(words("corro run -hostfile -np -np 1 -- -np -hostfile")),
            words("corro run --hostfile -np --num-proc 1 -- -np -hostfile")
        );
        assert_eq!(with_horovod_spelling(words("corro batchai -np")), words("corro batchai -np"));
    }
}
