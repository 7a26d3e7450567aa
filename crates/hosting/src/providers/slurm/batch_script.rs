//! Options and batch script of a node's allocation. Pure.
//!
//! The join token is in the script only, and the script reaches `sbatch` on standard input. Slurm shows scripts to the user who
//! submitted them and to its operators. The token appears in no process list, no `scontrol show job` and no environment.

use std::path::PathBuf;

use corro_model::{NodeId, Secret};
use corro_server::NewNode;

/// Validated `--slurm-*` options.
#[derive(Clone, Debug, Default)]
pub struct SlurmOptions {
    pub partition: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    pub time: Option<String>,
    /// Appended to all other `sbatch` options, so that they win.
    pub options: Vec<String>,
    pub low_priority_options: Vec<String>,
    /// Path of `corro` on Slurm's nodes.
    pub program: PathBuf,
    /// Parent of the agents' directories; may contain variables of the allocation.
    pub node_dir: String,
    /// Directory for the agents' logs; `None` discards them.
    pub logs: Option<PathBuf>,
}

/// Data with which an agent connects to the server and verifies it.
#[derive(Clone, Debug)]
pub struct JoinInfo {
    pub url: String,
    /// Certificate authority of the server (PEM).
    pub ca_pem: Option<String>,
    /// Directories of the server that no job may see, in case Slurm's nodes share its file system.
    pub hidden_dirs: Vec<PathBuf>,
}

/// Prefix of the names of all allocations of one server. It identifies them after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTag(String);

impl ServerTag {
    /// `instance` is the unique id of the server; its first 12 alphanumeric characters are used.
    pub fn from_instance(instance: &str) -> Self {
        let letters = instance.chars().filter(char::is_ascii_alphanumeric).take(12);
        Self(format!("corro-{}", letters.collect::<String>()))
    }

    /// Job name of a node's allocation.
    pub fn job_name(&self, node: &NodeId) -> String {
        format!("{}-{node}", self.0)
    }

    /// The node of a job name; `None` if the job is not one of this server.
    pub fn parse_node(&self, name: &str) -> Option<NodeId> {
        NodeId::parse(name.strip_prefix(self.0.as_str())?.strip_prefix('-')?)
    }
}

/// Arguments of `sbatch` for a node.
pub fn sbatch_args(options: &SlurmOptions, tag: &ServerTag, node: &NewNode) -> Vec<String> {
    let mut args = vec![
        "--parsable".to_owned(),
        format!("--job-name={}", tag.job_name(&node.id)),
        format!("--comment=corro cluster {}", node.cluster),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        format!("--cpus-per-task={}", node.size.cores),
        format!("--mem={}M", u64::from(node.size.memory_gib) * 1024),
        // A lost node is replaced by another one, so Slurm must not start it again.
        "--no-requeue".to_owned(),
        "--chdir=/".to_owned(),
        "--input=/dev/null".to_owned(),
        match &options.logs {
            Some(dir) => format!("--output={}/%x.log", dir.display()),
            None => "--output=/dev/null".to_owned(),
        },
    ];
    if node.size.gpus > 0 {
        args.push(format!("--gres=gpu:{}", node.size.gpus));
    }
    let chosen = [
        ("partition", &options.partition),
        ("account", &options.account),
        ("qos", &options.qos),
        ("time", &options.time),
    ];
    args.extend(chosen.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))));
    args.extend(options.options.iter().cloned());
    if node.low_priority {
        args.extend(options.low_priority_options.iter().cloned());
    }
    args
}

/// Batch script that writes the join token and then executes the node's agent. The parent directory may be world-writable, such as
/// `/tmp`, so the script refuses a directory of another user and a symbolic link.
pub fn batch_script(options: &SlurmOptions, tag: &ServerTag, join: &JoinInfo, node: &NodeId, token: &Secret) -> String {
    let (base, program) = (&options.node_dir, shell_quote(&options.program.to_string_lossy()));
    let (authority, trust) = match &join.ca_pem {
        Some(pem) => (
            format!("cat > \"$node/authority.pem\" <<'{END}'\n{}\n{END}\n", pem.trim_end()),
            " --ca \"$node/authority.pem\"",
        ),
        None => (String::new(), ""),
    };
    let hidden = join.hidden_dirs.iter().map(|path| format!(" --hide {}", shell_quote(&path.to_string_lossy())));
    let hidden: String = hidden.collect();
    format!(
        "#!/bin/bash\n\
         mask=$(umask)\n\
         umask 077\n\
         own=\"{base}/{}\"\n\
         mkdir -p \"$own\"\n\
         if [ ! -O \"$own\" ] || [ -L \"$own\" ]; then echo \"$own is not this user's own directory\" >&2; exit 1; fi\n\
         node=\"$own/{node}\"\n\
         mkdir -p \"$node\" || exit 1\n\
         cat > \"$node/join-token\" <<'{END}'\n{}\n{END}\n\
         {authority}\
         umask \"$mask\"\n\
         exec {program} agent --server {} --data \"$node\" --join-token-file \"$node/join-token\"{trust} --once --leave-nothing --hide \"$own\"{hidden}\n",
        tag.0,
        token.expose(),
        shell_quote(&join.url),
    )
}

