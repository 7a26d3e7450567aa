//! Processes that a job starts on its own nodes: real MPI launchers through our ssh shim, and a plain `ssh`.

use corro_test_support::skip;
use serde_json::{Value, json};

use crate::harness::fault_injection::JoinedAgent;
use crate::harness::host::find_program;
use crate::harness::{IN_WORKSPACE, Site, is_alive, signal, wait_for};

/// Open MPI and MPICH, as Debian calls them.
const LAUNCHERS: [&str; 2] = ["mpirun.openmpi", "mpirun.mpich"];

fn submit(site: &Site, name: &str, launcher: &str, command: &str, processes: usize) {
    let settings = json!({"customMpiSettings": {"commandLine": command, "processCount": processes}});
    let more = json!({"environmentVariables": [{"name": "CORRO_MPIRUN", "value": launcher}]});
    site.submit_with(name, 2, settings, more);
}

fn details(job: &Value) -> Vec<(&str, &str)> {
    let details = job["executionInfo"]["errors"][0]["details"].as_array().expect("details");
    details.iter().map(|d| (d["name"].as_str().expect("a name"), d["value"].as_str().expect("a value"))).collect()
}

#[test]
fn a_real_mpirun_starts_the_ranks_on_all_nodes() {
    let found: Vec<&str> = LAUNCHERS.into_iter().filter(|name| find_program(name).is_some()).collect();
    if found.len() < LAUNCHERS.len() {
        skip::missing_component(format_args!("of {LAUNCHERS:?} there are {found:?}"));
    }
    let site = Site::start();
    site.prepare(2);
    // Each rank reports its position, by the variables of its node.
    let command = "echo \"$RANK of $WORLD_SIZE, $LOCAL_RANK in $(pwd) for $AZ_BATCHAI_JOB_TEMP\"";
    for launcher in &found {
        let name = launcher.replace('.', "_");
        submit(&site, &name, launcher, command, 4);
        let job = site.wait_for_end(&name);
        let said = site.log(&name, "stdout.txt");
        assert_eq!(job["executionState"], "succeeded", "{job}\n{said}\n{}", site.log(&name, "stderr.txt"));
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        let places: Vec<(&str, &str, &str)> = lines
            .iter()
            .filter_map(|line| {
                let (who, place) = line.split_once(" in ")?;
                let (pwd, temp) = place.split_once(" for ")?;
                Some((who, pwd, temp))
            })
            .collect();
        let who: Vec<&str> = places.iter().map(|place| place.0).collect();
        assert_eq!(who, ["0 of 4, 0", "1 of 4, 1", "2 of 4, 0", "3 of 4, 1"], "{said}");
        assert!(places.iter().all(|(_, pwd, temp)| pwd == temp), "{said}");
        assert!(places[0].1 == places[1].1 && places[2].1 == places[3].1 && places[0].1 != places[2].1, "{said}");
        let logs: String = site.file_names(&name).iter().map(|file| site.log(&name, file)).collect();
        assert!(logs.contains(&format!("/{launcher} (")), "{logs}");

        submit(&site, &format!("{name}-fails"), launcher, "[ $RANK != 3 ] || exit 7", 4);
        let job = site.wait_for_end(&format!("{name}-fails"));
        assert_eq!((&job["executionState"], &job["executionInfo"]["exitCode"]), (&json!("failed"), &json!(7)), "{job}");
        assert!(details(&job).contains(&("Process", "mpirun")), "{job}");
        wait_for("nothing to be left", || site.node_processes().is_empty());
    }
    submit(&site, "absent", "mpirun.of-nobody", "true", 2);
    let job = site.wait_for_end("absent");
    assert_eq!(job["executionInfo"]["errors"][0]["code"], "MpirunFailed", "{job}");
    assert!(details(&job).contains(&("Variable", "CORRO_MPIRUN")), "{job}");
}

/// A program linked with the launcher's own library connects in `MPI_Init`, and sums over both nodes.
#[test]
fn a_real_mpirun_marks_lines_and_starts_ranks_in_the_working_directory() {
    let found: Vec<&str> = LAUNCHERS.into_iter().filter(|name| find_program(name).is_some()).collect();
    if found.is_empty() {
        return skip::missing_component(format_args!("there is none of {LAUNCHERS:?}"));
    }
    let site = Site::start();
    site.prepare(2);
    std::fs::create_dir(site.share().join("cifar/project")).expect("the share can be written");
    for launcher in found {
        let name = launcher.replace('.', "_");
        let command = json!({"commandLine": "echo \"rank $RANK in ${PWD##*/}\"", "processCount": 2});
        let more = json!({
            "environmentVariables": [{"name": "CORRO_MPIRUN", "value": launcher}],
            "workingDirectory": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/project",
            "prefixOutputWithRank": true,
        });
        site.submit_with(&name, 2, json!({"customMpiSettings": command}), more);
        let job = site.wait_for_end(&name);
        let said = site.log(&name, "stdout.txt");
        assert_eq!(job["executionState"], "succeeded", "{job}\n{said}\n{}", site.log(&name, "stderr.txt"));
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        let mark = |rank: usize| match launcher.ends_with("openmpi") {
            true => format!("[1,{rank}]<stdout>:"),
            false => format!("[{rank}] "),
        };
        assert_eq!(lines, [0, 1].map(|rank| format!("{}rank {rank} in project", mark(rank))), "{launcher}");
    }
}

