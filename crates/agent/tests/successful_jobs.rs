//! Successful jobs with real processes: what they see, what they leave, and what is removed afterwards.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use corro_model::batchai::{EnvironmentVariable, InputDirectory, OutputDirectory};
use corro_model::node::{Goal, TaskOrder, TaskSecret};
use corro_model::{AttemptId, Secret};

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_of_two_nodes_succeeds_and_writes_its_logs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (share, shared_temp) = (directory.path().join("share"), directory.path().join("shared-temp"));
    std::fs::create_dir(&share).expect("a share");
    std::fs::write(share.join("precious"), "kept").expect("a file on the share");
    let server = FakeServer::start().await;
    let addresses = ["127.0.0.4", "127.0.0.5"];
    let mut nodes = Vec::new();
    let mut agents = Vec::new();
    for (idx, address) in addresses.iter().enumerate() {
        let node = server.want_node(idx as u32 + 1);
        agents.push(Agent::start(&server, &directory.path().join(format!("n{idx}")), address));
        node.until_ready().await;
        nodes.push(node);
    }
    let hosts = vec![host(&nodes[0], addresses[0], 2), host(&nodes[1], addresses[1], 2)];
    // Each rank writes lines in pieces, and an unfinished line at the end.
    let command = "echo start $RANK of $WORLD_SIZE at $MASTER_ADDR >&2; \
        for i in $(seq 200); do printf \"rank $RANK li\"; printf \"ne $i\\n\"; done; printf \"last of $RANK\"; \
        touch $AZ_BATCHAI_OUTPUT_MODEL/$RANK $AZ_BATCHAI_SHARED_JOB_TEMP/$RANK";
    let base = as_ranks(TaskOrder {
        preparation: Some("echo prepared; echo warned >&2; echo export PREPARED=yes >> ~/.bashrc".into()),
        output_directories: vec![OutputDirectory {
            id: "MODEL".into(),
            path_prefix: "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs".into(),
            path_suffix: Some("models".into()),
        }],
        ..order(&format!("[ $PREPARED = yes ] || exit 9; {command}"), hosts, &share, &shared_temp)
    });
    let orders: Vec<TaskOrder> = (0..2).map(|host_idx| TaskOrder { host_idx, ..base.clone() }).collect();

    for (node, order) in nodes.iter().zip(&orders) {
        node.want_task(Goal::Prepare, order);
    }
    let gang = nodes[0].until_prepared().await.expect("the master says where to meet");
    assert_eq!(nodes[1].until_prepared().await, None);
    assert_eq!(gang.address, addresses[0]);
    assert!(!log_directory(&share).join("stdout.txt").exists(), "no rank has started");
    for (node, order) in nodes.iter().zip(&orders) {
        node.want_task(Goal::Run { gang: gang.clone() }, order);
    }
    for (node, first_rank) in nodes.iter().zip([0, 2]) {
        let (observed, failure) = node.until_ended().await;
        assert_eq!(failure, None);
        let mut exits = observed.task.expect("it was just seen").exits;
        exits.sort_by_key(|exit| exit.rank);
        let ends: Vec<_> = exits.iter().map(|exit| (exit.rank, exit.exit_code, exit.stopped)).collect();
        assert_eq!(ends, [(first_rank, Some(0), false), (first_rank + 1, Some(0), false)]);
    }

    let logs = log_directory(&share);
    let mut expected: Vec<String> = vec!["stderr.txt".into(), "stdout.txt".into()];
    for id in nodes.iter().map(|node| &node.id) {
        let own =
            [format!("execution-{id}.log"), format!("stdout-job_prep-{id}.txt"), format!("stderr-job_prep-{id}.txt")];
        expected.extend(own);
    }
    expected.sort();
    assert_eq!(names(&logs), expected);
    check_merged(&read(&logs.join("stdout.txt")));
    let mut starts: Vec<String> = read(&logs.join("stderr.txt")).lines().map(str::to_owned).collect();
    starts.sort();
    assert_eq!(starts, [0, 1, 2, 3].map(|rank| format!("start {rank} of 4 at 127.0.0.4")));
    let preparation = format!("job_prep-{}.txt", nodes[1].id);
    assert_eq!(read(&logs.join(format!("stdout-{preparation}"))), "prepared\n");
    assert_eq!(read(&logs.join(format!("stderr-{preparation}"))), "warned\n");
    let executions = [0, 1].map(|idx: usize| read(&logs.join(format!("execution-{}.log", nodes[idx].id))));
    assert!(executions[0].len() > executions[1].len(), "the master's log is the longer one");
    for (text, root) in executions.iter().zip(agents.iter().map(|agent| &agent.root)) {
        let mounted = format!(
            "Z Mounted //acc.file.core.windows.net/logs at {}",
            root.canonicalize().expect("it is there").display()
        );
        for expected in
            [mounted.as_str(), "Z Mounting Azure file shares", "Job preparation ended with exit code 0", "Unmounted"]
        {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }
    assert_eq!(names(&share.join(SEGMENT).join("outputs/models")), ["0", "1", "2", "3"]);
    assert_eq!(names(&shared_temp), ["0", "1", "2", "3"]);

    for (node, agent) in nodes.iter().zip(&agents) {
        node.until_free().await;
        assert!(!agent.root.join("jobs/w/e/j").exists(), "the job's directory is gone");
    }
    assert!(!shared_temp.exists(), "the master removed what the nodes shared");
    assert_eq!(read(&share.join("precious")), "kept");
    assert!(logs.join("stdout.txt").exists());
}

