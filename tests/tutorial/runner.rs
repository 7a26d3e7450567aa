//! Runs the tutorial with one program: types its commands as written, checks their output, and waits where the text says so. Used
//! with `corro`, a link named `az`, and the real `az`.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::harness::{CommandOutput, Site, host, wait_for};
use crate::texts::{self, COMMANDS, JOB_JSON, SCRIPT};

const STEPS: usize = 40;
const JOB: &str = "--resource-group batchai.horovod --workspace batchaidev --experiment cifar";

/// `python`, `apt` and `pip` for the tutorial's job. `None`, with a notice, if there is no Python.
pub fn tools() -> Option<[(&'static str, String); 3]> {
    // It cannot create environments: inside one, `pip` would be a real one.
    let python = format!("case \"$*\" in *EnvBuilder*) exit 1;; esac; exec {} \"$@\"", host::python()?.display());
    let stand_in = || "echo \"$(basename \"$0\") $*\"; echo \"$(basename \"$0\") warns\" >&2".to_owned();
    Some([("apt", stand_in()), ("pip", stand_in()), ("python", python)])
}

/// Runs one command of the tutorial after the other; they share the site.
pub struct TutorialRunner<'a> {
    site: &'a Site,
    program: &'static str,
    /// First output of each command.
    pub outputs: Vec<String>,
}

impl<'a> TutorialRunner<'a> {
    pub fn new(site: &'a Site, program: &'static str) -> Self {
        site.write("cifar_cnn_distributed.py", SCRIPT.replace("STEPS", &STEPS.to_string()));
        site.write("job.json", JOB_JSON);
        Self { site, program, outputs: Vec::new() }
    }

    pub fn assert_all_run(&self) {
        assert_eq!(self.outputs.len(), COMMANDS.len(), "every command was run");
    }