/// Delimiter of here-documents. Occurs in no token and no certificate.
const END: &str = "CORRO_END";

/// Quotes `text` as one word of a POSIX shell.
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use corro_model::vm_size;

    use super::*;

    fn node(size: &str, low_priority: bool) -> NewNode {
        let id = NodeId::parse("tvm-1_1-20261116t220000z-p").expect("an id");
        let size = vm_size::find(size).expect("a size");
        NewNode { id, address: "127.0.0.2".to_owned(), cluster: "nc6".to_owned(), size, low_priority }
    }

    fn example_options() -> SlurmOptions {
        let text = |text: &str| Some(text.to_owned());
        SlurmOptions {
            partition: text("gpu"),
            time: text("4:00:00"),
            options: vec!["--mem=0".to_owned()],
            low_priority_options: vec!["--qos=scavenger".to_owned()],
            program: "/opt/it's/corro".into(),
            node_dir: "/scratch/$USER".to_owned(),
            logs: Some("/home/me/logs".into()),
            ..SlurmOptions::default()
        }
    }

    #[test]
    fn sbatch_gets_the_vm_size_and_the_sites_options_win() {
        let tag = ServerTag::from_instance("12345678-9abc-def0-1111-222222222222");
        let args = sbatch_args(&example_options(), &tag, &node("STANDARD_NC12", true));
        assert!(args.contains(&"--job-name=corro-123456789abc-tvm-1_1-20261116t220000z-p".to_owned()), "{args:?}");
        for wanted in ["--cpus-per-task=12", "--mem=114688M", "--gres=gpu:2", "--partition=gpu", "--time=4:00:00"] {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted} in {args:?}");
        }
        assert!(args.contains(&"--output=/home/me/logs/%x.log".to_owned()), "{args:?}");
        assert_eq!(args[args.len() - 2..], ["--mem=0", "--qos=scavenger"]);
        let plain = sbatch_args(&SlurmOptions::default(), &tag, &node("STANDARD_D1", false));
        assert!(!plain.iter().any(|option| ["--gres", "--partition", "--qos"].iter().any(|no| option.starts_with(no))));
    }

    #[test]
    fn job_names_identify_server_and_node() {
        let (tag, other) =
            (ServerTag::from_instance("12345678-9abc-def0"), ServerTag::from_instance("00000000-9abc-def0"));
        let id = node("STANDARD_D1", false).id;
        assert_eq!(tag.parse_node(&tag.job_name(&id)), Some(id.clone()));
        assert_eq!(other.parse_node(&tag.job_name(&id)), None);
        assert_eq!(tag.parse_node("corro-123456789abc-somebody's"), None);
    }

    #[test]
    fn the_script_is_valid_bash_and_keeps_the_token_out_of_the_command() {
        let join = JoinInfo {
            url: "https://box:8470".to_owned(),
            ca_pem: Some("-----BEGIN\n".to_owned()),
            hidden_dirs: vec!["/srv/data".into()],
        };
        let id = node("STANDARD_D1", false).id;
        let script =
            batch_script(&example_options(), &ServerTag::from_instance("abc"), &join, &id, &Secret::new("t0ken"));
        let command = script.lines().last().expect("it has lines");
        assert!(command.starts_with("exec '/opt/it'\\''s/corro' agent --server 'https://box:8470'"), "{script}");
        assert!(!command.contains("t0ken") && script.matches("t0ken").count() == 1, "{script}");
        assert!(command.ends_with(" --hide \"$own\" --hide '/srv/data'"), "{script}");
        assert!(script.contains("own=\"/scratch/$USER/corro-abc\""), "{script}");
        let mut bash = std::process::Command::new("bash");
        let checked = bash.args(["-n", "-c", &script]).output().expect("bash is there");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}
