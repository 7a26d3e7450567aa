//! What Slurm is asked for when a node is wanted: the options of `sbatch` and the script it is given. Pure.
//!
//! The token is in the script alone, which goes to `sbatch` on its standard input: Slurm shows scripts to the user who
//! submitted them and to its operators. Nobody sees it in a list of processes, in `scontrol show job` or in an environment.

use std::path::PathBuf;

use corro_model::{NodeId, Secret};
use corro_server::NewNode;

/// How this site wants to be asked.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub partition: Option<String>,
    pub account: Option<String>,
    pub qos: Option<String>,
    pub time: Option<String>,
    /// As given, after all others, so that they win.
    pub options: Vec<String>,
    pub low_priority_options: Vec<String>,
    /// The program on Slurm's nodes.
    pub program: PathBuf,
    /// Below this agents keep their directories; may name variables of the allocation.
    pub node_dir: String,
    /// Where the agents' logs go.
    pub logs: Option<PathBuf>,
}

/// How an agent finds the server and believes it.
#[derive(Clone, Debug)]
pub struct WayIn {
    pub url: String,
    /// Who vouches for its certificate (PEM).
    pub authority: Option<String>,
    /// Directories of the server that no job may see, should nodes see them.
    pub hidden: Vec<PathBuf>,
}

/// The mark that all allocations of one server carry in their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// `instance` tells the server from every other.
    pub fn of(instance: &str) -> Self {
        let letters = instance.chars().filter(char::is_ascii_alphanumeric).take(12);
        Self(format!("corro-{}", letters.collect::<String>()))
    }

    /// The name of a node's allocation.
    pub fn name(&self, node: &NodeId) -> String {
        format!("{}-{node}", self.0)
    }

    /// The node whose allocation has this name, if it is one of this server.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        NodeId::parse(name.strip_prefix(self.0.as_str())?.strip_prefix('-')?)
    }
}

/// The options of `sbatch`.
pub fn options(wishes: &Wishes, mark: &Mark, node: &NewNode) -> Vec<String> {
    let mut options = vec![
        "--parsable".to_owned(),
        format!("--job-name={}", mark.name(&node.id)),
        format!("--comment=corro cluster {}", node.cluster),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        format!("--cpus-per-task={}", node.size.cores),
        format!("--mem={}M", u64::from(node.size.memory_gib) * 1024),
        // A node that was lost is replaced by another; should this one come back, nobody would know it.
        "--no-requeue".to_owned(),
        "--chdir=/".to_owned(),
        "--input=/dev/null".to_owned(),
        match &wishes.logs {
            Some(dir) => format!("--output={}/%x.log", dir.display()),
            None => "--output=/dev/null".to_owned(),
        },
    ];
    if node.size.gpus > 0 {
        options.push(format!("--gres=gpu:{}", node.size.gpus));
    }
    let chosen =
        [("partition", &wishes.partition), ("account", &wishes.account), ("qos", &wishes.qos), ("time", &wishes.time)];
    options.extend(chosen.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))));
    options.extend(wishes.options.iter().cloned());
    if node.low_priority {
        options.extend(wishes.low_priority_options.iter().cloned());
    }
    options
}

/// The script that becomes the node's agent. `/tmp` may be everybody's: the directory must be this user's own.
pub fn script(wishes: &Wishes, mark: &Mark, way_in: &WayIn, node: &NodeId, token: &Secret) -> String {
    let (base, program) = (&wishes.node_dir, quoted(&wishes.program.to_string_lossy()));
    let (authority, trust) = match &way_in.authority {
        Some(pem) => (
            format!("cat > \"$node/authority.pem\" <<'{END}'\n{}\n{END}\n", pem.trim_end()),
            " --ca \"$node/authority.pem\"",
        ),
        None => (String::new(), ""),
    };
    let hidden = way_in.hidden.iter().map(|path| format!(" --hide {}", quoted(&path.to_string_lossy())));
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
        mark.0,
        token.expose(),
        quoted(&way_in.url),
    )
}

/// In no token and in no certificate.
const END: &str = "CORRO_END";

/// As one word of the shell.
fn quoted(text: &str) -> String {
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

    fn wishes() -> Wishes {
        let text = |text: &str| Some(text.to_owned());
        Wishes {
            partition: text("gpu"),
            time: text("4:00:00"),
            options: vec!["--mem=0".to_owned()],
            low_priority_options: vec!["--qos=scavenger".to_owned()],
            program: "/opt/it's/corro".into(),
            node_dir: "/scratch/$USER".to_owned(),
            logs: Some("/home/me/logs".into()),
            ..Wishes::default()
        }
    }

    #[test]
    fn a_node_is_asked_for_by_its_size_and_what_the_site_says_wins() {
        let mark = Mark::of("12345678-9abc-def0-1111-222222222222");
        let options = options(&wishes(), &mark, &node("STANDARD_NC12", true));
        assert!(
            options.contains(&"--job-name=corro-123456789abc-tvm-1_1-20261116t220000z-p".to_owned()),
            "{options:?}"
        );
        for wanted in ["--cpus-per-task=12", "--mem=114688M", "--gres=gpu:2", "--partition=gpu", "--time=4:00:00"] {
            assert!(options.iter().any(|option| option == wanted), "{wanted} in {options:?}");
        }
        assert!(options.contains(&"--output=/home/me/logs/%x.log".to_owned()), "{options:?}");
        assert_eq!(options[options.len() - 2..], ["--mem=0", "--qos=scavenger"]);
        let plain = super::options(&Wishes::default(), &mark, &node("STANDARD_D1", false));
        assert!(!plain.iter().any(|option| ["--gres", "--partition", "--qos"].iter().any(|no| option.starts_with(no))));
    }

    #[test]
    fn allocations_are_known_by_their_names() {
        let (mark, other) = (Mark::of("12345678-9abc-def0"), Mark::of("00000000-9abc-def0"));
        let id = node("STANDARD_D1", false).id;
        assert_eq!(mark.node(&mark.name(&id)), Some(id.clone()));
        assert_eq!(other.node(&mark.name(&id)), None);
        assert_eq!(mark.node("corro-123456789abc-somebody's"), None);
    }

    #[test]
    fn a_script_that_bash_understands_keeps_the_token_out_of_the_command() {
        let way_in = WayIn {
            url: "https://box:8470".to_owned(),
            authority: Some("-----BEGIN\n".to_owned()),
            hidden: vec!["/srv/data".into()],
        };
        let id = node("STANDARD_D1", false).id;
        let script = script(&wishes(), &Mark::of("abc"), &way_in, &id, &Secret::new("t0ken"));
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