    /// The next command line.
    fn next_line(&mut self) -> &'static str {
        self.outputs.push(String::new());
        self.last_line()
    }

    fn last_line(&self) -> &'static str {
        COMMANDS[self.outputs.len() - 1].strip_prefix("az ").expect("the tutorial calls az")
    }

    fn run_next(&mut self) -> CommandOutput {
        let line = self.next_line();
        let ended = self.site.run_as(self.program, line);
        self.outputs.last_mut().expect("just added").push_str(&ended.stdout);
        ended
    }

    /// The same command again, as while waiting.
    fn repeat_last(&self) -> CommandOutput {
        self.site.run_as(self.program, self.last_line())
    }

    fn spawn_next(&mut self) -> Child {
        let line = self.next_line();
        let mut command = self.site.command(self.program);
        command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    }

    pub fn set_up(&mut self) {
        let group = self.run_next().json();
        check(
            &group,
            json!({"location": "eastus", "managedBy": null, "name": "batchai.horovod",
                   "properties": {"provisioningState": "Succeeded"}, "tags": null}),
        );
        let workspace = self.run_next().json();
        check(
            &workspace,
            json!({"location": "eastus", "name": "batchaidev", "provisioningState": "succeeded",
                   "resourceGroup": "batchai.horovod", "type": "Microsoft.BatchAI/workspaces"}),
        );
        let experiment = self.run_next().json();
        check(
            &experiment,
            json!({"name": "cifar", "provisioningState": "succeeded", "resourceGroup": "batchai.horovod",
                   "type": "Microsoft.BatchAI/workspaces/experiments"}),
        );
        let created = self.run_next().ok();
        assert!(created.stderr.contains("SSH key files"), "{}", created.stderr);
        let cluster: Value = serde_json::from_str(&created.stdout).expect("JSON");
        check(
            &cluster,
            json!({"name": "nc6cluster", "provisioningState": "succeeded", "vmPriority": "dedicated",
                   "vmSize": "STANDARD_NC6", "resourceGroup": "batchai.horovod", "subnet": null, "errors": null,
                   "scaleSettings": {"autoScale": null,
                                     "manual": {"nodeDeallocationOption": "requeue", "targetNodeCount": 4}}}),
        );
        let key = cluster["userAccountSettings"]["adminUserSshPublicKey"].as_str().expect("a key");
        let kept = std::fs::read_to_string(self.site.home().join(".ssh/id_rsa.pub")).expect("the key is kept");
        assert_eq!(key.trim(), kept.trim());

        let mut table = self.run_next().ok().stdout;
        wait_for("four idle nodes", || {
            table = self.repeat_last().ok().stdout;
            cells(&table) == cells(texts::CLUSTER_TABLE)
        });

        let account = self.run_next().json();
        check(
            &account,
            json!({"kind": "Storage", "location": "eastus", "name": "mystorageaccount",
                   "provisioningState": "Succeeded", "resourceGroup": "batchai.horovod",
                   "type": "Microsoft.Storage/storageAccounts"}),
        );
        assert_eq!(account["sku"]["name"], "Standard_LRS");
        assert_eq!(self.run_next().ok().stdout, "{\n  \"created\": true\n}\n", "the share");
        assert_eq!(self.run_next().ok().stdout, "{\n  \"created\": true\n}\n", "the directory");
        assert_eq!(self.run_next().ok().stdout, "");
        let on_share = std::fs::read(self.site.share().join("cifar/cifar_cnn_distributed.py")).expect("uploaded");
        assert_eq!(on_share, std::fs::read(self.site.path().join("cifar_cnn_distributed.py")).expect("written"));
    }

    pub fn watch_job(&mut self) {
        let job = self.run_next().json();
        check(
            &job,
            json!({"name": "cifar_distributed", "nodeCount": 4, "toolType": "horovod", "resourceGroup": "batchai.horovod",
                   "provisioningState": "succeeded", "schedulingPriority": "normal",
                   "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
                   "jobPreparation": {"commandLine": "apt update; apt install mpi-default-dev mpi-default-bin -y; pip install keras horovod"}}),
        );
        assert_eq!(job["horovodSettings"]["processCount"], 4);
        assert_eq!(job["containerSettings"]["imageSourceRegistry"]["image"], "tensorflow/tensorflow:1.8.0-gpu");
        assert_eq!(job["mountVolumes"]["azureFileShares"][0]["accountName"], "mystorageaccount");
        assert!(!job.to_string().contains("<AZURE_BATCHAI"), "placeholders are filled: {job}");

        let mut state = self.run_next().ok().stdout;
        wait_for("the job to run", || {
            assert!(["\"queued\"\n", "\"running\"\n"].contains(&state.as_str()), "{state}");
            state = self.repeat_last().ok().stdout;
            state == "\"running\"\n"
        });
        assert_eq!(self.run_next().ok().stdout, texts::COUNTS_WHILE_RUNNING);

        // Every rank has printed its first line and waits: the files do not change.
        let stdout = || self.read_log("stdout.txt").lines().filter(|line| line.ends_with("is here")).count();
        wait_for("all ranks to begin", || stdout() == 4);
        let table = self.run_next().ok().stdout;
        let list = format!("batchai job file list {JOB} --job cifar_distributed");
        let files = self.site.run_as(self.program, &list).json();
        let nodes = check_file_names(&files);
        assert_eq!(cells(&table), cells(&file_table(&files)));
        check_preparation(&nodes, |name| self.read_log(name));
    }

    pub fn read_output(&mut self) {
        let stream = self.spawn_next();
        std::fs::write(self.site.share().join("cifar/go"), "").expect("the gate opens");
        let output = stream.wait_with_output().expect("the stream ends by itself");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stderr).contains("Start streaming"));
        let text = String::from_utf8(output.stdout).expect("text");
        for rank in 0..4 {
            let mine = |line: &&str| line.contains(&format!("rank {rank} "));
            let seen: Vec<&str> = text.lines().filter(mine).collect();
            assert_eq!(seen, expected_lines(rank), "rank {rank}");
        }
        assert_eq!(text.lines().count(), 4 * (STEPS + 1) + 1, "{text}");
        assert!(text.contains("\nSaved trained model at "), "{text}");
        assert_eq!(text, self.read_log("stdout.txt"));
        let job = self.site.wait_for_end("cifar_distributed");
        assert_eq!(job["executionState"], "succeeded", "{job}");
        assert_eq!(job["executionInfo"]["exitCode"], 0);
        assert_eq!(self.read_log("stderr.txt"), "");
    }

    pub fn fetch_model(&mut self) {
        let file = self.run_next().json();
        check(&file, json!({"name": "keras_cifar10_trained_model.h5", "content": null, "metadata": {}}));
        let made = std::fs::read(self.site.share().join("cifar/saved_models/keras_cifar10_trained_model.h5"));
        let made = made.expect("rank 0 wrote it");
        assert_eq!(file["properties"]["contentLength"], made.len());
        let fetched = std::fs::read(self.site.path().join("keras_cifar10_trained_model.h5"));
        assert!(fetched.expect("downloaded") == made, "the bytes are the same");
    }

    pub fn scale_to_zero(&mut self) {
        self.site.wait_for_nodes(4);
        let cluster = self.run_next().json();
        assert_eq!(cluster["scaleSettings"]["manual"]["targetNodeCount"], 0);
        self.site.wait_for_nodes(0);
        assert_eq!(self.site.cluster()["currentNodeCount"], 0);
        wait_for("the agents to end", || self.site.agents().is_empty());
        let back = self.last_line().replace("--target 0", "--target 2");
        self.site.run_as(self.program, &back).ok();
        self.site.wait_for_nodes(2);
        assert_eq!(self.site.agents().len(), 2);
    }

    pub fn delete_all(&mut self) {
        let line = self.next_line();
        let question = "Are you sure you want to perform this operation? (y/n)";
        match self.site.on_terminal(self.program, line, question, "y\n") {
            Some(ended) => assert_eq!((ended.code, ended.stdout.contains(question)), (0, true), "{}", ended.stdout),
            None => assert_eq!(self.site.run_as(self.program, &format!("{line} --yes")).ok().stdout, ""),
        }
        let says = |line: &str| self.site.run_as(self.program, line).ok().stdout;
        assert_eq!(says("group exists --name batchai.horovod"), "false\n");
        assert_eq!(says("group list"), "[]\n");
        assert_eq!(says("batchai workspace list"), "[]\n");
        assert_eq!(says("storage account list"), "[]\n");
        let show = |line: &str| self.site.run_as(self.program, line);
        show("batchai workspace show -g batchai.horovod -n batchaidev").fails(3, &[]);
        show("batchai cluster show -g batchai.horovod -w batchaidev -n nc6cluster").fails(3, &[]);
        show(&format!("batchai job show {JOB} --name cifar_distributed")).fails(3, &[]);
        assert!(!self.site.share().exists(), "the share's files are gone");
        assert!(!self.site.data().join("shares/mystorageaccount").exists(), "and the account's directory");
        assert_eq!(self.site.agents(), [], "no agent is left");
        assert_eq!(self.site.node_processes(), [] as [u32; 0], "no process of a node is left");
        let nodes = std::fs::read_dir(self.site.data().join("nodes")).map_or(0, |entries| entries.count());
        assert_eq!(nodes, 0, "no directory of a node is left");
    }

    fn read_log(&self, name: &str) -> String {
        let job = self.site.job("cifar_distributed");
        let segment = job["jobOutputDirectoryPathSegment"].as_str().expect("a path").to_owned();
        let path = self.site.share().join("cifar").join(segment).join("stdouterr").join(name);
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

/// A table's text without its alignment, in which versions of the real `az` differ. The tests of `cli::output` check that
/// `corro` aligns as the tutorial does.
pub fn cells(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

fn expected_lines(rank: usize) -> Vec<String> {
    let steps =
        (1..=STEPS).map(|step| format!("{step:4}/1563 [..............................] - rank {rank} - acc: 0.0312"));
    std::iter::once(format!("rank {rank} of 4 is here")).chain(steps).collect()
}

/// Every field of `expected` is in `found` with the same value.
#[track_caller]
fn check(found: &Value, expected: Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[name], value, "{name} of {found}");
    }
}

