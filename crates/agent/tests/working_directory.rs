//! The working directory of a job, and lines of output that are marked with their rank, with real processes.

mod common;

use common::*;
use corro_model::batchai::EnvironmentVariable;
use corro_model::node::TaskOrder;

#[tokio::test(flavor = "multi_thread")]
async fn preparation_and_ranks_start_in_the_working_directory() {
    let world = World::new().await;
    std::fs::create_dir_all(world.share.join("project/src")).expect("a directory of the share");
    std::fs::write(world.share.join("project/src/script.sh"), "echo run by $RANK in ${PWD##*/}").expect("a script");
    let order = as_ranks(TaskOrder {
        preparation: Some("pwd -P; echo here > prepared".into()),
        working_directory: Some("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/$PROJECT/src".into()),
        environment: vec![EnvironmentVariable { name: "PROJECT".into(), value: "project".into() }],
        ..world.order("sh script.sh; cat prepared; cd $CORRO_WORKING_DIRECTORY && sh script.sh")
    });
    assert_eq!(world.node.run_alone(&order).await.1, None);
    assert_eq!(world.log("stdout.txt"), "run by 0 in src\nhere\nrun by 0 in src\n");
    let directory = world.share.join("project/src").canonicalize().expect("a path");
    assert_eq!(world.log("stdout-job_prep.txt"), format!("{}\n", directory.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_working_directory_is_named() {
    let world = World::new().await;
    let mut order = world.order("echo never");
    order.preparation = Some("echo never".into());
    std::fs::write(world.share.join("file"), "").expect("a file of the share");
    for (number, (given, why)) in
        (1..).zip([("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/none", "No such file"), ("mounts/logs/file", "not a directory")])
    {
        order.attempt.number = number;
        order.working_directory = Some(given.into());
        let failure = world.node.run_alone(&order).await.1.expect("it cannot start there").error;
        assert_eq!(failure.code, "WorkingDirectoryFailed");
        let detail = |name: &str| {
            let found = failure.details.iter().find(|detail| detail.name == name);
            found.map_or("", |detail| detail.value.as_str()).to_owned()
        };
        assert_eq!((detail("Node").as_str(), detail("Field").as_str()), (world.node.id.as_str(), "workingDirectory"));
        let path = given.replace("$AZ_BATCHAI_JOB_MOUNT_ROOT", "mounts");
        assert!(detail("Path").ends_with(&format!("/jobs/w/e/j/{path}")), "{}", detail("Path"));
        assert!(detail("Info").contains(given) && detail("Info").contains(why), "{}", detail("Info"));
    }
    assert!(!log_directory(&world.share).join("stdout-job_prep.txt").exists(), "nothing of the job was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_ranks_begin_with_the_rank() {
    let world = World::new().await;
    let command = "printf \"$RANK: on\"; printf \"e\\n10%%\\r100%%\\n\"; echo \"to stderr\" >&2; echo step=$RANK loss=1.5; printf end";
    let mut order = as_ranks(world.order(command));
    order.hosts = [host(&world.node, "127.0.0.4", 2)].into();
    order.prefix_output_with_rank = true;
    let (ended, failure) = world.node.run_alone(&order).await;
    assert_eq!((failure, ended.task.expect("it ended").exits.len()), (None, 2));
    let stdout = world.log("stdout.txt");
    for rank in [0, 1] {
        let prefix = format!("[{rank}] ");
        let own: Vec<&str> = stdout.lines().filter(|line| line.starts_with(&prefix)).collect();
        let bar = format!("[{rank}] 10%\r[{rank}] 100%");
        let (first, metric) = (format!("[{rank}] {rank}: one"), format!("[{rank}] step={rank} loss=1.5"));
        assert_eq!(own, [first.as_str(), bar.as_str(), metric.as_str(), &format!("[{rank}] end")], "{stdout:?}");
    }
    assert_eq!(stdout.lines().count(), 8, "{stdout:?}");
    let mut stderr: Vec<String> = world.log("stderr.txt").lines().map(str::to_owned).collect();
    stderr.sort();
    assert_eq!(stderr, ["[0] to stderr", "[1] to stderr"]);
    // The curves are those of each rank.
    let curves = log_directory(&world.share).with_file_name("curves").join(format!("{}.jsonl", world.node.id));
    let curves = read(&curves);
    assert!(curves.contains("\"rank\":0") && curves.contains("\"rank\":1"), "{curves}");
}
