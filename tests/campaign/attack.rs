//! Malicious jobs: they plant symbolic links where their agent writes, start hidden children, and issue commands that would run
//! outside their isolation. The final check searches for their effects.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::harness::{Site, is_alive};
use corro_test_support::rng::SplitMix64;

/// Prefix of malicious jobs. They may end in any state, and their logs are not checked.
pub const PREFIX: &str = "attack";

/// The second share, which no job mounts.
const OTHER_SHARE: &str = "other";

/// Targets of the attacks on this machine.
#[derive(Clone)]
pub struct Target {
    master_key: PathBuf,
    key_before: Vec<u8>,
    /// A file that only the operator may read, and its text.
    secret: PathBuf,
    secret_text: String,
    /// Created by a command that ran outside its isolation.
    escaped: PathBuf,
    other_share: PathBuf,
    /// Sleep time of hidden children, unique so that they can be recognised.
    child_seconds: String,
}

impl Target {
    /// Creates the targets. The site must be prepared.
    pub fn prepare(site: &Site) -> Self {
        site.corro(&format!("storage share create -n {OTHER_SHARE} --account-name mystorageaccount")).ok();
        let secret_text = format!("canary-{}", std::process::id());
        site.write("secret", &secret_text);
        let master_key = site.data().join("master.key");
        Self {
            key_before: std::fs::read(&master_key).expect("the server has made it"),
            master_key,
            secret: site.path().join("secret"),
            secret_text,
            escaped: site.path().join("escaped"),
            other_share: site.data().join("shares/mystorageaccount").join(OTHER_SHARE),
            child_seconds: format!("600.{}", std::process::id()),
        }
    }

    /// Properties that an attacker adds to a job; `rank` is the command of its ranks, with the volumes it mounts.
    pub fn choose(&self, rng: &mut SplitMix64, volumes: &Value) -> Attack {
        let (key, other) = (self.master_key.display(), self.other_share.display());
        let in_logs = "cd $AZ_BATCHAI_STDOUTERR_DIR";
        let commands = |command: String| json!({"customMpiSettings": {"commandLine": command}});
        match rng.between(0, 6) {
            // An agent that is killed now writes through the link in its second attempt, if it follows it.
            0 => {
                Attack::Job(commands(format!("{in_logs}; ln -sf {key} stdout.txt; ln -sf {key} stderr.txt; sleep 0.5")))
            }
            1 => {
                Attack::Job(commands(format!("ln -s {other} $AZ_BATCHAI_STDOUTERR_DIR/../curves; echo step=1 loss=2")))
            }
            2 => Attack::Job(commands(format!(
                "env -i setsid setsid sleep {0} & (exec sleep {0}) & sleep 0.3",
                self.child_seconds
            ))),
            3 => {
                let command = format!("cat {}; touch {}; false #", self.secret.display(), self.escaped.display());
                let mut volumes = volumes.clone();
                volumes["unmanagedFileSystems"] = json!([{"mountCommand": command, "relativeMountPath": "mine"}]);
                let mut more = commands("true".to_owned());
                more["mountVolumes"] = volumes;
                Attack::Job(more)
            }
            4 => Attack::Refused(json!({"stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/../../.."})),
            _ => Attack::Refused(json!({"outputDirectories": [{"id": "A", "pathPrefix": self.other_share}]})),
        }
    }

    /// Damage done by the attacks.
    pub fn findings(&self, answers: &str) -> Vec<String> {
        let mut findings = Vec::new();
        if std::fs::read(&self.master_key).ok().as_deref() != Some(&self.key_before) {
            findings.push("the master key was changed".to_owned());
        }
        if self.escaped.exists() {
            findings.push("a mountCommand of a job ran beside its isolation".to_owned());
        }
        if answers.contains(&self.secret_text) {
            findings.push("a response of the server has what a job's mountCommand printed".to_owned());
        }
        let strange = std::fs::read_dir(&self.other_share).expect("the share is there").flatten();
        findings.extend(strange.map(|entry| format!("{:?} came to a share that no job mounts", entry.file_name())));
        findings
    }

    /// Hidden children that are still alive.
    pub fn children(&self) -> Vec<u32> {
        let is_child = |pid: &u32| {
            let words = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
            is_alive(*pid) && words.split(|byte| *byte == 0).any(|word| word == self.child_seconds.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").expect("Linux has it").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
    }
}

pub enum Attack {
    /// An accepted job, with these properties beside the usual ones.
    Job(Value),
    /// A job that the server must refuse.
    Refused(Value),
}