/// 14 files, in byte order, named after four nodes. Returns the node ids.
fn check_file_names(files: &Value) -> Vec<String> {
    let files = files.as_array().expect("a list");
    let names: Vec<&str> = files.iter().map(|file| file["name"].as_str().expect("a name")).collect();
    let node = |name: &&str| Some(name.strip_prefix("execution-")?.strip_suffix(".log")?.to_owned());
    let nodes: Vec<String> = names.iter().filter_map(node).collect();
    assert_eq!(nodes.len(), 4, "{names:?}");
    for (at, node) in nodes.iter().enumerate() {
        // tvm-NUMBER_INDEX-YYYYMMDDtHHMMSSz-p
        let [tvm, number, time, p] = node.split('-').collect::<Vec<_>>()[..] else { panic!("{node}") };
        let (number, index) = number.split_once('_').unwrap_or_else(|| panic!("{node}"));
        assert_eq!((tvm, index, p), ("tvm", (at + 1).to_string().as_str(), "p"), "{node}");
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "99999999t999999z", "{node}");
        assert!(number.bytes().all(|byte| byte.is_ascii_digit()), "{node}");
    }
    let of_nodes = |make: fn(&str) -> String| nodes.iter().map(|node| make(node)).collect::<Vec<_>>();
    let expected = [
        of_nodes(|node| format!("execution-{node}.log")),
        of_nodes(|node| format!("stderr-job_prep-{node}.txt")),
        vec!["stderr.txt".to_owned()],
        of_nodes(|node| format!("stdout-job_prep-{node}.txt")),
        vec!["stdout.txt".to_owned()],
    ];
    assert_eq!(names, expected.concat());
    assert_eq!(names.len(), 14);
    assert!(files.iter().all(|file| file["fileType"] == "file" && file["downloadUrl"].is_string()));
    nodes
}

