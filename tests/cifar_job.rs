//! The tutorial's training job: its own `job.json` with our Horovod from the wheel, and its own script of 2018. Needs the wheel
//! in `dist/` (`scripts/wheel`), a Python with Keras (`CORRO_TEST_PYTHON`, or the one from `scripts/python-env`) and CIFAR-10
//! (`CORRO_CIFAR10`, or the data beside the specification); skipped with a notice if one is missing.

mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use corro_test_support::skip;

use harness::{CommandOutput, IN_WORKSPACE, Site};
use serde_json::Value;

/// A small number of images of each set, in one epoch: every part of the job runs, in the time of a test.
const SHORTER: &str = " --epochs=1 --limit=128";

#[test]
fn the_tutorials_job_trains_with_our_horovod() {
    let (Some(wheels), Some(python), Some(data)) = (wheels(), python("jax"), cifar10()) else { return };
    let run_python = format!("exec {} \"$@\"", python.display());
    let site = Site::start_with_tools(
        &[("python", &run_python), ("apt", "echo apt $*")],
        &["--wheels", wheels.to_str().expect("a plain path")],
    );
    site.prepare(4);
    let upload = |from: &str, to: &str| {
        let source = checkout().join("examples/cifar10").join(from);
        let source = source.display();
        site.corro(&format!(
            "storage file upload --path cifar/{to} --share-name myshare --source {source} --account-name mystorageaccount"
        ))
        .ok();
    };
    upload("cifar10_keras.py", "cifar_cnn_distributed.py");
    upload("cifar10_data.py", "cifar10_data.py");
    // Linked instead of uploaded, to save disk space: it is as large as everything else.
    std::os::unix::fs::symlink(&data, site.share().join("cifar/cifar10")).expect("a link on the share");

    let mut job: Value =
        serde_json::from_slice(&std::fs::read(checkout().join("examples/cifar10/job.json")).expect("there"))
            .expect("a job file");
    let arguments = &mut job["properties"]["horovodSettings"]["commandLineArgs"];
    *arguments = format!("{}{SHORTER}", arguments.as_str().expect("the tutorial's")).into();
    job["properties"]["environmentVariables"] = serde_json::json!([{"name": "KERAS_BACKEND", "value": "jax"}]);
    site.submit("cifar_distributed", &job).ok();
    // Follows to the end of the job.
    let log = site.stream("cifar_distributed", "stdout.txt").ok().stdout;
    let ended = site.job("cifar_distributed");
    let complaints = site.log("cifar_distributed", "stderr.txt");
    assert_eq!(ended["executionState"], "succeeded", "{ended}\n{log}\n{complaints}");
    for text in ["128 train samples", "128 test samples", "Using real-time data augmentation.", "4/4"] {
        assert!(log.contains(text), "{text}: {log}");
    }
    for (node, _) in site.agents() {
        let installed = site.log("cifar_distributed", &format!("stdout-job_prep-{node}.txt"));
        assert!(installed.contains("Successfully installed") && installed.contains("horovod-0.29.0"), "{installed}");
    }
    let model = "cifar/saved_models/keras_cifar10_trained_model.h5";
    site.corro(&format!("storage file download --path {model} --share-name myshare --account-name mystorageaccount"))
        .ok();
    let accuracy = accuracy_of(&python, &site.path().join("keras_cifar10_trained_model.h5"), &data);
    assert!((accuracy - stated_accuracy(&log)).abs() < 1e-3, "{accuracy}: {log}");
    site.corro(&format!("batchai job delete {IN_WORKSPACE} -e cifar -n cifar_distributed -y")).ok();
}

#[test]
fn the_tutorials_script_of_2018_runs_unchanged() {
    let (Some(wheels), Some(python), Some(script)) = (wheels(), python("tensorflow"), seeds_script()) else { return };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("cifar_cnn_distributed.py"), script).expect("written");
    install(&python, &wheels, &path("packages"));
    // The script runs a hundred epochs divided by the ranks, so the images are few.
    let small = "import numpy as np; r = np.random.default_rng(1); pictures = lambda n: r.integers(0, 256, (n, 32, 32, 3), dtype='uint8'); labels = lambda n: r.integers(0, 10, (n, 1), dtype='uint8'); np.savez('small.npz', x_train=pictures(32), y_train=labels(32), x_test=pictures(32), y_test=labels(32))";
    let made = Command::new(&python).args(["-c", small]).current_dir(dir.path()).output().expect("python runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // All ranks create the directory when it is missing, and one of them may be late.
    std::fs::create_dir_all(path("out/saved_models")).expect("a directory");
    let run = |compat: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
        command.args(["run", "-np", "2", "--no-prefix"]).args(compat).arg(&python);
        command.args(["cifar_cnn_distributed.py", "--dir=out"]).current_dir(dir.path());
        command.env("PYTHONPATH", path("packages")).env("CIFAR10_DATA", path("small.npz"));
        command.env("KERAS_BACKEND", "tensorflow").env("TF_CPP_MIN_LOG_LEVEL", "2").env("OMP_NUM_THREADS", "1");
        CommandOutput::from(command.output().expect("it runs"))
    };
    let ended = run(&["--compat", "keras-2018"]).ok();
    for text in ["32 train samples", "Using real-time data augmentation.", "Epoch 50/50", "acc: ", "Test accuracy: "] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
    }
    assert!(path("out/saved_models/keras_cifar10_trained_model.h5").is_file());
    run(&[]).fails(1, &["\nhint: ", "corro run --compat keras-2018"]);
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}

