//! Programs that fail in real jobs in the ways that users meet most: the explanation names the cause and the step that
//! helps, on the command line and in the API.

use corro_test_support::skip;
use serde_json::{Value, json};

use crate::harness::host::python;
use crate::harness::{IN_WORKSPACE, Site};
use crate::says;

const CODE: &str = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code";

/// The explanation as the API answers and the dashboard shows it.
fn explanation(site: &Site, job: &str) -> Value {
    let job = format!("{}/experiments/cifar/jobs/{job}", site.workspace());
    site.arm("GET", &format!("{job}/why"), Value::Null).is(200).json()
}

#[test]
fn failures_of_python_scripts_are_explained() {
    let Some(python) = python() else {
        skip::missing_component("needs Python");
        return;
    };
    let run_python = format!("exec {} \"$@\"", python.display());
    let site = Site::start_with_tools(&[("python3", &run_python)], &["--no-containers"]);
    site.prepare(1);
    let code = site.share().join("code");
    std::fs::create_dir_all(code.join("lib")).expect("a directory of the share");
    let write = |name: &str, text: &str| std::fs::write(code.join(name), text).expect("a file of the share");
    write("lib/own_tools.py", "");
    write("foreign.py", "import no_such_package_of_corro\n");
    write("own.py", "import own_tools\n");
    write(
        "port.py",
        "import socket\nfirst = socket.socket()\nfirst.bind(('127.0.0.1', 0))\nfirst.listen()\n\
         socket.socket().bind(first.getsockname())\n",
    );
    let script = |name: &str| {
        let path = format!("{CODE}/{name}");
        json!({"horovodSettings": {"pythonScriptFilePath": path, "pythonInterpreterPath": "python3"}})
    };
    let custom = |command: &str| json!({"customToolkitSettings": {"commandLine": command}});
    // What a launcher writes after its workers have failed must not hide why.
    let report = "for i in $(seq 100); do echo \"line $i of a report\" >&2; done";
    let launcher = format!("python3 {CODE}/foreign.py || {{ {report}; exit 1; }}");
    let jobs = [
        ("foreign", script("foreign.py")),
        ("launched", custom(&launcher)),
        ("own", script("own.py")),
        ("gone", script("gone.py")),
        ("misspelled", custom("python3 $AZ_BATCHAI_JOB_MOUNTROOT/myshare/code/own.py")),
        ("port", script("port.py")),
        ("crash", custom("exec python3 -c 'import os; os.kill(os.getpid(), 11)'")),
        ("arguments", custom("exec python3 -c 'import argparse; argparse.ArgumentParser().parse_args()' --epoch 3")),
    ];
    for (name, settings) in jobs {
        site.submit_with(name, 1, settings, json!({}));
        assert_eq!(site.wait_for_end(name)["executionState"], "failed", "{name}");
    }
    let missing = "Python found no module 'no_such_package_of_corro'.";
    says(
        &site,
        "foreign",
        &["ended with exit code 1.", missing, "'corro submit --pip no_such_package_of_corro'", "pythonInterpreterPath"],
    );
    says(&site, "launched", &[missing, "foreign.py", "line 100 of a report"]);
    says(
        &site,
        "own",
        &["lib/own_tools.py of the job's files", "PYTHONPATH=lib", &format!("\"value\": \"{CODE}/lib\"")],
    );
    says(
        &site,
        "gone",
        &[
            "The script $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code/gone.py does not exist",
            "horovodSettings.pythonScriptFilePath",
        ],
    );
    says(&site, "misspelled", &["no variable $AZ_BATCHAI_JOB_MOUNTROOT", "Write $AZ_BATCHAI_JOB_MOUNT_ROOT instead"]);
    says(&site, "port", &["in use by another program", "See 'corro docs job-port-in-use'"]);
    says(&site, "crash", &["signal 11 (SIGSEGV)", "PYTHONFAULTHANDLER=1", "See 'corro docs crashed'"]);
    says(&site, "arguments", &["does not know these arguments: --epoch 3", "customToolkitSettings.commandLine"]);

    let explanation = explanation(&site, "foreign");
    assert_eq!(explanation["causes"][0]["docsKey"], "python-module-missing", "{explanation:#}");
    let sentence = explanation["causes"][0]["sentence"].as_str().expect("a sentence");
    assert!(sentence.ends_with(missing), "{sentence}");
    assert!(explanation["remedies"].as_array().is_some_and(|advice| advice.len() == 3), "{explanation:#}");
}

#[test]
fn a_job_that_needs_more_memory_than_its_node_is_explained() {
    let site = Site::start();
    site.prepare(0);
    let create = "--vm-size Standard_B1S --user-name me --password not-a-secret --target 1";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n small {create}")).ok();
    // It buffers until a line ends, which never happens.
    let job =
        site.job_json(1, json!({"customToolkitSettings": {"commandLine": "head -c 2G /dev/zero | tail"}}), json!({}));
    site.write("greedy.json", job.to_string());
    let at = format!("{IN_WORKSPACE} -e cifar -c small -n greedy");
    site.corro(&format!("batchai job create {at} -f greedy.json --storage-account-name mystorageaccount")).ok();
    let job = site.wait_for_end("greedy");
    let log = site.job_file("greedy", "execution.log");
    if log.contains("Memory for this job on this node: NO limit") {
        skip::unsupported_machine(format_args!("this machine allows no control groups: {log}"));
        return;
    }
    assert_eq!(job["executionState"], "failed", "{job:#}");
    let parts = ["1 GiB with the VM size STANDARD_B1S", "the kernel ended one", "'corro submit --memory 32G'"];
    says(&site, "greedy", &parts);
    says(&site, "greedy", &["See 'corro docs out-of-memory'"]);
}