/// The preparation ran once on every node, and its output went into the node's own files.
fn check_preparation(nodes: &[String], read: impl Fn(&str) -> String) {
    for node in nodes {
        assert_eq!(
            read(&format!("stdout-job_prep-{node}.txt")),
            "apt update\napt install mpi-default-dev mpi-default-bin -y\npip install keras horovod\n"
        );
        assert_eq!(read(&format!("stderr-job_prep-{node}.txt")), "apt warns\napt warns\npip warns\n");
    }
}

/// The tutorial's table with these files, computed independently of the product's code.
fn file_table(files: &Value) -> String {
    let mut rows = Vec::new();
    for file in files.as_array().expect("a list") {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        rows.push([
            text(&file["name"]),
            text(&file["fileType"]),
            file["contentLength"].to_string(),
            text(&file["lastModified"]),
        ]);
    }
    let headers = ["Name", "Type", "Size", "Modified"].map(str::to_owned);
    let widest = |column: usize| rows.iter().map(|row: &[String; 4]| row[column].len()).max().unwrap_or(0);
    let width = |column: usize| widest(column).max(headers[column].len() + 2);
    let (name, kind, size) = (width(0), width(1), width(2));
    let line = |row: &[String; 4]| {
        let [a, b, c, d] = row;
        format!("{a:<name$}  {b:<kind$}  {c:>size$}  {d}").trim_end().to_owned() + "\n"
    };
    let dashes = [0, 1, 2, 3].map(|column| "-".repeat(width(column)));
    let lines = [line(&headers), line(&dashes)].into_iter().chain(rows.iter().map(line));
    lines.collect()
}
