//! Jobs that plant links and name paths to make their agent write or show foreign files; and commands that would run outside
//! the isolation. Real processes; the parent file runs most of it again as an unprivileged user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use corro_test_support::skip;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{IN_WORKSPACE, Site, signal, wait_for};

/// The error detail of that name.
fn detail(error: &Value, name: &str) -> String {
    let found = error["details"].as_array().into_iter().flatten().find(|detail| detail["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {error}"))["value"].as_str().expect("text").to_owned()
}

fn custom(command: &str) -> Value {
    json!({"customToolkitSettings": {"commandLine": command}})
}

/// A job that mounts these volumes beside its share.
fn submit(site: &Site, name: &str, volumes: Value, command: &str) {
    let mut job = site.job_json(1, custom(command), json!({}));
    let all = job["properties"]["mountVolumes"].as_object_mut().expect("an object");
    all.extend(volumes.as_object().expect("an object").clone());
    site.submit(name, &job).ok();
}

#[test]
fn output_is_not_written_through_links_that_a_job_plants() {
    let site = Site::start();
    site.prepare(1);
    let key = site.data().join("master.key");
    let before = fs::read(&key).expect("it is there");
    // The second attempt finds the leftovers of the first.
    let plant = format!(
        "cd $AZ_BATCHAI_STDOUTERR_DIR; ln -sf {} stdout.txt; touch $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/planted; sleep 600",
        key.display()
    );
    site.submit_custom("appends", 1, &plant);
    let planted = site.share().join("cifar/planted");
    wait_for("the link to be there", || planted.exists());
    let agents = site.agents();
    let [(_, agent)] = &agents[..] else { panic!("one agent: {agents:?}") };
    signal(*agent, Signal::KILL);
    let ended = site.wait_for_end("appends");
    let error = &ended["executionInfo"]["errors"][0];
    assert_eq!(error["code"], "LogWriteFailed", "{ended}");
    assert!(detail(error, "Info").contains("symbolic link"), "{error}");
    assert!(detail(error, "Path").ends_with("/stdout.txt"), "{error}");
    assert_eq!(fs::read(&key).expect("it is there"), before, "the master key is as it was");

    // A directory that the agent created is replaced by a link into another share.
    site.corro("storage share create -n other --account-name mystorageaccount").ok();
    let other = site.data().join("shares/mystorageaccount/other");
    let command = format!("ln -s {} $AZ_BATCHAI_STDOUTERR_DIR/../curves; echo step=1 loss=2", other.display());
    site.submit_custom("curves", 1, &command);
    assert_eq!(site.wait_for_end("curves")["executionState"], "succeeded");
    assert_eq!(fs::read_dir(&other).expect("a directory").count(), 0, "nothing came to the other share");
}

#[test]
fn output_outside_of_volumes_is_refused_when_it_is_submitted() {
    let site = Site::start();
    site.prepare(0);
    for (field, more) in [
        ("properties.stdOutErrPathPrefix", json!({"stdOutErrPathPrefix": "/tmp"})),
        (
            "properties.stdOutErrPathPrefix",
            json!({"stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/../../.."}),
        ),
        (
            "properties.outputDirectories[0].pathPrefix",
            json!({"outputDirectories": [{"id": "A", "pathPrefix": "/etc"}]}),
        ),
    ] {
        site.submit("refused", &site.job_json(1, custom("true"), more)).fails(1, &[field]);
    }
}

#[test]
fn a_jobs_mount_command_does_not_run_beside_its_isolation() {
    for mode in ["strict", "auto", "off"] {
        let site = Site::start_with(&["--no-containers", "--isolation", mode]);
        site.prepare(1);
        let ran = site.path().join("ran");
        let command = format!("touch {}; echo the-key-$((40 + 2)); exit 7 #", ran.display());
        let volumes = json!({"unmanagedFileSystems": [{"mountCommand": command, "relativeMountPath": "mine"}]});
        submit(&site, "mounts", volumes, "true");
        let ended = site.wait_for_end("mounts");
        let error = &ended["executionInfo"]["errors"][0];
        assert_eq!(error["code"], "UnmanagedMountError", "{mode}: {ended}");
        assert!(!ended.to_string().contains("the-key-42"), "{mode}: {ended}");
        let (info, log) = (detail(error, "Info"), site.log("mounts", "execution.log"));
        if mode == "auto" && ran.exists() {
            skip::unsupported_machine(format_args!(
                "this machine allows no namespaces, so jobs have the agent's rights anyway: {log}"
            ));
            continue;
        }
        if mode == "off" {
            assert!(info.contains("ended with exit status: 7: its output is in the execution log"), "{info}");
            assert!(log.contains(">>>   the-key-42\n"), "{log}");
        } else {
            assert!(!ran.exists() && info.contains("its mountCommand is not run for a job"), "{mode}: {info}");
            assert!(info.contains("nodeSetup.mountVolumes.unmanagedFileSystems of the cluster"), "{info}");
        }
    }
}

/// By the operator's choice, or because there is a second principal.
#[test]
fn under_strict_isolation_setup_tasks_and_logins_see_what_jobs_see() {
    let site = Site::start_with(&["--no-containers", "--isolation", "strict"]);
    site.prepare(0);
    check_setup_and_login(&site);
    let site = Site::start();
    site.prepare(0);
    site.corro("ad sp create-for-rbac -n bob --role Reader").ok();
    check_setup_and_login(&site);
}

