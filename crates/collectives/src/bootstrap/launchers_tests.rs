//! Variables as each launcher sets them, and wrong values.

use std::time::Duration;

use super::*;
use crate::bootstrap::launch_env::Launch;

fn launch(variables: &str) -> Result<Launch, LaunchError> {
    let pairs: Vec<(&str, &str)> =
        variables.split_whitespace().map(|pair| pair.split_once('=').expect("NAME=value")).collect();
    Launch::from_variables(|name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
}

/// Rank, size, local rank, local size, cross rank, cross size; `None` where they follow from the host names of all ranks.
fn numbers_of(variables: &str) -> [Option<usize>; 6] {
    let rank_info = launch(variables).unwrap_or_else(|error| panic!("{variables}: {error}")).rank_info;
    let (local, cross) = (|n| rank_info.local_known.then_some(n), |n| rank_info.cross_known.then_some(n));
    let (rank, size) = (Some(rank_info.rank), Some(rank_info.size));
    [
        rank,
        size,
        local(rank_info.local_rank),
        local(rank_info.local_size),
        cross(rank_info.cross_rank),
        cross(rank_info.cross_size),
    ]
}

fn rank0_host_of(variables: &str) -> Rank0Host {
    match launch(variables).unwrap().rendezvous {
        RendezvousMethod::Rank0(rank0) => rank0.host,
        other => panic!("{other:?}"),
    }
}

fn refused(variables: &str, expected: &str) {
    let error = launch(variables).expect_err(variables).to_string();
    assert!(error.contains(expected), "{variables}: {error}");
}

const HOROVOD: &str = "HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_CROSS_RANK=1 \
     HOROVOD_CROSS_SIZE=2 HOROVOD_HOSTNAME=b HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1 HOROVOD_GLOO_RENDEZVOUS_PORT=4001";

#[test]
fn a_single_process_when_nothing_is_set() {
    let launch = launch("").unwrap();
    assert_eq!((launch.rendezvous, launch.rank_info.size), (RendezvousMethod::SingleProcess, 1));
    assert!(launch.rank_info.local_known && launch.rank_info.cross_known && launch.secret.is_none());
    assert_eq!((launch.interface, launch.timeout), (None, Duration::from_secs(30)));
}

#[test]
fn horovods_launcher() {
    let all = format!(
        "{HOROVOD} RANK=0 WORLD_SIZE=2 CORRO_JOB_SECRET=s HOROVOD_GLOO_IFACE=eth0,lo HOROVOD_GLOO_TIMEOUT_SECONDS=2.5"
    );
    let launch = launch(&all).unwrap();
    assert_eq!(launch.rendezvous, RendezvousMethod::KeyValue { addr: "10.0.0.1".into(), port: 4001 });
    assert_eq!((launch.rank_info.hostname.as_str(), launch.interface.as_deref()), ("b", Some("eth0,lo")));
    assert!(launch.secret.is_some());
    assert_eq!(launch.timeout, Duration::from_millis(2500));
    assert_eq!(numbers_of(&all), [3, 4, 1, 2, 1, 2].map(Some));
    assert_eq!(numbers_of("HOROVOD_RANK=0 HOROVOD_SIZE=1"), [0, 1, 0, 1, 0, 1].map(Some));
    let bare = "HOROVOD_RANK=0 HOROVOD_SIZE=2 HOROVOD_GLOO_RENDEZVOUS_ADDR=h HOROVOD_GLOO_RENDEZVOUS_PORT=1";
    assert_eq!(numbers_of(bare), [Some(0), Some(2), None, None, None, None]);
}

#[test]
fn torchrun_on_one_host_and_on_two() {
    let one = "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500";
    assert_eq!(numbers_of(one), [Some(1), Some(2), Some(1), Some(2), None, None]);
    assert_eq!(rank0_host_of(one), Rank0Host::SameHost);
    let two = "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500";
    assert_eq!(rank0_host_of(two), Rank0Host::Address("n1".into()));
    refused("RANK=2 WORLD_SIZE=4", "set MASTER_ADDR");
}

const SLURM: &str = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=2 \
     SLURM_TASKS_PER_NODE=2(x3),1 SLURM_NODELIST=n[1-3],m2";

#[test]
fn a_step_of_slurm() {
    assert_eq!(numbers_of(SLURM), [5, 7, 1, 2, 2, 3].map(Some));
    assert_eq!(rank0_host_of(SLURM), Rank0Host::Address("n1".into()));
    assert_eq!(launch(SLURM).unwrap().rank_info.hostname, "n3");
    assert_eq!(rank0_host_of(&format!("{SLURM} MASTER_ADDR=x")), Rank0Host::Address("x".into()));
    let step = format!("SLURM_STEP_NODELIST=k1 SLURM_STEP_NUM_TASKS=6 SLURM_STEP_TASKS_PER_NODE=6 {SLURM}");
    assert_eq!(rank0_host_of(&step), Rank0Host::SameHost);
    let per_node = "SLURM_STEP_ID=1 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 \
         SLURM_NTASKS_PER_NODE=2 SLURM_NODELIST=n[1-2]";
    assert_eq!(numbers_of(per_node), [3, 4, 1, 2, 1, 2].map(Some));
}

/// Recorded from Slurm 22.05, without unrelated variables: four tasks of a batch job on two nodes.
const SLURM_RECORDED: &str = "SLURMD_NODENAME=n2 SLURM_CLUSTER_NAME=it SLURM_DISTRIBUTION=block SLURM_GTIDS=2,3 \
     SLURM_JOBID=6 SLURM_JOB_ID=6 SLURM_JOB_NODELIST=n[1-2] SLURM_JOB_NUM_NODES=2 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 \
     SLURM_LOCALID=1 SLURM_NNODES=2 SLURM_NODEID=1 SLURM_NODELIST=n[1-2] SLURM_NPROCS=4 SLURM_NTASKS=4 \
     SLURM_NTASKS_PER_NODE=2 SLURM_PROCID=3 SLURM_STEPID=0 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] \
     SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_TASKS_PER_NODE=2(x2) \
     SLURM_TOPOLOGY_ADDR=n2 SLURM_TOPOLOGY_ADDR_PATTERN=node SLURM_WORKING_CLUSTER=it:127.0.0.1:17817:9728:109";

#[test]
fn a_recorded_step_of_slurm() {
    assert_eq!(numbers_of(SLURM_RECORDED), [3, 4, 1, 2, 1, 2].map(Some));
    assert_eq!(rank0_host_of(SLURM_RECORDED), Rank0Host::Address("n1".into()));
    assert_eq!(launch(SLURM_RECORDED).unwrap().rank_info.hostname, "n2");
    // `srun -N1 -n2 -r1` in the same job: the second node only.
    let part = "SLURMD_NODENAME=n2 SLURM_JOB_ID=6 SLURM_JOB_NODELIST=n[1-2] SLURM_LOCALID=1 SLURM_NODEID=0 \
         SLURM_NODELIST=n[1-2] SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=2 SLURM_PROCID=1 SLURM_STEP_ID=3 \
         SLURM_STEP_NODELIST=n2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_TASKS_PER_NODE=2";
    assert_eq!(numbers_of(part), [1, 2, 1, 2, 0, 1].map(Some));
    assert_eq!(rank0_host_of(part), Rank0Host::SameHost);
}

/// `srun -m arbitrary` with the hosts n3, n1, n1, n3: rank 0 is not on the first node of the list.
#[test]
fn a_step_of_slurm_with_a_host_list() {
    let all = "SLURM_CLUSTER_NAME=it SLURM_DISTRIBUTION=arbitrary SLURM_JOB_ID=14 SLURM_NODELIST=n[1,3] SLURM_NTASKS=4 \
         SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1,3] SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2)";
    let first = format!("{all} SLURMD_NODENAME=n3 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_PROCID=0");
    assert_eq!(numbers_of(&first), [0, 4, 0, 2, 1, 2].map(Some));
    let second = format!("{all} SLURMD_NODENAME=n1 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_PROCID=1");
    assert_eq!(numbers_of(&second), [1, 4, 0, 2, 0, 2].map(Some));
    assert_eq!(rank0_host_of(&second), Rank0Host::Candidates(vec!["n1".into(), "n3".into()]));
    assert_eq!(rank0_host_of(&format!("{second} MASTER_ADDR=x")), Rank0Host::Address("x".into()));
    // Rank 0 needs no address of itself: it listens whatever the name is.
    assert!(matches!(rank0_host_of(&first), Rank0Host::Address(_)));
}

#[test]
fn a_batch_script_of_slurm_is_no_rank() {
    for script in [
        "SLURMD_NODENAME=n1 SLURM_JOB_ID=6 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NODELIST=n[1-2] SLURM_NTASKS=4 \
         SLURM_NTASKS_PER_NODE=2 SLURM_PROCID=0 SLURM_TASKS_PER_NODE=2(x2)",
        "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_NODELIST=n[1-2]",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=8",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=8",
    ] {
        assert_eq!(launch(script).unwrap().rendezvous, RendezvousMethod::SingleProcess, "{script}");
    }
}

#[test]
fn open_mpi_also_when_it_starts_its_daemons_through_slurm() {
    let one = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
         OMPI_MCA_ess_base_jobid=180813825";
    assert_eq!(rank0_host_of(one), Rank0Host::SameHost);
    let daemon = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NODELIST=n[1-2]";
    assert_eq!(numbers_of(&format!("{one} {daemon}"))[..2], [Some(1), Some(2)]);
    let two = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1";
    let uri = "OMPI_MCA_orte_hnp_uri=180813824.0;tcp://192.0.2.2,10.0.0.1:58193;tcp6://[fd00::2]:49961";
    let expected = ["192.0.2.2", "10.0.0.1", "fd00::2"].map(str::to_owned).to_vec();
    assert_eq!(rank0_host_of(&format!("{two} {uri}")), Rank0Host::Candidates(expected));
    refused(two, "set MASTER_ADDR");
}

#[test]
fn mpich() {
    let variables = "PMI_RANK=1 PMI_SIZE=2 PMI_FD=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
    assert_eq!(numbers_of(variables), [Some(1), Some(2), Some(1), Some(2), None, None]);
    let RendezvousMethod::Rank0(rank0) = launch(variables).unwrap().rendezvous else { panic!("not at rank 0") };
    assert_eq!((rank0.host, rank0.launcher_socket), (Rank0Host::SameHost, Some(8)));
    let under_slurm = format!("{variables} SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_NODELIST=n1");
    assert_eq!(numbers_of(&under_slurm)[..2], [Some(1), Some(2)]);
    assert_eq!(numbers_of(&format!("{SLURM} PMI_RANK=5 PMI_SIZE=7"))[4..], [Some(2), Some(3)], "srun --mpi=pmi2");
}

#[test]
fn jobs_have_different_ids() {
    let job_id = |variables: &str| match launch(variables).unwrap().rendezvous {
        RendezvousMethod::Rank0(rank0) => rank0.job_id,
        other => panic!("{other:?}"),
    };
    let one = "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500";
    assert_eq!(job_id(one), job_id(&one.replace("RANK=0", "RANK=1")));
    assert_ne!(job_id(one), job_id(&one.replace("29500", "29501")));
    assert_ne!(job_id(SLURM), job_id(&SLURM.replace("STEP_ID=0", "STEP_ID=1")));
}

#[test]
fn mistakes_are_named_with_their_fix() {
    refused("HOROVOD_RANK=1", "HOROVOD_RANK is set but HOROVOD_SIZE is not: set both");
    refused("WORLD_SIZE=1", "WORLD_SIZE is set but RANK is not");
    refused("HOROVOD_RANK=x HOROVOD_SIZE=2", "HOROVOD_RANK is `x`, which is not a whole number");
    refused("RANK=-1 WORLD_SIZE=2", "RANK is `-1`");
    refused("PMI_RANK=2 PMI_SIZE=2", "PMI_RANK is 2, but PMI_SIZE is 2");
    refused("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=0", "OMPI_COMM_WORLD_SIZE is 0");
    refused("HOROVOD_RANK=0 HOROVOD_SIZE=2", "HOROVOD_GLOO_RENDEZVOUS_ADDR is not set");
    refused(&HOROVOD.replace("4001", "70000"), "HOROVOD_GLOO_RENDEZVOUS_PORT is `70000`");
    refused(&HOROVOD.replace("LOCAL_RANK=1", "LOCAL_RANK=2"), "HOROVOD_LOCAL_RANK is 2, but HOROVOD_LOCAL_SIZE is 2");
    refused(&SLURM.replace("n[1-3]", "n[1-"), "SLURM_NODELIST is `n[1-,m2`");
    refused(&SLURM.replace("2(x3)", "two"), "SLURM_TASKS_PER_NODE is `two,1`");
    refused("HOROVOD_GLOO_TIMEOUT_SECONDS=0", "HOROVOD_GLOO_TIMEOUT_SECONDS is `0`");
    refused("CORRO_JOB_SECRET=", "CORRO_JOB_SECRET is empty");
}
