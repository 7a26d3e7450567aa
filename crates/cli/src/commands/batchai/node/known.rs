//! Which key each node has shown us: `known_nodes` in the configuration directory, one `NODE KEY` a line. Ids of nodes are
//! never used twice, so a node with another key is not that node. Entered by `ssh`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use corro_client::profile;
use corro_model::NodeId;

use crate::failure::Failure;

const FILE_NAME: &str = "known_nodes";

pub struct KnownNode {
    node: NodeId,
    file: PathBuf,
}

impl KnownNode {
    pub fn new(node: &NodeId) -> Result<KnownNode, Failure> {
        Ok(KnownNode { node: node.clone(), file: profile::config_dir()?.join(FILE_NAME) })
    }

    /// Fine when it is the key of last time, or the first one we see, which is remembered.
    pub fn check(&self, key: &str) -> Result<(), Failure> {
        let known = match fs::read_to_string(&self.file) {
            Ok(known) => known,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(self.cannot("read", error)),
        };
        let mut keys = known.lines().filter_map(|line| line.split_once(' '));
        match keys.find(|(node, _)| *node == self.node.as_str()) {
            Some((_, seen)) if seen == key => Ok(()),
            Some(_) => {
                Err(Failure::new(format!("the node {} shows another key than it did before", self.node)).hint(format!(
                    "somebody may stand in between; when you know why, remove its line from {}",
                    self.file.display()
                )))
            }
            None => self.remember(key).map_err(|error| self.cannot("write", error)),
        }
    }

    fn remember(&self, key: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.file)?;
        // In one piece: another command may do the same.
        file.write_all(format!("{} {key}\n", self.node).as_bytes())
    }

    fn cannot(&self, verb: &str, error: io::Error) -> Failure {
        Failure { causes: vec![error.to_string()], ..Failure::new(format!("cannot {verb} {}", self.file.display())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_remembered_and_another_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let node = |id: &str| KnownNode { node: NodeId::parse(id).expect("an id"), file: dir.path().join(FILE_NAME) };
        for _ in 0..2 {
            node("tvm-1_1").check("ssh-ed25519 AAAA").expect("the same");
            node("tvm-1_2").check("ssh-ed25519 BBBB").expect("the same");
        }
        assert_eq!(fs::read_to_string(dir.path().join(FILE_NAME)).expect("written").lines().count(), 2);
        let error = node("tvm-1_1").check("ssh-ed25519 BBBB").expect_err("another one");
        assert!(error.message.contains("shows another key"), "{error}");
    }
}
