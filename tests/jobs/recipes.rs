//! The service's sample job files, unmodified: all are accepted and run to their end, with fake scripts that print their
//! arguments and environment. The expected values of each process are fixed here.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use corro_test_support::skip;
use serde_json::{Value, json};

use crate::harness::{IN_WORKSPACE, Site};

/// Prints its arguments and variables. Parameter servers serve until they are stopped; workers connect to all of them.
const PROBE: &str = r#"
import json, os, socket, sys, time
names = ("TF_CONFIG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
seen = {name: value for name, value in os.environ.items() if name.startswith(("AZ_BATCH", "OMPI_COMM", "PMI_")) or name in names}
print(json.dumps({"args": sys.argv[1:], "env": seen}), flush=True)
config = json.loads(os.environ.get("TF_CONFIG", "{}"))
if config:
    task, cluster = config["task"], config["cluster"]
    host, port = cluster[task["type"]][task["index"]].split(":")
    door = socket.create_server((host, int(port)))
    while task["type"] == "ps":
        door.accept()
    for server in cluster["ps"]:
        host, port = server.split(":")
        for left in reversed(range(1000)):
            try:
                socket.create_connection((host, int(port))).close()
                break
            except ConnectionRefusedError:
                if not left:
                    raise
                time.sleep(0.02)
"#;

const SCRIPTS: [&str; 12] = [
    "cntk/TrainResNet_CIFAR10_Distributed.py",
    "cntk/ConvNet_CIFAR10_DataAug_Distributed.py",
    "cntk/ConvNet_MNIST.py",
    "caffe2/resnet50_trainer.py",
    "chainer/train_mnist.py",
    "classification_samples/batch_image_label.py",
    "horovod/pytorch_mnist.py",
    "horovod/tensorflow_mnist.py",
    "keras/mnist_cnn.py",
    "pytorch/mnist_trainer.py",
    "tensorflow/mnist_replica.py",
    "tensorflow/convolutional.py",
];

const PREPARATIONS: [&str; 4] = [
    "cntk/jobprep_cntk_distributed_ib.sh",
    "cntk/CIFAR-10_data_prepare.sh",
    "chainer/jobprep.sh",
    "horovod/jobprep_benchmark.sh",
];

#[test]
fn every_recipe_runs_to_its_end() {
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/spec/recipes");
    if !recipes.is_dir() {
        return skip::unsupported_machine("the service's sample job files are not here");
    }
    let tools = [
        // No virtual environment: packages of the preparations are not available here.
        ("python", r#"[ "$1" = -c ] && exit 1; exec python3 "$@""#),
        ("cntk", r#"exec python3 "$(dirname "$0")/probe.py" "$@""#),
        ("apt", r#"echo "apt $*""#),
        ("pip", r#"echo "pip $*""#),
    ];
    let site = Site::start_with_tools(&tools, &["--no-containers"]);
    site.write("bin/probe.py", PROBE);
    furnish(&site);

    let expected = expected();
    let mut found: Vec<String> = std::fs::read_dir(&recipes)
        .expect("the recipes")
        .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".job.json")?.to_owned()))
        .collect();
    found.sort();
    assert_eq!(found, expected.keys().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    for recipe in expected.keys() {
        let file = recipes.join(format!("{recipe}.job.json"));
        let (name, cluster) =
            (job_name(recipe), if recipe.contains("BrainScript") { "external" } else { "nc6cluster" });
        let create = format!("batchai job create {IN_WORKSPACE} -e cifar -c {cluster} -n {name}");
        site.corro(&format!("{create} -f {} --storage-account-name mystorageaccount", file.display())).ok();
    }
    for (recipe, lines) in &expected {
        let job = site.wait_for_end(&job_name(recipe));
        assert_eq!(job["executionState"], "succeeded", "{recipe}: {job}\n{}", everything(&logs(&site, recipe, &job)));
        let seen = seen(&logs(&site, recipe, &job), &job);
        assert_eq!(&seen, lines, "{recipe}");
    }
}

/// Output of each process of each recipe, as `FILE: who: words`, in order.
fn expected() -> BTreeMap<&'static str, Vec<String>> {
    let ranks = |n: usize, per_node: usize, words: &str| -> Vec<String> {
        (0..n).map(|rank| format!("stdout.txt: rank {rank} of {n}, local {}: {words}", rank % per_node)).collect()
    };
    let model = "MOUNTS/logs/SEGMENT/outputs";
    let brain = |name: &str, more: &str| {
        format!(
            "configFile=ROOT/external/cntk_samples/{name} rootDir=. dataDir=ROOT/external/mnist_database outputDir=ROOT/external/SEGMENT/outputs/Models{more}"
        )
    };
    let worker = |index: usize| {
        format!(
            "stdout-wk-{index}.txt: worker {index}: --job_name=worker --num_gpus=1 --ps_hosts=node0:PORT --worker_hosts=node0:PORT,node1:PORT --train_steps 10000 --checkpoint_dir={model}/Models --log_dir={model}/Logs --task_index={index} --data_dir="
        )
    };
    let server = "stdout-ps-0.txt: ps 0: --job_name=ps --num_gpus=0 --ps_hosts=node0:PORT --worker_hosts=node0:PORT,node1:PORT --task_index=0 --data_dir=MOUNTS/data/mnist_data";
    let caffe2 = |index: usize| {
        format!(
            "stdout-{index}.txt: rank {index} of 2, local 0: --num_shards 2 --shard_id {index} --run_id 0 --epoch_size 2000 --num_epochs 5 --train_data MOUNTS/data/mnist_data/mnist_train_lmdb --file_store_path TEMP/shared"
        )
    };
    let torch = |index: usize| {
        format!(
            "stdout-{index}.txt: rank {index} of 2, local 0: --epochs 10 --world-size 2 --dist-backend gloo --dist-url file://TEMP/shared/pytorch-init --rank {index}"
        )
    };
    let alone = || vec!["stdout-wk-0.txt: worker 0: ".to_owned()];
    let scoring = format!(
        "--dataset_path MOUNTS/data/unlabeled_images --model_path MOUNTS/data/pretained_models/inception_v3.ckpt --label_path MOUNTS/data/pretained_models/imagenet_slim_labels.txt --output_dir {model} --batch_size 64"
    );
    BTreeMap::from([
        (
            "CNTK-GPU-BrainScript-Distributed",
            ranks(2, 1, &brain("DistributedConvNet_MNIST.cntk", " parallelTrain=true")),
        ),
        ("CNTK-GPU-BrainScript", ranks(1, 1, &brain("ConvNet_MNIST.cntk", ""))),
        (
            "CNTK-GPU-Python-Distributed-Infiniband",
            ranks(8, 4, &format!("--datadir TEMP -outputdir {model} -n resnet110 -e 5")),
        ),
        ("CNTK-GPU-Python-Distributed", ranks(2, 1, &format!("--datadir TEMP --outputdir {model} -n 5"))),
        ("CNTK-GPU-Python", ranks(1, 1, &format!("MOUNTS/data/mnist_data {model}"))),
        ("Caffe2-GPU-Distributed", vec![caffe2(0), caffe2(1)]),
        ("Chainer-GPU-Distributed-Infiniband", ranks(8, 4, &format!("-g --communicator non_cuda_aware -o {model}"))),
        ("Chainer-GPU-Distributed", ranks(2, 1, &format!("-g -o {model}"))),
        ("Distributed-Batch-Scoring-in-Tensorflow-with-GPU", ranks(2, 1, &scoring)),
        ("Horovod-Infiniband-Benchmark", ranks(8, 4, "--model resnet101 --batch_size 64 --variable_update horovod")),
        ("Horovod-PyTorch", ranks(2, 1, "")),
        ("Horovod-Tensorflow", ranks(2, 1, "")),
        ("Keras-GPU.cntk", ranks(1, 1, "")),
        ("Keras-GPU.tensorflow", alone()),
        ("PyTorch-GPU-Distributed-Gloo", vec![torch(0), torch(1)]),
        ("TensorFlow-GPU-Distributed", vec![server.to_owned(), worker(0), worker(1)]),
        ("TensorFlow-GPU", alone()),
        ("tutorial-horovod-cifar", ranks(4, 1, "--dir=MOUNTS/myshare/cifar")),
    ])
}

/// Creates shares with scripts, the container, and a second cluster that mounts a share at `external`.
fn furnish(site: &Site) {
    site.prepare(4);
    for share in ["logs", "scripts", "external"] {
        site.corro(&format!("storage share create -n {share} --account-name mystorageaccount")).ok();
    }
    let shares = site.data().join("shares/mystorageaccount");
    std::fs::create_dir_all(shares.join(".containers/data")).expect("a container");
    let write = |path: PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().expect("a share")).expect("directories");
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("readable");
    };
    SCRIPTS.iter().for_each(|script| write(shares.join("scripts").join(script), PROBE));
    write(shares.join("myshare/cifar/cifar_cnn_distributed.py"), PROBE);
    let place = "$AZ_BATCHAI_JOB_TEMP/benchmarks/scripts/tf_cnn_benchmarks";
    let prepare = format!(
        "set -e; mkdir -p {place}; cp $AZ_BATCHAI_JOB_MOUNT_ROOT/scripts/keras/mnist_cnn.py {place}/tf_cnn_benchmarks.py"
    );
    PREPARATIONS.iter().for_each(|script| write(shares.join("scripts").join(script), &prepare));
    let cluster = json!({"properties": {
        "vmSize": "Standard_NC6", "scaleSettings": {"manual": {"targetNodeCount": 2}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "not-a-secret"},
        "nodeSetup": {"mountVolumes": {"azureFileShares": [{
            "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/external",
            "relativeMountPath": "external"
        }]}}
    }});
    site.write("external.json", cluster.to_string());
    let create = format!("batchai cluster create {IN_WORKSPACE} -n external -f external.json");
    site.corro(&format!("{create} --storage-account-name mystorageaccount")).ok();
}