fn check_setup_and_login(site: &Site) {
    let key = site.data().join("master.key");
    let cluster = json!({"properties": {
        "vmSize": "Standard_D1", "scaleSettings": {"manual": {"targetNodeCount": 1}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "not-a-secret"},
        "nodeSetup": {
            "setupTask": {
                "commandLine": format!("cd $AZ_BATCHAI_MOUNT_ROOT/external; ls {0} || echo hidden; echo written >from-setup", key.display()),
                "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/external/setup"
            },
            "mountVolumes": {"azureFileShares": [{
                "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                "relativeMountPath": "external"
            }]}
        }
    }});
    site.write("set.json", cluster.to_string());
    let create = format!("batchai cluster create {IN_WORKSPACE} -n set -f set.json");
    site.corro(&format!("{create} --storage-account-name mystorageaccount")).ok();
    let mut shown = Value::Null;
    wait_for("the setup task to have ended", || {
        shown = site.corro(&format!("batchai cluster show {IN_WORKSPACE} -n set")).json();
        shown["nodeStateCounts"]["idleNodeCount"] == 1 || shown["nodeStateCounts"]["unusableNodeCount"] == 1
    });
    if shown["errors"][0]["code"] == "IsolationFailed" {
        skip::unsupported_machine(format_args!(
            "this machine allows no namespaces, and strict refuses the setup task: {shown}"
        ));
        return;
    }
    assert_eq!(shown["nodeStateCounts"]["idleNodeCount"], 1, "{shown}");
    assert_eq!(
        fs::read_to_string(site.share().join("from-setup")).expect("volumes are written as before"),
        "written\n"
    );
    let stdout = find(&site.share().join("setup"), "stdout-").expect("the task's output is on the share");
    assert_eq!(fs::read_to_string(stdout).expect("a file"), "hidden\n");

    let script = site.path().join("login");
    let look =
        format!("#!/bin/sh\nls {} || echo hidden\nls $AZ_BATCHAI_MOUNT_ROOT/external/from-setup\n", key.display());
    fs::write(&script, look).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it can be run");
    let exec = format!("batchai cluster node exec {IN_WORKSPACE} -c set --password not-a-secret");
    let output = site.corro(&format!("{exec} --exec {}", script.display()));
    let output = output.ok().stdout;
    assert!(output.contains("\nhidden") && output.trim_end().ends_with("/external/from-setup"), "{output}");
}

/// The first file below a directory with this name prefix.
fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).find_map(|path| match path.is_dir() {
        true => find(&path, name),
        false => path.file_name()?.to_str()?.starts_with(name).then_some(path),
    })
}

#[test]
fn a_directory_of_a_file_server_does_not_lead_to_others() {
    let site = Site::start();
    site.prepare(1);
    let shape = "--vm-size Standard_D1 --disk-count 1 --disk-size 10 --storage-sku Standard_LRS --user-name me --password x-y-z";
    let make = |name: &str| {
        let made = site.corro(&format!("batchai file-server create {IN_WORKSPACE} -n {name} {shape}")).ok().json();
        made["id"].as_str().expect("an id").to_owned()
    };
    let (own, others) = (make("own"), make("others"));
    let on = |id: &str, more: Value| {
        let mut volume = json!({"fileServer": {"id": id}, "relativeMountPath": "nfs"});
        volume.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "fileServers": [volume] })
    };
    let at = "cd $AZ_BATCHAI_JOB_MOUNT_ROOT/nfs";
    submit(&site, "theirs", on(&others, json!({})), &format!("{at}; echo canary-51 >secret"));
    assert_eq!(site.wait_for_end("theirs")["executionState"], "succeeded");
    let plant =
        "mkdir real; ln -s .. u1; ln -s / u2; ln -s real near; mkdir deep; ln -s ../.. deep/u3; echo mine >real/file";
    submit(&site, "plants", on(&own, json!({})), &format!("{at}; {plant}"));
    assert_eq!(site.wait_for_end("plants")["executionState"], "succeeded");
    for (number, inside) in ["u1", "u2", "deep/u3", "u2/etc", "real/../u1"].into_iter().enumerate() {
        for options in ["rw", "ro"] {
            let name = format!("climbs-{number}-{options}");
            let mut job =
                site.job_json(1, custom(&format!("{at}; find -L . -name secret -exec cat {{}} +; ls -a")), json!({}));
            job["properties"]["mountVolumes"]["fileServers"] =
                on(&own, json!({"sourceDirectory": inside, "mountOptions": options}))["fileServers"].clone();
            let submitted = site.submit(&name, &job);
            if submitted.code != 0 {
                assert!(submitted.stderr.contains("sourceDirectory"), "{}", submitted.stderr);
                continue;
            }
            let ended = site.wait_for_end(&name);
            let error = &ended["executionInfo"]["errors"][0];
            assert_eq!(error["code"], "FileServerMountError", "{inside}: {ended} {}", site.log(&name, "stdout.txt"));
        }
    }
    // A link that stays inside is an ordinary directory.
    submit(
        &site,
        "near",
        on(&own, json!({"sourceDirectory": "near"})),
        &format!("{at}; cat file; echo more >new; ls .."),
    );
    assert_eq!(site.wait_for_end("near")["executionState"], "succeeded");
    // Its parent is the job's directory of mounts, or a directory in which nothing else is visible.
    let stdout = site.log("near", "stdout.txt");
    assert!(["mine\nmyshare\nnfs\n", "mine\nreal\n"].contains(&stdout.as_str()), "{stdout}");
    submit(&site, "looks", on(&own, json!({})), &format!("{at}; cat real/new"));
    assert_eq!(site.wait_for_end("looks")["executionState"], "succeeded");
    assert_eq!(site.log("looks", "stdout.txt"), "more\n");
}