fn missing<T>(what: &str) -> Option<T> {
    skip::missing_component(format_args!("needs {what}"));
    None
}

fn missing_data<T>(what: &str) -> Option<T> {
    skip::unsupported_machine(format_args!("needs {what}"));
    None
}

/// The directory with our wheel.
fn wheels() -> Option<PathBuf> {
    let directory = checkout().join("dist");
    let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut names = files.filter_map(|file| file.file_name().into_string().ok());
    match names.any(|name| name.starts_with("horovod-") && name.ends_with(".whl")) {
        true => Some(directory),
        false => missing("the wheel; scripts/wheel makes it"),
    }
}

/// A Python with Keras and this backend.
fn python(backend: &str) -> Option<PathBuf> {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target directory");
    let made = made.join("test-python/bin/python");
    let python = std::env::var_os("CORRO_TEST_PYTHON").map_or(made, PathBuf::from);
    let look =
        format!("import importlib.util as look; assert all(map(look.find_spec, ['{backend}', 'keras', 'scipy']))");
    let looked = Command::new(&python).args(["-c", &look]).output();
    match looked.is_ok_and(|looked| looked.status.success()) {
        true => Some(python),
        false => missing(&format!("a Python with Keras and {backend}; CORRO_TEST_PYTHON names one")),
    }
}

fn cifar10() -> Option<PathBuf> {
    let usual = checkout().join("../shared/data/cifar10");
    let data = std::env::var_os("CORRO_CIFAR10").map_or(usual, PathBuf::from);
    let packed = data.join("test_batch.bin.zst").exists();
    if packed && Command::new("zstd").arg("--version").output().is_err() {
        return missing("the program zstd, to read CIFAR-10");
    }
    if data.exists() { data.canonicalize().ok() } else { missing_data("CIFAR-10; CORRO_CIFAR10 names it") }
}

/// The script in the tutorial's pages, byte for byte.
fn seeds_script() -> Option<String> {
    let pages = std::fs::read_dir(checkout().join("../shared/seeds")).into_iter().flatten().flatten();
    let mut scripts = pages.filter_map(|page| {
        let text = std::fs::read_to_string(page.path()).ok()?;
        let script = text.split("```python\n").nth(1)?.split("```").next()?;
        script.contains("tf.ConfigProto()").then(|| script.to_owned())
    });
    scripts.next().or_else(|| missing_data("the tutorial's pages"))
}

/// Installs only our wheel into its own directory.
fn install(python: &Path, wheels: &Path, target: &Path) {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--pre", "horovod", "--find-links"]);
    let installed = pip.arg(wheels).arg("--target").arg(target).output().expect("pip runs");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
}

fn stated_accuracy(log: &str) -> f64 {
    let line = log.lines().find_map(|line| line.strip_prefix("Test accuracy: "));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("no accuracy in {log}"))
}

/// Accuracy of the model on the same images, by Keras without Horovod.
fn accuracy_of(python: &Path, model: &Path, data: &Path) -> f64 {
    let script = "import sys, keras, cifar10_data; _, (x, y) = cifar10_data.load(sys.argv[2]); model = keras.models.load_model(sys.argv[1]); said = model.predict(x[:128].astype('float32') / 255, verbose=0); print('accuracy', (said.argmax(1) == y[:128, 0]).mean())";
    let mut command = Command::new(python);
    command.args(["-c", script]).arg(model).arg(data).env("KERAS_BACKEND", "jax");
    let output = command.env("PYTHONPATH", checkout().join("examples/cifar10")).output().expect("python runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let found = stdout.lines().find_map(|line| line.strip_prefix("accuracy "));
    found.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{stdout}\n{stderr}"))
}
