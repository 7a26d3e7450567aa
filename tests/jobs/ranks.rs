//! Processes of a job and the environment of each rank.

use std::collections::BTreeMap;

use crate::harness::Site;
use serde_json::json;

/// A gang of 5 over 2 nodes. Every rank records its environment, and a custom job runs on the same nodes.
#[test]
fn ranks_get_their_environment() {
    let site = Site::start();
    site.prepare(2);
    let command = "env > $AZ_BATCHAI_OUTPUT_ENV/rank-$RANK; cp $AZ_BATCHAI_MPI_HOST_FILE $AZ_BATCHAI_OUTPUT_ENV/hosts-$RANK; pwd > $AZ_BATCHAI_OUTPUT_ENV/pwd-$RANK; echo rank $RANK";
    let settings = json!({"customMpiSettings": {"commandLine": command, "processCount": 5}});
    let more = json!({
        "inputDirectories": [{"id": "DATA", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/data"}],
        "outputDirectories": [{"id": "ENV", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar", "pathSuffix": "env"}],
        "environmentVariables": [{"name": "GREETING", "value": "hello $AZ_BATCHAI_INPUT_DATA"}],
    });
    site.submit_with("gang", 2, settings, more);
    let job = site.wait_for_end("gang");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(job["toolType"], "custommpi");
    let mut lines: Vec<String> = site.log("gang", "stdout.txt").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["rank 0", "rank 1", "rank 2", "rank 3", "rank 4"]);

    let outputs = site.log_dir("gang").join("../outputs/env").canonicalize().expect("the output directory");
    let read = |name: String| std::fs::read_to_string(outputs.join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let nodes = site.agents();
    let ranks: Vec<BTreeMap<String, String>> = (0..5).map(|rank| parse(&read(format!("rank-{rank}")))).collect();
    let addresses: Vec<&str> = ranks[0]["AZ_BATCH_HOST_LIST"].split(',').collect();
    let [first, second] = addresses[..] else { panic!("two nodes have two addresses: {addresses:?}") };
    assert!(first.starts_with("127.") && second.starts_with("127.") && first != second, "{addresses:?}");

    for (rank, env) in ranks.iter().enumerate() {
        let (node_idx, local_rank, local_size) = if rank < 3 { (0, rank, 3) } else { (1, rank - 3, 2) };
        let cross_size = if local_rank < 2 { 2 } else { 1 };
        let home = env["AZ_BATCHAI_JOB_TEMP_DIR"].strip_suffix("/jobs").expect("jobs are beneath the node").to_owned();
        let node = home.rsplit('/').next().expect("a directory").to_owned();
        assert!(nodes.iter().any(|(id, _)| *id == node), "{node} is one of {nodes:?}");
        let temp = format!("{home}/jobs/batchaidev/cifar/gang");
        let logs =
            format!("{temp}/mounts/myshare/cifar/{}", job["jobOutputDirectoryPathSegment"].as_str().expect("text"));
        let expected = [
            ("HOROVOD_RANK", rank.to_string()),
            ("HOROVOD_SIZE", "5".into()),
            ("HOROVOD_LOCAL_RANK", local_rank.to_string()),
            ("HOROVOD_LOCAL_SIZE", local_size.to_string()),
            ("HOROVOD_CROSS_RANK", if cross_size == 2 { node_idx } else { 0 }.to_string()),
            ("HOROVOD_CROSS_SIZE", cross_size.to_string()),
            ("HOROVOD_HOSTNAME", node),
            ("HOROVOD_CONTROLLER", "gloo".into()),
            ("HOROVOD_CPU_OPERATIONS", "gloo".into()),
            ("HOROVOD_GLOO_RENDEZVOUS_ADDR", first.into()),
            ("HOROVOD_GLOO_IFACE", "lo".into()),
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "5".into()),
            ("LOCAL_RANK", local_rank.to_string()),
            ("LOCAL_WORLD_SIZE", local_size.to_string()),
            ("MASTER_ADDR", first.into()),
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "5".into()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", local_rank.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", local_size.to_string()),
            ("AZ_BATCHAI_MOUNT_ROOT", format!("{home}/mounts")),
            ("AZ_BATCHAI_JOB_MOUNT_ROOT", format!("{temp}/mounts")),
            ("AZ_BATCHAI_JOB_TEMP", temp.clone()),
            ("AZ_BATCHAI_JOB_TEMP_DIR", format!("{home}/jobs")),
            ("AZ_BATCHAI_SHARED_JOB_TEMP", format!("{temp}/shared")),
            ("AZ_BATCHAI_STDOUTERR_DIR", format!("{logs}/stdouterr")),
            ("AZ_BATCHAI_INPUT_DATA", format!("{temp}/mounts/myshare/data")),
            ("AZ_BATCHAI_OUTPUT_ENV", format!("{logs}/outputs/env")),
            ("AZ_BATCHAI_MPI_HOST_FILE", format!("{temp}/hostfile")),
            ("AZ_BATCHAI_MPI_MASTER_NODE", first.into()),
            ("AZ_BATCH_HOST_LIST", format!("{first},{second}")),
            ("AZ_BATCH_MASTER_NODE", format!("{first}:6000")),
            ("AZ_BATCHAI_NUM_GPUS", super::gpus_of_a_node()),
            ("AZ_BATCHAI_NUM_GPUS_PER_NODE", super::gpus_of_a_node()),
            ("GREETING", format!("hello {temp}/mounts/myshare/data")),
        ];
        for (name, value) in expected {
            assert_eq!(env.get(name), Some(&value), "{name} of rank {rank}");
        }
        for name in ["HOROVOD_GLOO_RENDEZVOUS_PORT", "MASTER_PORT", "CORRO_JOB_SECRET"] {
            assert_eq!(env.get(name), ranks[0].get(name), "{name} is the same for all");
            assert!(!env[name].is_empty());
        }
        assert_ne!(env["HOROVOD_GLOO_RENDEZVOUS_PORT"], env["MASTER_PORT"]);
        assert_eq!(read(format!("hosts-{rank}")), format!("{first} slots=3\n{second} slots=2\n"));
        assert_eq!(read(format!("pwd-{rank}")).trim_end(), temp);
    }
    let hostnames: Vec<&str> = ranks.iter().map(|env| env["HOROVOD_HOSTNAME"].as_str()).collect();
    assert!(hostnames[0] == hostnames[1] && hostnames[1] == hostnames[2] && hostnames[3] == hostnames[4]);
    assert_ne!(hostnames[0], hostnames[3]);

    a_custom_job_runs_once_on_the_master(&site, first, second);
}

fn a_custom_job_runs_once_on_the_master(site: &Site, first: &str, second: &str) {
    let command = "echo $AZ_BATCH_HOST_LIST ${RANK-no rank} ${AZ_BATCHAI_MPI_MASTER_NODE-no ranks}; cat $AZ_BATCHAI_MPI_HOST_FILE; basename $(dirname $AZ_BATCHAI_JOB_TEMP_DIR)";
    site.submit_custom("once", 2, command);
    let job = site.wait_for_end("once");
    assert_eq!((&job["executionState"], &job["toolType"]), (&json!("succeeded"), &json!("custom")), "{job}");
    let stdout = site.log("once", "stdout.txt");
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{stdout}");
    // The scheduler chooses the master; its address comes first.
    let hosts: Vec<&str> = lines[0].split_whitespace().next().expect("addresses").split(',').collect();
    assert!(hosts == [first, second] || hosts == [second, first], "{hosts:?}");
    assert_eq!(lines[0], format!("{} no rank no ranks", hosts.join(",")));
    assert_eq!(lines[1..3], [format!("{} slots=1", hosts[0]), format!("{} slots=1", hosts[1])]);
    let agents = site.agents();
    let mut names: Vec<String> = agents.iter().map(|(node, _)| format!("execution-{node}.log")).collect();
    names.extend(["stderr.txt".to_owned(), "stdout.txt".to_owned()]);
    assert_eq!(site.file_names("once"), names);
    let idle = agents.iter().find(|(node, _)| node != lines[3]).expect("the other node");
    let log = site.log("once", &format!("execution-{}.log", idle.0));
    assert!(log.contains("The job starts no process on this node"), "{log}");
}

/// Ranks use an HTTP rendezvous, which stays for the slower rank after the first has exited.
#[test]
fn the_meeting_point_is_there_for_every_rank_to_its_end() {
    let site = Site::start();
    site.prepare(2);
    let ask = r#"
ask() { # METHOD PATH BODY
  exec 3<>/dev/tcp/$HOROVOD_GLOO_RENDEZVOUS_ADDR/$HOROVOD_GLOO_RENDEZVOUS_PORT || return 1
  printf '%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' "$1" "$2" "${#3}" "$3" >&3
  tr -d '\r' <&3; exec 3>&-; echo
}"#;
    let command = format!(
        r#"{ask}
ask PUT /mine/$RANK "value of $RANK" | head -1
other=$((1 - RANK)); ask GET "/mine/$other?wait=30" "" | tail -1
if [ $RANK = 0 ]; then exit; fi
# Rank 0's node has noticed its end; the meeting point must not go for as long as rank 1 runs.
until grep -q 'Rank 0 ended' $AZ_BATCHAI_STDOUTERR_DIR/execution-*.log; do sleep 0.02; done
for again in 1 2 3 4 5 6 7 8 9 10; do ask GET /mine/0 "" | tail -1; sleep 0.05; done"#
    );
    site.submit_ranks("meet", 2, &command);
    let job = site.wait_for_end("meet");
    let stdout = site.log("meet", "stdout.txt");
    assert_eq!(stdout.matches("HTTP/1.1 200 OK").count(), 2, "both ranks put: {stdout}");
    assert_eq!(stdout.matches("value of 1").count(), 1, "{stdout}");
    assert_eq!(stdout.matches("value of 0").count(), 11, "{stdout}\n{}", site.log("meet", "stderr.txt"));
    assert_eq!(job["executionState"], "succeeded", "{job}");
}

fn parse(env: &str) -> BTreeMap<String, String> {
    let lines = env.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
