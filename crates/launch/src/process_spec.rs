//! Description of a process to start. Plain values.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::confinement::Confinement;

/// One process to start.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    pub argv: Vec<String>,
    /// The complete environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    /// Value of the tag variable in the environment of the process and its descendants, by which leftovers are found. Unique per process.
    pub tag: String,
    pub confinement: Confinement,
}

/// Standard input of a process.
#[derive(Debug)]
pub enum Input {
    /// `/dev/null`, as for ranks.
    Nothing,
    /// A pipe, written through `Process::stdin`.
    Pipe,
    /// A terminal, given by its slave side. Output goes to it too.
    Terminal(OwnedFd),
}
