//! What a process is kept from: the sight of other jobs, other processors, and saying secrets. Decided by whoever starts it, carried out by
//! its guard and by the reader of its output. The default keeps it from nothing.

use crate::namespaces::Namespaces;
use crate::redact::Secrets;

#[derive(Clone, Debug, Default)]
pub struct Confinement {
    /// Lives in these instead of its launcher's.
    pub namespaces: Option<Namespaces>,
    /// Runs on these alone; empty means all that its launcher may use.
    pub processors: Vec<u16>,
    /// Does not show these in its output.
    pub secrets: Secrets,
}
