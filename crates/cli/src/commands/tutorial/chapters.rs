//! The seven chapters of the tutorial, with its resource names.

use std::time::{Duration, Instant};

use corro_trainer::report::metrics::{self, EpochMetrics};

use super::sandbox::{Sandbox, print_line};
use super::training_plan::{SETTINGS_FILE, TrainingPlan};
use crate::error::CliError;

const GROUP: &str = "batchai.horovod";
const IN_WORKSPACE: &str = "--resource-group batchai.horovod --workspace batchaidev";
const MODEL: &str = "keras_cifar10_trained_model.h5";
/// Time limit for the start of four local nodes.
const CLUSTER_DEADLINE: Duration = Duration::from_secs(60);

/// Runs all chapters.
pub fn run(sandbox: &Sandbox, plan: &TrainingPlan) -> Result<(), CliError> {
    chapter("1. Prepare the environment: a resource group, a workspace, an experiment")?;
    sandbox.corro(&format!("group create --name {GROUP} --location eastus"))?;
    sandbox.corro(&format!("batchai workspace create {IN_WORKSPACE}"))?;
    sandbox.corro(&format!("batchai experiment create {IN_WORKSPACE} --name cifar"))?;

    chapter("2. Set up a cluster of four nodes")?;
    sandbox.corro(&format!(
        "batchai cluster create {IN_WORKSPACE} --name nc6cluster --vm-priority dedicated --vm-size Standard_NC6 --target 4 --generate-ssh-keys"
    ))?;
    wait_for_nodes(sandbox, 4)?;
    sandbox.corro(&format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --output table"))?;

    chapter("3. Set up storage: an account, a file share, a directory")?;
    sandbox.corro(&format!(
        "storage account create --resource-group {GROUP} --name mystorageaccount --location eastus --sku Standard_LRS"
    ))?;
    sandbox.corro("storage share create --name myshare --account-name mystorageaccount")?;
    sandbox.corro("storage directory create --name cifar --share-name myshare --account-name mystorageaccount")?;

    chapter("4. Upload what the job needs: the settings of the training, where the tutorial has its script")?;
    sandbox.write(SETTINGS_FILE, &plan.settings_json())?;
    sandbox.show_file(SETTINGS_FILE)?;
    sandbox.corro(&format!(
        "storage file upload --path cifar --share-name myshare --source {SETTINGS_FILE} --account-name mystorageaccount"
    ))?;
    if let Some(command) = plan.upload_command() {
        sandbox
            .corro("storage directory create --name cifar/data --share-name myshare --account-name mystorageaccount")?;
        sandbox.corro(&command)?;
    }

    chapter("5. Submit the job")?;
    sandbox.write("job.json", &plan.job_json()?)?;
    sandbox.show_file("job.json")?;
    sandbox.corro(&format!(
        "batchai job create --cluster nc6cluster --name cifar_distributed {IN_WORKSPACE} --experiment cifar --config-file job.json --storage-account-name mystorageaccount"
    ))?;
    sandbox.corro(&format!(
        "batchai job show --experiment cifar --name cifar_distributed {IN_WORKSPACE} --query \"executionState\""
    ))?;
    sandbox.corro(&format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --query \"nodeStateCounts\""))?;

    chapter("6. Monitor the job: four ranks, each with its own progress")?;
    sandbox.corro(&format!(
        "batchai job file stream --experiment cifar --file-name stdout.txt --job cifar_distributed {IN_WORKSPACE}"
    ))?;
    sandbox.corro(&format!(
        "batchai job file list --experiment cifar --job cifar_distributed {IN_WORKSPACE} --output table"
    ))?;

    expect_success(sandbox)?;

    chapter("7. Retrieve the results and clean up")?;
    sandbox.corro(&format!(
        "storage file download --path cifar/saved_models/{MODEL} --share-name myshare --account-name mystorageaccount"
    ))?;
    sandbox.corro(
        "storage file download --path cifar/metrics.jsonl --share-name myshare --account-name mystorageaccount --output none",
    )?;
    print_result(sandbox)?;
    sandbox.corro(&format!(
        "batchai cluster resize --name nc6cluster --resource-group {GROUP} --target 0 --workspace batchaidev"
    ))?;
    sandbox.corro(&format!("group delete --name {GROUP} --yes"))?;
    Ok(())
}

fn chapter(title: &str) -> Result<(), CliError> {
    print_line(&format!("\n=== {title} ==="))
}

fn wait_for_nodes(sandbox: &Sandbox, count: u32) -> Result<(), CliError> {
    let deadline = Instant::now() + CLUSTER_DEADLINE;
    let line = format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --query nodeStateCounts.idleNodeCount");
    while sandbox.output_of(&line)? != count.to_string() {
        if Instant::now() > deadline {
            let seconds = CLUSTER_DEADLINE.as_secs();
            return Err(CliError::new(format!("the cluster did not get its {count} nodes within {seconds} s")));
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Ok(())
}

/// Checks the final state: the stream also ends with a job that failed.
fn expect_success(sandbox: &Sandbox) -> Result<(), CliError> {
    let line =
        format!("batchai job show --experiment cifar --name cifar_distributed {IN_WORKSPACE} --query executionState");
    match sandbox.output_of(&line)?.as_str() {
        "\"succeeded\"" => Ok(()),
        state => Err(CliError::new(format!("the tutorial's job ended as {state}"))),
    }
}

/// Prints the result, from the downloaded metrics of the training.
fn print_result(sandbox: &Sandbox) -> Result<(), CliError> {
    let epochs = metrics::parse_epochs(&sandbox.read(metrics::FILE)?);
    let last = epochs.last().ok_or_else(|| CliError::new("the training wrote no metrics"))?;
    print_line(&format!("\n{}", result_text(&epochs, last)))
}

fn result_text(epochs: &[EpochMetrics], last: &EpochMetrics) -> String {
    let seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
    let mean = epochs.iter().map(|epoch| epoch.images_per_second).sum::<f64>() / epochs.len() as f64;
    format!(
        "The model classifies {:.1} % of unseen images correctly (chance: 10 %). {} ranks trained it together in {seconds:.1} s, {mean:.0} images a \
         second.",
        last.val_acc * 100.0,
        last.ranks,
    )
}
