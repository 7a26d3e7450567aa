//! Environment variables of ranks, and the filter of inherited variables. Pure: the caller passes the variables
//! of its own process. The names are a contract with the engine and with users' scripts.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::rank_assignment::RankAssignment;

/// Settings that all ranks of a gang have in common.
#[derive(Clone, Debug)]
pub struct GangContext {
    pub rendezvous_addr: String,
    pub rendezvous_port: u16,
    /// The network interface for traffic between ranks; `None` leaves the choice to the engine.
    pub iface: Option<String>,
    pub master_addr: String,
    pub master_port: u16,
    pub secret: String,
}

/// The variables of one rank: those of Horovod's launcher, of `torchrun`, of Open MPI and of MPICH, so that scripts for any
/// of them work.
pub fn for_rank(gang: &GangContext, assignment: &RankAssignment, hostname: &str) -> BTreeMap<String, String> {
    let number = |n: usize| n.to_string();
    let mut variables = vec![
        ("HOROVOD_RANK", number(assignment.rank)),
        ("HOROVOD_SIZE", number(assignment.size)),
        ("HOROVOD_LOCAL_RANK", number(assignment.local_rank)),
        ("HOROVOD_LOCAL_SIZE", number(assignment.local_size)),
        ("HOROVOD_CROSS_RANK", number(assignment.cross_rank)),
        ("HOROVOD_CROSS_SIZE", number(assignment.cross_size)),
        ("HOROVOD_HOSTNAME", hostname.to_owned()),
        ("HOROVOD_CONTROLLER", "gloo".to_owned()),
        ("HOROVOD_CPU_OPERATIONS", "gloo".to_owned()),
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", gang.rendezvous_addr.clone()),
        ("HOROVOD_GLOO_RENDEZVOUS_PORT", gang.rendezvous_port.to_string()),
        ("RANK", number(assignment.rank)),
        ("WORLD_SIZE", number(assignment.size)),
        ("LOCAL_RANK", number(assignment.local_rank)),
        ("LOCAL_WORLD_SIZE", number(assignment.local_size)),
        ("MASTER_ADDR", gang.master_addr.clone()),
        ("MASTER_PORT", gang.master_port.to_string()),
        ("OMPI_COMM_WORLD_RANK", number(assignment.rank)),
        ("OMPI_COMM_WORLD_SIZE", number(assignment.size)),
        ("OMPI_COMM_WORLD_LOCAL_RANK", number(assignment.local_rank)),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", number(assignment.local_size)),
        ("PMI_RANK", number(assignment.rank)),
        ("PMI_SIZE", number(assignment.size)),
        ("MPI_LOCALRANKID", number(assignment.local_rank)),
        ("MPI_LOCALNRANKS", number(assignment.local_size)),
        ("PYTHONUNBUFFERED", "1".to_owned()),
        (SECRET_VARIABLE, gang.secret.clone()),
    ];
    if let Some(iface) = &gang.iface {
        variables.push(("HOROVOD_GLOO_IFACE", iface.clone()));
        variables.push(("NCCL_SOCKET_IFNAME", iface.clone()));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The secret with which ranks authenticate each other.
pub const SECRET_VARIABLE: &str = "CORRO_JOB_SECRET";

/// The variables of the node's environment that a job may inherit. An allowlist, because the agent's environment may hold
/// credentials that a denylist would miss.
pub fn inherited(variables: impl IntoIterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| may_inherit(name))
        .collect()
}

fn may_inherit(name: &str) -> bool {
    const NAMES: [&str; 9] =
        ["PATH", "USER", "LOGNAME", "LANG", "TZ", "TERM", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"];
    const PREFIXES: [&str; 8] = ["LC_", "CUDA_", "NVIDIA_", "PYTHON", "CONDA_", "SSL_CERT_", "OMP_", "MKL_"];
    const SUFFIXES: [&str; 2] = ["_proxy", "_PROXY"];
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_assignment::{Host, assign_ranks};

    #[test]
    fn a_rank_gets_its_variables() {
        let gang = GangContext {
            rendezvous_addr: "10.0.0.4".into(),
            rendezvous_port: 4001,
            iface: Some("eth0".into()),
            master_addr: "10.0.0.4".into(),
            master_port: 4002,
            secret: "s3".into(),
        };
        let hosts = [Host { name: "a".into(), slots: 2 }, Host { name: "b".into(), slots: 1 }];
        let env = for_rank(&gang, &assign_ranks(&hosts)[2], "b");
        let text: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "CORRO_JOB_SECRET=s3",
            "HOROVOD_CONTROLLER=gloo",
            "HOROVOD_CPU_OPERATIONS=gloo",
            "HOROVOD_CROSS_RANK=1",
            "HOROVOD_CROSS_SIZE=2",
            "HOROVOD_GLOO_IFACE=eth0",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.4",
            "HOROVOD_GLOO_RENDEZVOUS_PORT=4001",
            "HOROVOD_HOSTNAME=b",
            "HOROVOD_LOCAL_RANK=0",
            "HOROVOD_LOCAL_SIZE=1",
            "HOROVOD_RANK=2",
            "HOROVOD_SIZE=3",
            "LOCAL_RANK=0",
            "LOCAL_WORLD_SIZE=1",
            "MASTER_ADDR=10.0.0.4",
            "MASTER_PORT=4002",
            "MPI_LOCALNRANKS=1",
            "MPI_LOCALRANKID=0",
            "NCCL_SOCKET_IFNAME=eth0",
            "OMPI_COMM_WORLD_LOCAL_RANK=0",
            "OMPI_COMM_WORLD_LOCAL_SIZE=1",
            "OMPI_COMM_WORLD_RANK=2",
            "OMPI_COMM_WORLD_SIZE=3",
            "PMI_RANK=2",
            "PMI_SIZE=3",
            "PYTHONUNBUFFERED=1",
            "RANK=2",
            "WORLD_SIZE=3",
        ];
        assert_eq!(text, expected);
        let without_iface = for_rank(&GangContext { iface: None, ..gang }, &assign_ranks(&hosts)[0], "a");
        assert!(!without_iface.contains_key("HOROVOD_GLOO_IFACE") && !without_iface.contains_key("NCCL_SOCKET_IFNAME"));
    }

    #[test]
    fn only_listed_variables_are_inherited() {
        for (name, expected) in [
            ("PATH", true),
            ("LC_ALL", true),
            ("CUDA_VISIBLE_DEVICES", true),
            ("PYTHONPATH", true),
            ("https_proxy", true),
            ("NO_PROXY", true),
            ("SSL_CERT_FILE", true),
            ("HOME", false),
            ("PATHS", false),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("CORRO_JOB_SECRET", false),
            ("HOROVOD_RANK", false),
            ("SSH_AUTH_SOCK", false),
        ] {
            let env = inherited([(OsString::from(name), OsString::from("v"))]);
            assert_eq!(env.contains_key(name), expected, "{name}");
        }
    }
}
