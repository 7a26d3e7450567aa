//! Sample orders for the unit tests of this crate.

use corro_model::layout::{Layout, RankLogs, Ranks};
use corro_model::node::{GangHost, TaskOrder};
use corro_model::{AttemptId, NodeId, Secret};

/// A node id.
pub fn node(index: u32) -> NodeId {
    NodeId::parse(&format!("tvm-1_{index}-20180718t174802z-p")).expect("a valid id")
}

/// A layout of ranks with a common log.
pub fn ranks(command: &str) -> Layout {
    Layout::Ranks(Ranks { command: command.into(), logs: RankLogs::Together, indexed: false, backend: None })
}

/// A layout of a single command.
pub fn command(command: &str) -> Layout {
    Layout::Command { command: command.into() }
}

/// An order with one rank on each of `n_nodes` nodes, as the first node gets it.
pub fn order(n_nodes: u32) -> TaskOrder {
    let host = |idx: u32| GangHost { node: node(idx + 1), address: format!("127.0.0.{}", idx + 4), slots: 1 };
    TaskOrder {
        attempt: AttemptId { job: "guid".into(), number: 1 },
        workspace: "w".into(),
        experiment: "e".into(),
        job: "j".into(),
        segment: "sub/rg/workspaces/w/experiments/e/jobs/j/guid".into(),
        hosts: (0..n_nodes).map(host).collect(),
        host_idx: 0,
        layout: ranks("true"),
        preparation: None,
        volumes: Vec::new(),
        std_out_err_path_prefix: "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs".into(),
        input_directories: Vec::new(),
        output_directories: Vec::new(),
        environment: Vec::new(),
        secrets: Vec::new(),
        shared_temp: Some("/nonexistent/shared".into()),
        container: None,
        containers_on_host: false,
        strict_isolation: false,
        shows_secrets: false,
        limits: None,
        counters: false,
        gpus: 0,
        gang_secret: Secret::new("gang"),
        lost_attempts: Vec::new(),
        working_directory: None,
        prefix_output_with_rank: false,
        elastic: false,
        python_environment: None,
    }
}
