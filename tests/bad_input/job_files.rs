//! Rejected job files, names and scripts.

use crate::harness::{IN_WORKSPACE, Site, host};
use serde_json::{Value, json};

/// A series of refusals on one site; none of them leaves anything behind.
#[test]
fn refusals_name_what_is_wrong() {
    let site = Site::start();
    site.prepare(0);
    let create =
        |more: &str| format!("batchai job create {IN_WORKSPACE} -e cifar -c nc6cluster -f job.json -n j {more}");
    let refused = |file: &str, says: &[&str]| {
        site.write("job.json", file);
        let ended = site.corro(&create("")).fails(1, &["job.json"]).fails(1, says);
        assert_eq!(ended.stdout, "");
    };

    // Malformed: file, line, column, field.
    refused("{\"properties\": {\n  \"nodeCount\": 1,,\n}}", &["line 2, column 18"]);
    refused("{\"properties\": {\n  \"nodeCount\": 1", &["line 2"]);
    refused("", &["line 1"]);
    let word = "{\"properties\": {\n  \"nodeCount\": \"four\",\n  \"stdOutErrPathPrefix\": \"x\"\n}}";
    refused(word, &["line 2, column 21", "field 'properties.nodeCount'", "four"]);
    let nested = "{\"properties\": {\"nodeCount\": 1, \"stdOutErrPathPrefix\": \"x\",\n \"mountVolumes\": {\"azureFileShares\": [{\"azureFileUrl\": 5}]}}}";
    refused(nested, &["line 2", "field 'properties.mountVolumes.azureFileShares[0].azureFileUrl'"]);

    // Well-formed, but not a job.
    let job = |change: fn(&mut Value)| {
        let mut job = json!({"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
                             "customToolkitSettings": {"commandLine": "echo hi"}});
        change(&mut job);
        json!({"properties": job}).to_string()
    };
    let without_count = job(|job| drop(job.as_object_mut().expect("an object").remove("nodeCount")));
    refused(&without_count, &["'properties.nodeCount'", "missing"]);
    refused(&job(|job| job["nodeCount"] = json!(0)), &["nodeCount is 0", "at least 1"]);
    refused(&job(|job| job["nodeCount"] = json!(-4)), &["nodeCount is -4", "at least 1"]);
    let two = job(|job| job["horovodSettings"] = json!({"pythonScriptFilePath": "x.py"}));
    refused(&two, &["customToolkitSettings, horovodSettings", "exactly one"]);
    refused(&job(|job| job["customToolkitSettings"] = Value::Null), &["no toolkit settings", "exactly one of"]);
    // Settings that the service accepted are accepted, and fail with the reason.
    let unsupported = job(|job| {
        let vault = json!({"sourceVault": {"id": "v"}, "secretUrl": "https://v/s"});
        job["secrets"] = json!([{"name": "KEY", "valueSecretReference": vault}]);
    });
    site.write("job.json", unsupported);
    site.corro(&create("")).ok();
    let failed = site.job("j");
    assert_eq!(failed["executionState"], "failed", "{failed}");
    let reason = failed["executionInfo"]["errors"][0]["message"].as_str().expect("text").to_owned();
    for words in ["properties.secrets (KEY)", "key vaults are not supported", "give the value itself"] {
        assert!(reason.contains(words), "{reason}");
    }
    site.corro(&format!("batchai job delete {IN_WORKSPACE} -e cifar -n j --yes")).ok();
    let empty = job(|job| job["customToolkitSettings"] = json!({"commandLine": "  "}));
    refused(&empty, &["properties.customToolkitSettings.commandLine"]);

    // A misspelt field is ignored, as by az, but with a warning.
    site.write("job.json", job(|job| job["nodeCont"] = json!(4)));
    let warned = site.corro(&create("")).ok();
    assert!(warned.stderr.contains("nodeCont") && warned.stderr.contains("job.json"), "{}", warned.stderr);
    site.corro(&format!("batchai job delete {IN_WORKSPACE} -e cifar -n j --yes")).ok();

    // Unknown names, and invalid names.
    let says = |line: &str, code: i32, says: &[&str]| drop(site.corro(line).fails(code, says));
    let place = |g: &str, w: &str, e: &str, c: &str, n: &str| {
        format!("batchai job create -g {g} -w {w} -e {e} -c {c} -n {n} -f job.json")
    };
    let (g, w) = ("batchai.horovod", "batchaidev");
    says(&place(g, w, "cifar", "nocluster", "j"), 1, &["nocluster", "not found", "hint: list the clusters"]);
    says(
        &place(g, w, "noexperiment", "nc6cluster", "j"),
        1,
        &["noexperiment", "not found", "hint: list the experiments"],
    );
    says(
        &place(g, "noworkspace", "cifar", "nc6cluster", "j"),
        1,
        &["noworkspace", "not found", "hint: list the workspaces"],
    );
    says(
        &place("nogroup", w, "cifar", "nc6cluster", "j"),
        1,
        &["nogroup", "could not be found", "hint: list the groups"],
    );
    says(&place(g, w, "cifar", "nc6cluster", "j.k"), 1, &["'j.k'", "not a valid job name", "1 to 64"]);
    says(&place(g, w, "cifar", "nc6cluster", &"j".repeat(65)), 1, &["not a valid job name"]);
    says(&place(g, w, "cifar", "nc6cluster", "..%2Fj"), 1, &["not a valid job name"]);
    says("batchai workspace create -g batchai.horovod -n a/b", 1, &["'a/b'", "not a valid workspace name"]);
    says(&format!("batchai experiment create {IN_WORKSPACE} -n e!"), 1, &["'e!'", "not a valid experiment name"]);
    says("storage account create -g batchai.horovod -n NoCapitals", 1, &["NoCapitals", "lower-case"]);
    says("storage share create -n S --account-name mystorageaccount", 1, &["'S'", "not a valid share name"]);
    let size = format!("batchai cluster create {IN_WORKSPACE} -n other -s Standard_Nothing -t 1 -u me -p secret");
    says(&size, 1, &["Standard_Nothing", "properties.vmSize"]);
    says(&create("").replace("job.json", "missing.json"), 1, &["cannot read the configuration file missing.json"]);
    says("batchai job create", 2, &["required"]);
    says(&format!("batchai job show {IN_WORKSPACE} -e cifar -n j"), 3, &["j"]);
    let jobs = site.corro(&format!("batchai job list {IN_WORKSPACE} -e cifar")).json();
    assert_eq!(jobs, json!([]), "nothing was left");
}

