//! Tests of the command line: the definition, help texts, usage errors and both program names.

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
fn every_command_of_the_tutorial_is_parsed() {
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
fn short_options_are_parsed() {
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
        "corro files --account a --rate 100 --anonymous-rate 10 --log-format json",
        "corro up --mask-secrets no",
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
        let usage = CommandPath::from_matches(&matches).usage_of(command("corro"), needs);
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
fn the_usage_in_help_shows_the_names_that_a_command_needs() {
    let check = |program: &'static str, path: &[&str], expected: &str| {
        let mut command = command(program);
        command.build();
        let called =
            path.iter().fold(&mut command, |at, name| at.find_subcommand_mut(name).expect("there is such a command"));
        let help = called.render_help().to_string();
        let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).expect("a usage line");
        assert_eq!(usage, expected);
    };
    check(
        "az",
        &["batchai", "job", "file", "stream"],
        "az batchai job file stream [OPTIONS] --resource-group <GROUP> --workspace <WORKSPACE> --experiment <EXPERIMENT> --job <JOB> --file-name <FILE>",
    );
    check(
        "corro",
        &["batchai", "experiment", "list"],
        "corro batchai experiment list [OPTIONS] --resource-group <GROUP> --workspace <WORKSPACE>",
    );
    check("corro", &["batchai", "workspace", "list"], "corro batchai workspace list [OPTIONS]");
    check("corro", &["batchai", "cluster", "show"], "corro batchai cluster show [OPTIONS]");
    check("corro", &["job", "why"], "corro job why [OPTIONS] [NAME]");
    check("corro", &["job", "stop"], "corro job stop [OPTIONS] [NAME]");
}

#[test]
fn called_as_az_all_texts_say_az() {
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
fn horovod_spelling_is_rewritten_only_before_the_command() {
    assert_eq!(
        with_horovod_spelling(words("corro run -np 4 -H a:1 train -np 3")),
        words("corro run --num-proc 4 -H a:1 train -np 3")
    );
    assert_eq!(
        with_horovod_spelling(words("corro run --min-np 1 --blacklist-cooldown-range 1 2 -np 4 train -np 3")),
        words("corro run --min-np 1 --blacklist-cooldown-range 1 2 --num-proc 4 train -np 3")
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
