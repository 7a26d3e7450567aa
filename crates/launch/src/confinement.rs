//! Restrictions of a process: namespaces, CPU affinity, and redaction of secrets in its output. The default restricts nothing.

use crate::namespaces::Namespaces;
use crate::redact::Secrets;

#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Namespaces that it enters; `None`: those of its launcher.
    pub namespaces: Option<Namespaces>,
    /// CPUs it may run on; empty: those of its launcher.
    pub processors: Vec<u16>,
    /// Redacted in its output.
    pub secrets: Secrets,
}