/// Checks that all lines of all ranks are whole and in the order of their rank, and that unfinished ones are
/// terminated.
fn check_merged(stdout: &str) {
    let mut by_rank: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["rank", rank, "line", n] => by_rank.entry(rank.to_owned()).or_default().push(n),
            ["last", "of", rank] => by_rank.entry(rank.to_owned()).or_default().push("last"),
            _ => panic!("torn: {line:?}"),
        }
    }
    let all: Vec<String> = (1..=200).map(|n| n.to_string()).chain(["last".to_owned()]).collect();
    assert_eq!(by_rank.keys().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    assert!(by_rank.values().all(|lines| *lines == all), "lines are missing or out of order");
    assert!(stdout.ends_with('\n'));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_sees_its_variables_and_nothing_of_the_agents() {
    let world = World::new().await;
    let variable = |name: &str, value: &str| EnvironmentVariable { name: name.into(), value: value.into() };
    let mut order = as_ranks(world.order("env -0; pwd >&2"));
    order.gpus = 2;
    order.input_directories =
        vec![InputDirectory { id: "SCRIPTS".into(), path: "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs/scripts".into() }];
    order.environment = vec![variable("VARIABLE", "at $AZ_BATCHAI_INPUT_SCRIPTS"), variable("EMPTY", "[$UNKNOWN]")];
    order.secrets = vec![TaskSecret { name: "SECRET_VARIABLE".into(), value: Secret::new("s3cret-value") }];
    let (_, failure) = world.node.run_alone(&order).await;
    assert_eq!(failure, None);

    let stdout = world.log("stdout.txt");
    let seen: BTreeMap<&str, &str> = stdout.split_terminator('\0').filter_map(|pair| pair.split_once('=')).collect();
    let root = world.agent.root.canonicalize().expect("it is there").display().to_string();
    let job = format!("{root}/jobs/w/e/j");
    let node = world.node.id.as_str();
    // The VM size has more GPUs than most machines that run tests.
    let gpus = (0..2).filter(|n| std::path::Path::new(&format!("/dev/nvidia{n}")).exists()).count().to_string();
    let incarnation = corro_agent::incarnation::current_id(&world.agent.root).expect("the agent has written it down");
    let expected = [
        ("AZ_BATCHAI_MOUNT_ROOT", format!("{root}/mounts")),
        ("AZ_BATCHAI_JOB_MOUNT_ROOT", format!("{job}/mounts")),
        ("AZ_BATCHAI_JOB_TEMP", job.clone()),
        ("AZ_BATCHAI_JOB_TEMP_DIR", format!("{root}/jobs")),
        ("AZ_BATCHAI_SHARED_JOB_TEMP", format!("{job}/shared")),
        ("AZ_BATCHAI_STDOUTERR_DIR", format!("{job}/mounts/logs/cifar/{SEGMENT}/stdouterr")),
        ("AZ_BATCHAI_INPUT_SCRIPTS", format!("{job}/mounts/logs/scripts")),
        ("AZ_BATCHAI_MPI_HOST_FILE", format!("{job}/hostfile")),
        ("AZ_BATCHAI_MPI_MASTER_NODE", "127.0.0.4".into()),
        ("AZ_BATCH_HOST_LIST", "127.0.0.4".into()),
        ("AZ_BATCHAI_NUM_GPUS", gpus.clone()),
        ("AZ_BATCHAI_NUM_GPUS_PER_NODE", gpus),
        ("VARIABLE", format!("at {job}/mounts/logs/scripts")),
        ("EMPTY", "[]".into()),
        ("SECRET_VARIABLE", "***".into()),
        ("HOME", format!("{root}/home")),
        ("BASH_ENV", format!("{root}/home/.bashrc")),
        ("RANK", "0".into()),
        ("HOROVOD_SIZE", "1".into()),
        ("HOROVOD_HOSTNAME", node.into()),
        ("HOROVOD_GLOO_IFACE", "lo".into()),
        ("MASTER_ADDR", "127.0.0.4".into()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "0".into()),
        ("CORRO_PROCESS_TAG", format!("{node}/{incarnation}/guid-1/rank-0")),
    ];
    for (name, value) in expected {
        assert_eq!(seen.get(name).copied(), Some(value.as_str()), "{name}");
    }
    assert!(!seen.contains_key("AZ_BATCH_MASTER_NODE"), "there is one node only");
    assert!(seen.keys().all(|name| !name.starts_with("CARGO")), "the agent's own variables are not passed on");
    assert_eq!(world.log("stderr.txt"), format!("{job}\n"));
    let execution = world.log("execution.log");
    for secret in ["s3cret-value", "gang-secret-value"] {
        assert!(!execution.contains(secret), "{execution}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_job_runs_once_on_the_master_byte_for_byte() {
    let world = World::new().await;
    let other = world.server.want_node(2);
    let root = world.directory.path().join("n2");
    let _agent = Agent::start(&world.server, &root, "127.0.0.5");
    other.until_ready().await;
    let master = TaskOrder {
        hosts: [host(&world.node, "127.0.0.4", 1), host(&other, "127.0.0.5", 0)].into(),
        ..world.order("printf hi; echo ${RANK-no rank} >&2")
    };
    let worker = TaskOrder { host_idx: 1, ..master.clone() };
    let pairs: [(&Arc<FakeNode>, &TaskOrder); 2] = [(&world.node, &master), (&other, &worker)];
    for (node, order) in pairs {
        node.want_task(Goal::Prepare, order);
    }
    let gang = world.node.until_prepared().await.expect("the master says where to meet");
    other.until_prepared().await;
    for (node, order) in pairs {
        node.want_task(Goal::Run { gang: gang.clone() }, order);
    }
    assert_eq!(world.node.until_ended().await.1, None);
    // The other node stays prepared until the job is over.
    other.until_running().await;
    other.want_task(Goal::Stop { grace_ms: 1000 }, &worker);
    let (observed, failure) = other.until_ended().await;
    assert_eq!((observed.task.expect("just seen").exits, failure), (Vec::new(), None));
    assert_eq!(world.log("stdout.txt"), "hi", "one process: exactly its bytes");
    assert_eq!(world.log("stderr.txt"), "no rank\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_gang_starts_without_waiting() {
    let world = World::new().await;
    let order = world.order("echo alone");
    world.node.want_task(Goal::PrepareAndRun, &order);
    let (node, failure) = world.node.until_ended().await;
    assert_eq!((failure, node.task.expect("it ended").exits.len()), (None, 1));
    assert_eq!(world.log("stdout.txt"), "alone\n");
    world.node.until_free().await;

    // The order to run may also arrive after the node is prepared.
    let order = TaskOrder { attempt: AttemptId { number: 2, ..order.attempt }, ..world.order("echo again") };
    world.node.want_task(Goal::Prepare, &order);
    world.node.until_prepared().await.expect("the master says where to meet");
    world.node.want_task(Goal::PrepareAndRun, &order);
    assert_eq!(world.node.until_ended().await.1, None);
    assert!(world.log("stdout.txt").ends_with("again\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_job_finds_nothing_of_the_previous_one() {
    let world = World::new().await;
    let first = world.order("echo x > $AZ_BATCHAI_JOB_TEMP/left; echo 'export LEFT=1' > ~/.bashrc");
    assert_eq!(world.node.run_alone(&first).await.1, None);
    assert!(world.agent.root.join("jobs/w/e/j/left").exists(), "it stays while the task is wanted");
    assert!(!world.agent.root.join("jobs/w/e/j/mounts/logs").exists(), "volumes go with the job's end");
    // Directly to the next attempt: the old one must be cleaned up first.
    let mut second = world.order("ls $AZ_BATCHAI_JOB_TEMP; echo [$LEFT]; cat $AZ_BATCHAI_MPI_HOST_FILE");
    second.attempt.number = 2;
    assert_eq!(world.node.run_alone(&second).await.1, None);
    assert_eq!(world.log("stdout.txt"), "hostfile\nmounts\nshared\n[]\n127.0.0.4 slots=1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_masked_in_output_unless_disabled() {
    for (shows_secrets, shown, said) in
        [(false, "token ***", "shown as *** in the output"), (true, "token s3cret-value", "--mask-secrets no")]
    {
        let world = World::new().await;
        let mut order = world.order("echo token $TOKEN");
        order.secrets = vec![TaskSecret { name: "TOKEN".into(), value: Secret::new("s3cret-value") }];
        order.shows_secrets = shows_secrets;
        let (_, failure) = world.node.run_alone(&order).await;
        assert_eq!(failure, None);
        assert_eq!(world.log("stdout.txt").trim_end(), shown);
        let logs = std::fs::read_dir(common::log_directory(&world.share)).expect("a directory").flatten();
        let names: Vec<String> = logs.map(|log| log.file_name().to_string_lossy().into_owned()).collect();
        let name = names.iter().find(|name| name.starts_with("execution")).unwrap_or_else(|| panic!("{names:?}"));
        let execution = world.log(name);
        assert!(execution.contains(said) && !execution.contains("s3cret-value"), "{execution}");
    }
}
