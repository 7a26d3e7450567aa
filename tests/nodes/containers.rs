//! Blob containers mounted on nodes like file shares.

use serde_json::json;

use crate::harness::Site;

#[test]
fn a_container_is_mounted_for_a_job_and_a_missing_one_fails_it() {
    let site = Site::start();
    site.prepare(1);
    let container = site.data().join("shares/mystorageaccount/.containers/data");
    std::fs::create_dir_all(&container).expect("a container");
    std::fs::write(container.join("blob"), "from a blob\n").expect("a blob");
    let volumes = |name: &str| {
        let mut volumes = site.job_json(1, json!({}), json!({}))["properties"]["mountVolumes"].clone();
        volumes["azureBlobFileSystems"] = json!([{
            "accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>", "containerName": name, "relativeMountPath": "deep/bfs"
        }]);
        json!({ "mountVolumes": volumes })
    };
    let command = "cd $AZ_BATCHAI_JOB_MOUNT_ROOT/deep/bfs; cat blob; echo back > answer";
    let settings = json!({"customToolkitSettings": {"commandLine": command}});
    site.submit("mounted", &site.job_json(1, settings.clone(), volumes("data"))).ok();
    let job = site.wait_for_end("mounted");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(std::fs::read_to_string(container.join("answer")).expect("it was written"), "back\n");
    let execution = site.stream("mounted", "execution.log").ok().stdout;
    assert!(execution.contains("Mounting blob file systems"), "{execution}");
    assert!(execution.contains("Mounted data container from mystorageaccount account at "), "{execution}");

    site.submit("missing", &site.job_json(1, settings, volumes("nothing"))).ok();
    let job = site.wait_for_end("missing");
    let info = &job["executionInfo"];
    assert_eq!((&job["executionState"], &info["exitCode"]), (&json!("failed"), &json!(1)), "{job}");
    let error = &info["errors"][0];
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!("BFSMountError"), &json!("unable to mount blob fuse file system"))
    );
    assert_eq!(error["details"][0], json!({"name": "Info", "value": "Azure Blob Container 'nothing' doesn't exist"}));
}
