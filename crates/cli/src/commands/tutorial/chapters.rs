//! The seven chapters of the tutorial, with its names.

use std::time::{Duration, Instant};

use corro_trainer::report::metrics::{self, EpochMetrics};

use super::lesson::{Lesson, SETTINGS};
use super::stage::{Stage, say};
use crate::error::CliError;

const GROUP: &str = "batchai.horovod";
const IN_WORKSPACE: &str = "--resource-group batchai.horovod --workspace batchaidev";
const MODEL: &str = "keras_cifar10_trained_model.h5";
/// However slow the machine, this is too long for four local nodes.
const CLUSTER_DEADLINE: Duration = Duration::from_secs(60);

/// The seven chapters.
pub fn tell(stage: &Stage, lesson: &Lesson) -> Result<(), CliError> {
    chapter("1. Prepare the environment: a resource group, a workspace, an experiment")?;
    stage.corro(&format!("group create --name {GROUP} --location eastus"))?;
    stage.corro(&format!("batchai workspace create {IN_WORKSPACE}"))?;
    stage.corro(&format!("batchai experiment create {IN_WORKSPACE} --name cifar"))?;

    chapter("2. Set up a cluster of four nodes")?;
    stage.corro(&format!(
        "batchai cluster create {IN_WORKSPACE} --name nc6cluster --vm-priority dedicated --vm-size Standard_NC6 --target 4 --generate-ssh-keys"
    ))?;
    wait_for_nodes(stage, 4)?;
    stage.corro(&format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --output table"))?;

    chapter("3. Set up storage: an account, a file share, a directory")?;
    stage.corro(&format!(
        "storage account create --resource-group {GROUP} --name mystorageaccount --location eastus --sku Standard_LRS"
    ))?;
    stage.corro("storage share create --name myshare --account-name mystorageaccount")?;
    stage.corro("storage directory create --name cifar --share-name myshare --account-name mystorageaccount")?;

    chapter("4. Upload what the job needs: the settings of the training, where the tutorial has its script")?;
    stage.write(SETTINGS, &lesson.settings_json())?;
    stage.show_file(SETTINGS)?;
    stage.corro(&format!(
        "storage file upload --path cifar --share-name myshare --source {SETTINGS} --account-name mystorageaccount"
    ))?;
    if let Some(command) = lesson.upload() {
        stage
            .corro("storage directory create --name cifar/data --share-name myshare --account-name mystorageaccount")?;
        stage.corro(&command)?;
    }

    chapter("5. Submit the job")?;
    stage.write("job.json", &lesson.job_json()?)?;
    stage.show_file("job.json")?;
    stage.corro(&format!(
        "batchai job create --cluster nc6cluster --name cifar_distributed {IN_WORKSPACE} --experiment cifar --config-file job.json --storage-account-name mystorageaccount"
    ))?;
    stage.corro(&format!(
        "batchai job show --experiment cifar --name cifar_distributed {IN_WORKSPACE} --query \"executionState\""
    ))?;
    stage.corro(&format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --query \"nodeStateCounts\""))?;

    chapter("6. Monitor the job: four ranks, each with its own progress")?;
    stage.corro(&format!(
        "batchai job file stream --experiment cifar --file-name stdout.txt --job cifar_distributed {IN_WORKSPACE}"
    ))?;
    stage.corro(&format!(
        "batchai job file list --experiment cifar --job cifar_distributed {IN_WORKSPACE} --output table"
    ))?;

    expect_success(stage)?;

    chapter("7. Retrieve the results and clean up")?;
    stage.corro(&format!(
        "storage file download --path cifar/saved_models/{MODEL} --share-name myshare --account-name mystorageaccount"
    ))?;
    stage.corro(
        "storage file download --path cifar/metrics.jsonl --share-name myshare --account-name mystorageaccount --output none",
    )?;
    tell_result(stage)?;
    stage.corro(&format!(
        "batchai cluster resize --name nc6cluster --resource-group {GROUP} --target 0 --workspace batchaidev"
    ))?;
    stage.corro(&format!("group delete --name {GROUP} --yes"))?;
    Ok(())
}

fn chapter(title: &str) -> Result<(), CliError> {
    say(&format!("\n=== {title} ==="))
}

fn wait_for_nodes(stage: &Stage, count: u32) -> Result<(), CliError> {
    let deadline = Instant::now() + CLUSTER_DEADLINE;
    let line = format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --query nodeStateCounts.idleNodeCount");
    while stage.ask(&line)? != count.to_string() {
        if Instant::now() > deadline {
            let seconds = CLUSTER_DEADLINE.as_secs();
            return Err(CliError::new(format!("the cluster did not get its {count} nodes within {seconds} s")));
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Ok(())
}

/// The stream ends with the job, however that ended.
fn expect_success(stage: &Stage) -> Result<(), CliError> {
    let line =
        format!("batchai job show --experiment cifar --name cifar_distributed {IN_WORKSPACE} --query executionState");
    match stage.ask(&line)?.as_str() {
        "\"succeeded\"" => Ok(()),
        state => Err(CliError::new(format!("the tutorial's job ended as {state}"))),
    }
}

/// From the metrics of the training, which have been downloaded.
fn tell_result(stage: &Stage) -> Result<(), CliError> {
    let epochs = metrics::parse_epochs(&stage.read(metrics::FILE)?);
    let last = epochs.last().ok_or_else(|| CliError::new("the training has left no metrics"))?;
    say(&format!("\n{}", result(&epochs, last)))
}

fn result(epochs: &[EpochMetrics], last: &EpochMetrics) -> String {
    let seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
    let mean = epochs.iter().map(|epoch| epoch.images_per_second).sum::<f64>() / epochs.len() as f64;
    format!(
        "The model names {:.1} % of unseen images right (chance: 10 %). {} ranks trained it together in {seconds:.1} s, {mean:.0} images a \
         second.",
        last.val_acc * 100.0,
        last.ranks,
    )
}
