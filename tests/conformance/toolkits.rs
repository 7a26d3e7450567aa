//! Jobs of every toolkit and volumes of every kind: accepted as by the original service, shown with their defaults and without
//! their secrets. Unsupported ones end with an error that says so.

use serde_json::{Value, json};

use super::fixture::{NO_BODY, cluster_body, job_body, wait_for_operation, workspace};
use crate::harness::{Site, wait_for};

#[test]
fn jobs_of_all_nine_kinds_are_made() {
    let site = Site::start();
    let workspace = workspace(&site);
    let cluster = format!("{workspace}/clusters/c");
    wait_for_operation(&site, &site.arm("PUT", &cluster, cluster_body(0)));
    let script =
        json!({"pythonScriptFilePath": "a.py", "pythonInterpreterPath": "/bin/python", "commandLineArgs": "-x"});
    let with = |more: Value| {
        let mut settings = script.clone();
        settings.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        settings
    };
    // Requested settings, their defaults, and the resulting toolkit.
    let kinds = [
        ("cntkSettings", script.clone(), json!({"processCount": 2, "languageType": "Python"}), "cntk"),
        ("pyTorchSettings", with(json!({"communicationBackend": "gloo"})), json!({"processCount": 2}), "pytorch"),
        (
            "tensorFlowSettings",
            json!({"pythonScriptFilePath": "a.py", "masterCommandLineArgs": "-m", "workerCommandLineArgs": "-w",
                   "parameterServerCommandLineArgs": "-p"}),
            json!({"workerCount": 2, "parameterServerCount": 1}),
            "tensorflow",
        ),
        ("caffeSettings", json!({"configFilePath": "a"}), json!({"processCount": 2}), "caffe"),
        ("caffe2Settings", script.clone(), json!({}), "caffe2"),
        ("chainerSettings", script.clone(), json!({"processCount": 2}), "chainer"),
        ("horovodSettings", script.clone(), json!({"processCount": 2}), "horovod"),
        ("customMpiSettings", json!({"commandLine": "a"}), json!({"processCount": 2}), "custommpi"),
        ("customToolkitSettings", json!({"commandLine": "a"}), json!({}), "custom"),
    ];
    for (field, settings, added, tool) in kinds {
        let mut body = job_body(&cluster, "");
        let properties = body["properties"].as_object_mut().expect("an object");
        properties.remove("customToolkitSettings");
        properties.extend([(field.to_owned(), settings.clone()), ("nodeCount".to_owned(), json!(2))]);
        let path = format!("{workspace}/experiments/e/jobs/{tool}");
        wait_for_operation(&site, &site.arm("PUT", &path, body.clone()).is(202));
        let shown = site.arm("PUT", &path, body).is(200).json();
        let properties = &shown["properties"];
        assert_eq!(properties["toolType"], tool);
        let mut expected = settings.as_object().expect("an object").clone();
        expected.extend(added.as_object().expect("an object").clone());
        assert_eq!(properties[field], Value::Object(expected), "{field}");
        assert_eq!(properties["executionState"], "queued", "{shown}");
    }
}

#[test]
fn volumes_and_secrets_of_every_kind_are_taken_and_never_shown() {
    let site = Site::start();
    let workspace = workspace(&site);
    let server = json!({"properties": {
        "vmSize": "Standard_D2_v2", "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
        "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": "canary0"}}
    }});
    let server_path = format!("{workspace}/fileServers/nfs");
    wait_for_operation(&site, &site.arm("PUT", &server_path, server));
    let cluster = format!("{workspace}/clusters/c");
    wait_for_operation(&site, &site.arm("PUT", &cluster, cluster_body(1)));
    let vault = json!({"sourceVault": {"id": "/subscriptions/s/vault"}, "secretUrl": "https://vault/canary1"});
    let volumes = json!({
        "azureFileShares": [{"accountName": "acc", "azureFileUrl": "https://acc.file.core.windows.net/share",
            "credentials": {"accountKey": "canary2"}, "relativeMountPath": "share"}],
        "azureBlobFileSystems": [{"accountName": "acc", "containerName": "box", "relativeMountPath": "box",
            "credentials": {"accountKeySecretReference": vault}, "mountOptions": "-o x"}],
        "fileServers": [{"fileServer": {"id": server_path}, "relativeMountPath": "nfs", "sourceDirectory": "a"}],
        "unmanagedFileSystems": [{"mountCommand": "mount -t cifs //x", "relativeMountPath": "unmanaged"}]
    });
    let mut body = job_body(&cluster, "true");
    body["properties"]["mountVolumes"] = volumes;
    body["properties"]["secrets"] = json!([{"name": "A", "value": "canary3"}]);
    body["properties"]["containerSettings"] = json!({"shmSize": "16gb", "imageSourceRegistry": {
        "serverUrl": "https://registry", "image": "ubuntu", "credentials": {"username": "u", "password": "canary4"}
    }});
    let job = format!("{workspace}/experiments/e/jobs/j");
    wait_for_operation(&site, &site.arm("PUT", &job, body).is(202));
    let shown = site.arm("GET", &job, NO_BODY).is(200);
    assert!(!shown.text().contains("canary"), "{shown}");
    let properties = &shown.json()["properties"];
    let share = &properties["mountVolumes"]["azureFileShares"][0];
    assert_eq!((&share["credentials"], &share["fileMode"]), (&json!({}), &json!("0777")));
    assert_eq!(properties["mountVolumes"]["azureBlobFileSystems"][0]["credentials"], json!({}));
    assert_eq!(properties["mountVolumes"]["unmanagedFileSystems"][0]["mountCommand"], "mount -t cifs //x");
    assert_eq!(properties["secrets"], json!([{"name": "A"}]));
    let registry = &properties["containerSettings"]["imageSourceRegistry"];
    assert_eq!(registry["credentials"], json!({"username": "u"}));
    // It is created, and fails when the volumes are mounted.
    let mut last = Value::Null;
    wait_for("the job to fail", || {
        last = site.arm("GET", &job, NO_BODY).is(200).json()["properties"].clone();
        last["executionState"] == "failed"
    });
    let code = last["executionInfo"]["errors"][0]["code"].as_str().expect("text").to_owned();
    assert!(code.ends_with("MountError"), "{last}");

    // A secret in a key vault is accepted; the job reports that it cannot be read.
    let mut body = job_body(&cluster, "true");
    body["properties"]["secrets"] = json!([{"name": "A", "valueSecretReference": vault}]);
    let path = format!("{job}2");
    wait_for_operation(&site, &site.arm("PUT", &path, body).is(202));
    let shown = site.arm("GET", &path, NO_BODY).is(200);
    assert!(!shown.text().contains("canary"), "{shown}");
    let error = shown.json()["properties"]["executionInfo"]["errors"][0].clone();
    assert_eq!(error["code"], "NotSupported");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("key vault")), "{error}");
}
