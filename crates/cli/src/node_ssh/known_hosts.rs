//! Host keys of nodes, pinned on first use: the file `known_nodes` in the configuration directory, one `NODE KEY` per line. Node ids are never
//! reused, so a changed key means an impostor.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use corro_client::profile;
use corro_model::NodeId;

use crate::error::CliError;

const FILE_NAME: &str = "known_nodes";

/// The pinned key of one node.
pub struct PinnedHostKey {
    node: NodeId,
    file: PathBuf,
}

impl PinnedHostKey {
    pub fn new(node: &NodeId) -> Result<PinnedHostKey, CliError> {
        Ok(PinnedHostKey { node: node.clone(), file: profile::config_dir()?.join(FILE_NAME) })
    }

    /// Accepts the pinned key. The first key of a node is accepted and pinned.
    pub fn verify(&self, key: &str) -> Result<(), CliError> {
        let known = match fs::read_to_string(&self.file) {
            Ok(known) => known,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(self.file_error("read", error)),
        };
        let mut keys = known.lines().filter_map(|line| line.split_once(' '));
        match keys.find(|(node, _)| *node == self.node.as_str()) {
            Some((_, pinned)) if pinned == key => Ok(()),
            Some(_) => Err(CliError::new(format!("the host key of node {} has changed", self.node)).hint(format!(
                "possible man-in-the-middle; if you know why it changed, remove the node's line from {}",
                self.file.display()
            ))),
            None => self.pin(key).map_err(|error| self.file_error("write", error)),
        }
    }

    fn pin(&self, key: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.file)?;
        // One write per line, since other commands may append at the same time.
        file.write_all(format!("{} {key}\n", self.node).as_bytes())
    }

    fn file_error(&self, verb: &str, error: io::Error) -> CliError {
        CliError::new(format!("cannot {verb} {}", self.file.display())).cause(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_pinned_and_another_rejected() {
        let dir = tempfile::tempdir().expect("temp dir");
        let node =
            |id: &str| PinnedHostKey { node: NodeId::parse(id).expect("an id"), file: dir.path().join(FILE_NAME) };
        for _ in 0..2 {
            node("tvm-1_1").verify("ssh-ed25519 AAAA").expect("the same");
            node("tvm-1_2").verify("ssh-ed25519 BBBB").expect("the same");
        }
        assert_eq!(fs::read_to_string(dir.path().join(FILE_NAME)).expect("written").lines().count(), 2);
        let error = node("tvm-1_1").verify("ssh-ed25519 BBBB").expect_err("another one");
        assert!(error.message.contains("has changed"), "{error}");
    }
}