fn job_name(recipe: &str) -> String {
    recipe.replace('.', "_")
}

fn logs(site: &Site, recipe: &str, job: &Value) -> PathBuf {
    let share = match recipe {
        "tutorial-horovod-cifar" => "myshare/cifar",
        name if name.contains("BrainScript") => "external",
        _ => "logs",
    };
    let segment = job["jobOutputDirectoryPathSegment"].as_str().expect("a path");
    site.data().join("shares/mystorageaccount").join(share).join(segment).join("stdouterr")
}

/// Output of the processes of a job, with placeholders for paths.
fn seen(logs: &Path, job: &Value) -> Vec<String> {
    let segment = job["jobOutputDirectoryPathSegment"].as_str().expect("a path");
    let is_mpi = !["tensorflow", "caffe2", "pytorch"].contains(&job["toolType"].as_str().expect("a kind"));
    let mut lines = Vec::new();
    for (file, text) in files(logs).into_iter().filter(|(file, _)| file.starts_with("stdout") && !file.contains("prep"))
    {
        for line in text.lines() {
            let said: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let variable = |name: &str| said["env"][name].as_str();
            let need = |name: &str| variable(name).unwrap_or_else(|| panic!("{name} is missing: {line}"));
            let config: Value =
                variable("TF_CONFIG").map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"));
            let who = match (config.get("task"), job["toolType"] == "tensorflow") {
                (Some(task), _) => {
                    assert_eq!(task["index"].to_string(), need("AZ_BATCHAI_TASK_INDEX"), "{line}");
                    format!("{} {}", task["type"].as_str().expect("a type"), task["index"])
                }
                (None, true) => format!("worker {}", need("AZ_BATCHAI_TASK_INDEX")),
                (None, false) => {
                    assert_eq!(
                        (need("RANK"), need("PMI_RANK")),
                        (need("OMPI_COMM_WORLD_RANK"), need("RANK")),
                        "{line}"
                    );
                    format!("rank {} of {}, local {}", need("RANK"), need("WORLD_SIZE"), need("LOCAL_RANK"))
                }
            };
            assert_eq!(variable("AZ_BATCHAI_MPI_MASTER_NODE").is_some(), is_mpi, "{line}");
            assert_eq!(need("AZ_BATCHAI_NUM_GPUS"), super::gpus_of_a_node(), "{line}");
            let words: Vec<&str> = said["args"].as_array().expect("words").iter().filter_map(Value::as_str).collect();
            let mut words = words.join(" ");
            for (name, place) in [
                ("AZ_BATCHAI_JOB_MOUNT_ROOT", "MOUNTS"),
                ("AZ_BATCHAI_JOB_TEMP", "TEMP"),
                ("AZ_BATCHAI_MOUNT_ROOT", "ROOT"),
            ] {
                words = words.replace(need(name), place);
            }
            words = words.replace(segment, "SEGMENT");
            for (idx, address) in need("AZ_BATCH_HOST_LIST").split(',').enumerate() {
                words = without_ports(&words, address, &format!("node{idx}"));
            }
            lines.push(format!("{file}: {who}: {words}"));
        }
    }
    lines.sort();
    lines
}

/// `ADDRESS:2222` as `NAME:PORT`.
fn without_ports(words: &str, address: &str, name: &str) -> String {
    let before = format!("{address}:");
    let mut parts = words.split(&before);
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |text, part| format!("{text}{name}:PORT{}", part.trim_start_matches(|c: char| c.is_ascii_digit())))
}

fn files(logs: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(logs).into_iter().flatten().flatten();
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    files.filter_map(|file| Some((file.file_name().to_str()?.to_owned(), text(&file.path())))).collect()
}

fn everything(logs: &Path) -> String {
    files(logs).iter().map(|(name, text)| format!("--- {name}\n{text}")).collect()
}
