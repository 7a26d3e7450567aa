//! Names of the log files that a node writes for a job and for the setup task. Pure.

use corro_model::NodeId;
use corro_model::node::TaskOrder;

/// Names of a job's log files on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNames {
    pub execution: String,
    pub preparation_stdout: String,
    pub preparation_stderr: String,
}

impl LogNames {
    /// With one node the names are plain; with several they contain the node's id.
    pub fn new(order: &TaskOrder, node: &NodeId) -> LogNames {
        let suffix = if order.hosts.len() > 1 { format!("-{node}") } else { String::new() };
        LogNames {
            execution: format!("execution{suffix}.log"),
            preparation_stdout: format!("stdout-job_prep{suffix}.txt"),
            preparation_stderr: format!("stderr-job_prep{suffix}.txt"),
        }
    }
}

/// Names of the log files of this node's setup task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupLogNames {
    pub execution: String,
    pub stdout: String,
    pub stderr: String,
}

impl SetupLogNames {
    pub fn new(node: &NodeId) -> SetupLogNames {
        SetupLogNames {
            execution: format!("execution-{node}.log"),
            stdout: format!("stdout-{node}.txt"),
            stderr: format!("stderr-{node}.txt"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn names_follow_the_number_of_nodes() {
        let names = |n_nodes| LogNames::new(&testing::order(n_nodes), &testing::node(2));
        let check = |names: LogNames, expected: [&str; 3]| {
            assert_eq!([&names.execution, &names.preparation_stdout, &names.preparation_stderr], expected);
        };
        check(names(1), ["execution.log", "stdout-job_prep.txt", "stderr-job_prep.txt"]);
        check(
            names(2),
            [
                "execution-tvm-1_2-20180718t174802z-p.log",
                "stdout-job_prep-tvm-1_2-20180718t174802z-p.txt",
                "stderr-job_prep-tvm-1_2-20180718t174802z-p.txt",
            ],
        );
    }
}