#[test]
fn a_real_mpi_program_adds_up_over_all_nodes() {
    let site = Site::start();
    site.prepare(2);
    for launcher in LAUNCHERS {
        let Some(program) = site.mpi_program(launcher) else { continue };
        let name = launcher.replace('.', "_");
        submit(&site, &name, launcher, &program, 4);
        let job = site.wait_for_end(&name);
        let said = site.log(&name, "stdout.txt");
        assert_eq!(job["executionState"], "succeeded", "{job}\n{said}\n{}", site.log(&name, "stderr.txt"));
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        let expected: Vec<String> = (0..4).map(|rank| format!("rank {rank} of 4 knows the sum 10")).collect();
        assert_eq!(lines, expected, "{launcher}");
    }
}

/// Processes run on the nodes that they report.
#[test]
fn machines_that_joined_are_reached_too() {
    let Some(launcher) = LAUNCHERS.into_iter().find(|name| find_program(name).is_some()) else {
        return skip::missing_component(format_args!("none of {LAUNCHERS:?} is on this machine"));
    };
    let mut site = Site::unstarted(&["--no-containers"]);
    site.start_server("server", "127.0.0.1:0", "info");
    let _machines = ["machine-1", "machine-2"].map(|name| JoinedAgent::start(&site, name));
    site.prepare(2);
    submit(&site, "joined", launcher, "echo rank $RANK", 2);
    let job = site.wait_for_end("joined");
    let said = site.log("joined", "stdout.txt");
    assert_eq!(job["executionState"], "succeeded", "{job}\n{said}\n{}", site.log("joined", "stderr.txt"));
    assert!(said.contains("rank 0") && said.contains("rank 1"), "{said}");
}

/// Killing any agent leaves no process of the job.
#[test]
fn killed_agents_leave_nothing_of_an_mpirun() {
    let Some(launcher) = LAUNCHERS.into_iter().find(|name| find_program(name).is_some()) else {
        return skip::missing_component(format_args!("none of {LAUNCHERS:?} is on this machine"));
    };
    let site = Site::start();
    site.prepare(2);
    for round in ["first", "second"] {
        let command = format!(
            "echo $RANK on $AZ_BATCHAI_JOB_TEMP_DIR >> $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar/{round}; sleep 600"
        );
        submit(&site, round, launcher, &command, 2);
        wait_for("both ranks to run", || site.on_share(round).lines().count() >= 2);
        let started = site.on_share(round);
        let rank = if round == "first" { "1 on" } else { "0 on" };
        let line = started.lines().find(|line| line.starts_with(rank)).expect("the rank said where it is");
        let (node, agent) = site.agents().into_iter().find(|(id, _)| line.contains(id.as_str())).expect("its agent");
        // A guard whose process has ended is reused for the next one.
        let processes: Vec<u32> = site.node_processes().into_iter().filter(|pid| !is_guard(*pid)).collect();
        assert!(processes.len() >= 4, "the launcher, its daemon and the ranks: {processes:?}");
        signal(agent, rustix::process::Signal::KILL);
        wait_for(&format!("nothing to be left of {round} on {node}"), || !processes.iter().any(|pid| is_alive(*pid)));
        site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n {round} --yes")).ok();
        site.wait_for_end(round);
        site.wait_for_nodes(2);
    }
}

fn is_guard(pid: u32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).nth(1) == Some(b"guard")
}

#[test]
fn a_custom_job_reaches_its_other_nodes() {
    let site = Site::start();
    site.prepare(2);
    let command = "for host in ${AZ_BATCH_HOST_LIST//,/ }; do echo words | ssh -x $host 'echo at $AZ_BATCHAI_JOB_TEMP; cat; echo warned >&2'; done; \
        ssh -p 23 ${AZ_BATCH_HOST_LIST#*,} exit 9; echo code $?; \
        ssh ${AZ_BATCH_HOST_LIST%,*} ssh ${AZ_BATCH_HOST_LIST#*,} echo over two; \
        ssh 192.0.2.1 true; echo code $?; CORRO_JOB_SECRET=guess ssh ${AZ_BATCH_HOST_LIST#*,} echo never; echo code $?; \
        setsid ssh ${AZ_BATCH_HOST_LIST#*,} sleep 600 & sleep 0";
    site.submit_custom("reach", 2, command);
    let job = site.wait_for_end("reach");
    let (stdout, stderr) = (site.log("reach", "stdout.txt"), site.log("reach", "stderr.txt"));
    assert_eq!(job["executionState"], "succeeded", "{job}\n{stdout}\n{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let [first, words, second, more, rest @ ..] = &lines[..] else { panic!("{stdout}\n{stderr}") };
    assert!(first.starts_with("at /") && second.starts_with("at /") && first != second, "{stdout}");
    assert_eq!((*words, *more), ("words", "words"));
    assert_eq!(rest, ["code 9", "over two", "code 255", "code 255"], "{stderr}");
    assert_eq!(stderr.matches("warned\n").count(), 2, "{stderr}");
    assert!(stderr.contains("'192.0.2.1' is not a node of this job"), "{stderr}");
    wait_for("nothing to be left", || site.node_processes().is_empty());
}
