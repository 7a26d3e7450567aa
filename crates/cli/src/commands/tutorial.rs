//! `corro tutorial`: the whole tutorial on this machine, as a person would type it. Starts its own server and four nodes
//! in a temporary directory, shows each command and its output, streams the job, ends with the result, and cleans up.
//! Every command is really run as a process of its own; nothing here talks to the server by another way.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::hosting;
use crate::workload::Settings;

#[derive(Args, Debug)]
pub struct TutorialArgs {
    /// Train only a little: done within half a minute
    #[arg(long)]
    quick: bool,

    /// Leave the temporary directory and what was made in it behind
    #[arg(long)]
    keep: bool,
}

const GROUP: &str = "batchai.horovod";
const IN_WORKSPACE: &str = "--resource-group batchai.horovod --workspace batchaidev";
const MODEL: &str = "softmax_model.json";
/// However slow the machine, this is too long for four local nodes.
const CLUSTER_DEADLINE: Duration = Duration::from_secs(60);

pub async fn run(args: TutorialArgs) -> Result<(), Failure> {
    let began = Instant::now();
    let stage = Arc::new(Stage::open()?);
    let teller = stage.clone();
    let telling = tokio::task::spawn_blocking(move || tell(&teller, args.quick));
    let told = tokio::select! {
        told = telling => told.map_err(|error| Failure::of(&error))?,
        asked = hosting::stop_asked() => {
            asked?;
            // Commands that still run fail now, and the teller with them.
            stage.close();
            return Err(Failure::silent(INTERRUPTED));
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

/// The seven chapters.
fn tell(stage: &Stage, quick: bool) -> Result<(), Failure> {
    chapter("1. Prepare the environment: a resource group, a workspace, an experiment")?;
    stage.corro(&format!("group create --name {GROUP} --location eastus"))?;
    stage.corro(&format!("batchai workspace create {IN_WORKSPACE}"))?;
    stage.corro(&format!("batchai experiment create {IN_WORKSPACE} --name cifar"))?;

    chapter("2. Set up a cluster of four nodes")?;
    stage.corro(&format!(
        "batchai cluster create {IN_WORKSPACE} --name nc6cluster --vm-priority dedicated --vm-size Standard_NC6 --target 4 --generate-ssh-keys"
    ))?;
    stage.wait_for_nodes(4)?;
    stage.corro(&format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --output table"))?;

    chapter("3. Set up storage: an account, a file share, a directory")?;
    stage.corro(&format!(
        "storage account create --resource-group {GROUP} --name mystorageaccount --location eastus --sku Standard_LRS"
    ))?;
    stage.corro("storage share create --name myshare --account-name mystorageaccount")?;
    stage.corro("storage directory create --name cifar --share-name myshare --account-name mystorageaccount")?;

    chapter("4. Upload what the job needs (here the settings of a small built-in training)")?;
    let epochs = if quick { 12 } else { 60 };
    let settings = Settings { epochs, steps: 120, batch: 32, learning_rate: 0.01 };
    stage.write("workload.json", &serde_json::to_string_pretty(&settings).expect("plain data"))?;
    stage.corro(
        "storage file upload --path cifar --share-name myshare --source workload.json --account-name mystorageaccount",
    )?;

    chapter("5. Submit the job")?;
    stage.write("job.json", &job_json()?)?;
    stage.show_file("job.json")?;
    stage.corro(&format!(
        "batchai job create --cluster nc6cluster --name cifar_distributed {IN_WORKSPACE} --experiment cifar --config-file job.json --storage-account-name mystorageaccount"
    ))?;
    stage.corro(&format!(
        "batchai job show --experiment cifar --name cifar_distributed {IN_WORKSPACE} --query \"executionState\""
    ))?;
    stage.corro(&format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --query \"nodeStateCounts\""))?;

    chapter("6. Monitor the job")?;
    stage.corro(&format!(
        "batchai job file stream --experiment cifar --file-name stdout.txt --job cifar_distributed {IN_WORKSPACE}"
    ))?;
    stage.corro(&format!(
        "batchai job file list --experiment cifar --job cifar_distributed {IN_WORKSPACE} --output table"
    ))?;

    stage.expect_success()?;

    chapter("7. Retrieve the results and clean up")?;
    stage.corro(&format!(
        "storage file download --path cifar/saved_models/{MODEL} --share-name myshare --account-name mystorageaccount"
    ))?;
    stage.tell_result()?;
    stage.corro(&format!(
        "batchai cluster resize --name nc6cluster --resource-group {GROUP} --target 0 --workspace batchaidev"
    ))?;
    stage.corro(&format!("group delete --name {GROUP} --yes"))?;
    Ok(())
}

fn chapter(title: &str) -> Result<(), Failure> {
    say(&format!("\n=== {title} ==="))
}

/// A reader who went away has seen enough: the tutorial ends quietly, and cleans up.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|_| Failure::silent(0))
}

/// The tutorial's own `job.json`, with the built-in training in place of Python and the container.
fn job_json() -> Result<String, Failure> {
    let exe = std::env::current_exe().map_err(|error| Failure::of(&error))?;
    let quoted = format!("'{}'", exe.display().to_string().replace('\'', r"'\''"));
    let share = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar";
    let job = json!({
        "properties": {
            "nodeCount": 4,
            "horovodSettings": {
                "pythonScriptFilePath": format!("{share}/workload.json"),
                "pythonInterpreterPath": format!("{quoted} workload"),
                "commandLineArgs": format!("--dir={share}")
            },
            "stdOutErrPathPrefix": share,
            "mountVolumes": {
                "azureFileShares": [{
                    "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                    "relativeMountPath": "myshare"
                }]
            },
            "jobPreparation": { "commandLine": "echo \"node ready: $(uname -srm)\"" }
        }
    });
    Ok(serde_json::to_string_pretty(&job).expect("plain data"))
}

/// A server of its own and a place to type commands. Dropped, it leaves nothing behind.
struct Stage {
    server: Mutex<Child>,
    /// Gone after `keep`.
    temporary: Mutex<Option<tempfile::TempDir>>,
    dir: PathBuf,
}

const SERVER_LOG: &str = "server.log";
/// As a shell reports an end by Ctrl-C.
const INTERRUPTED: u8 = 130;

impl Stage {
    fn open() -> Result<Self, Failure> {
        let temporary = tempfile::Builder::new().prefix("corro-tutorial-").tempdir().map_err(|error| {
            Failure::new(format!("cannot make a temporary directory: {error}"))
                .hint("set TMPDIR to a directory with space")
        })?;
        let dir = temporary.path().to_owned();
        say(&format!("Starting a server of its own in {}", dir.display()))?;
        let failed = |error: io::Error| Failure::new(format!("cannot start the tutorial's server: {error}"));
        let log = std::fs::File::create(dir.join(SERVER_LOG)).map_err(failed)?;
        let mut server = corro_in(&dir)
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // A Ctrl-C is for the tutorial, which ends its server in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut out = BufReader::new(server.stdout.take().expect("it is piped"));
        let stage = Self { server: Mutex::new(server), temporary: Mutex::new(Some(temporary)), dir };
        let mut first = String::new();
        let read = out.read_line(&mut first);
        // What it says later is of no interest, but it must not find a closed pipe.
        std::thread::spawn(move || io::copy(&mut out, &mut io::sink()));
        if !matches!(read, Ok(n) if n > 0) {
            let log = std::fs::read_to_string(stage.dir.join(SERVER_LOG)).unwrap_or_default();
            return Err(Failure::new(format!("the tutorial's server did not start: {}", log.trim())));
        }
        say(first.trim_end())?;
        Ok(stage)
    }

    /// Shows the command as typed, runs it, lets its output through.
    fn corro(&self, line: &str) -> Result<(), Failure> {
        say(&format!("\n$ corro {line}"))?;
        let words = line.split_whitespace().map(|word| word.trim_matches('"'));
        let status = corro_in(&self.dir).args(words).stdin(Stdio::null()).status();
        check(line, status)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
    }

    fn show_file(&self, name: &str) -> Result<(), Failure> {
        let text = std::fs::read_to_string(self.dir.join(name)).map_err(|error| Failure::of(&error))?;
        say(&format!("\n$ cat {name}\n{text}"))
    }

    fn wait_for_nodes(&self, count: u32) -> Result<(), Failure> {
        let deadline = Instant::now() + CLUSTER_DEADLINE;
        let line =
            format!("batchai cluster show --name nc6cluster {IN_WORKSPACE} --query nodeStateCounts.idleNodeCount");
        loop {
            let output = corro_in(&self.dir).args(line.split_whitespace()).stdin(Stdio::null()).output();
            let output = output.map_err(|error| Failure::of(&error))?;
            check(&line, Ok(output.status))?;
            if String::from_utf8_lossy(&output.stdout).trim() == count.to_string() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let seconds = CLUSTER_DEADLINE.as_secs();
                return Err(Failure::new(format!("the cluster did not get its {count} nodes within {seconds} s")));
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// The stream ends with the job, however that ended.
    fn expect_success(&self) -> Result<(), Failure> {
        let line = format!(
            "batchai job show --experiment cifar --name cifar_distributed {IN_WORKSPACE} --query executionState"
        );
        let output = corro_in(&self.dir).args(line.split_whitespace()).stdin(Stdio::null()).output();
        let output = output.map_err(|error| Failure::of(&error))?;
        match String::from_utf8_lossy(&output.stdout).trim() {
            "\"succeeded\"" => Ok(()),
            state => Err(Failure::new(format!("the tutorial's job ended as {state}"))),
        }
    }

    fn tell_result(&self) -> Result<(), Failure> {
        let text = std::fs::read(self.dir.join(MODEL)).map_err(|error| Failure::of(&error))?;
        let model: serde_json::Value = serde_json::from_slice(&text).map_err(|error| Failure::of(&error))?;
        let accuracy = model["test_accuracy"].as_f64().unwrap_or(0.0) * 100.0;
        let ranks = &model["ranks"];
        say(&format!(
            "\nThe model that {ranks} ranks trained names {accuracy:.1} % of unseen samples right (chance: 10 %)."
        ))
    }

    /// Ends the server as Ctrl-C does, and waits for it. Once is enough.
    fn close(&self) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(server.try_wait(), Ok(None)) {
            if let Some(pid) = rustix::process::Pid::from_raw(server.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            }
            let _ = server.wait();
        }
    }

    /// Leaves the directory where it is.
    fn keep(&self) -> PathBuf {
        if let Some(temporary) = self.temporary.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = temporary.keep();
        }
        self.dir.clone()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.close();
    }
}

/// This program, at home in `dir`: neither the user's configuration nor their SSH keys are touched.
fn corro_in(dir: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.current_dir(dir).env("HOME", dir).env("CORRO_CONFIG_DIR", dir.join("config")).env_remove("CORRO_SERVER");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AZURE_") {
            command.env_remove(name);
        }
    }
    command
}

fn check(line: &str, status: io::Result<ExitStatus>) -> Result<(), Failure> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("'corro {line}' ended with {status}"))),
        Err(error) => Err(Failure::new(format!("'corro {line}' cannot be run: {error}"))),
    }
}