/// Errors that only the node detects.
#[test]
fn a_job_that_cannot_run_says_why() {
    let Some(python) = host::python() else { return };
    let python = format!("exec {} \"$@\"", python.display());
    let site = Site::start_with_tools(&[("python", &python)], &["--no-containers"]);
    site.prepare(1);
    let script =
        json!({"horovodSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/missing.py"}});
    site.submit_with("noscript", 1, script, json!({}));
    let job = site.wait_for_end("noscript");
    assert_eq!((&job["executionState"], &job["executionInfo"]["exitCode"]), (&json!("failed"), &json!(2)), "{job}");
    let error = job["executionInfo"]["errors"][0].to_string();
    assert!(error.contains("can't open file") && error.contains("missing.py"), "{error}");
    assert!(site.log("noscript", "stderr.txt").contains("can't open file"));

    site.submit_custom("nocommand", 1, "surely-no-such-command");
    let job = site.wait_for_end("nocommand");
    assert_eq!(job["executionInfo"]["exitCode"], 127, "{job}");
    assert!(job["executionInfo"]["errors"].to_string().contains("surely-no-such-command: command not found"), "{job}");

    // A missing share is a failed mount.
    let volumes = json!({"azureFileShares": [{"relativeMountPath": "gone",
        "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/gone"}]});
    let settings = json!({"customToolkitSettings": {"commandLine": "echo"}});
    site.submit_with(
        "noshare",
        1,
        settings,
        json!({"mountVolumes": volumes, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/gone"}),
    );
    let job = site.wait_for_end("noshare");
    assert_eq!(job["executionInfo"]["errors"][0]["code"], "AZFMountError", "{job}");
    // The server's own message for this.
    assert!(job["executionInfo"]["errors"].to_string().contains("no share 'gone'"), "{job}");
    // Followers of its output are shown why there is none.
    let streamed = site.stream("noshare", "stdout.txt").ok();
    for text in ["not found for the completed job", "no share 'gone'"] {
        assert!(streamed.stderr.contains(text), "{text:?} in {}", streamed.stderr);
    }
    site.wait_for_nodes(1);
}

/// It is accepted, as the cluster may grow; but the reason for waiting is shown.
#[test]
fn a_job_larger_than_its_cluster_says_what_it_waits_for() {
    let site = Site::start();
    site.prepare(1);
    let settings = json!({"customToolkitSettings": {"commandLine": "true"}});
    let submitted = site.submit("big", &site.job_json(8, settings, json!({}))).ok();
    let why = "needs 8 nodes and cluster nc6cluster has at most 1";
    assert!(submitted.stderr.contains(why), "{}", submitted.stderr);
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n big --yes")).ok();
    assert_eq!(site.job("big")["executionState"], "failed");
}

/// Without permission, a job that requires a container does not run outside of one.
#[test]
fn a_container_job_is_refused_unless_allowed() {
    let site = Site::start_with(&[]);
    site.prepare(1);
    let settings =
        json!({"customToolkitSettings": {"commandLine": "touch $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/ran"}});
    let container = json!({"containerSettings": {"imageSourceRegistry": {"image": "tensorflow/tensorflow:1.8.0-gpu"}}});
    let submitted = site.submit("contained", &site.job_json(1, settings, container)).ok();
    let warning = "warning: the job asks for a container: no engine answers on this machine";
    assert!(submitted.stderr.contains(warning), "{}", submitted.stderr);
    let job = site.wait_for_end("contained");
    assert_eq!(job["executionState"], "failed", "{job}");
    let error = &job["executionInfo"]["errors"][0];
    assert_eq!(error["code"], "FailedStartingContainer", "{error}");
    let details = error["details"].to_string();
    assert!(details.contains("--no-containers") && details.contains("tensorflow/tensorflow:1.8.0-gpu"), "{details}");
    assert!(!site.share().join("cifar/ran").exists());
    let waited = site.corro(&format!("batchai job wait {IN_WORKSPACE} -e cifar -n contained"));
    assert_ne!(waited.code, 0);
    assert!(waited.stderr.contains("--no-containers"), "{}", waited.stderr);
}
