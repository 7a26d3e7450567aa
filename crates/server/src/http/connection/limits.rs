//! Limits of the number of connections, by the number of files that the process may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::connections::ConnectionLimits;

/// Upper bound regardless of the file limit: beyond this, memory runs out first.
const MAX_CONNECTIONS: usize = 65_536;
/// File descriptors reserved for the database, shares and processes, where the limit allows.
const RESERVED_FILES: u64 = 512;

/// A quarter of all connections per address, since a whole site may be behind one. Most connections of a server without TLS are
/// local (agents, their mounts, clients that follow jobs), so loopback may have all but an eighth.
pub(super) fn limits_of(total: usize) -> ConnectionLimits {
    ConnectionLimits { total, per_address: (total / 4).max(1), per_loopback_address: (total - total / 8).max(1) }
}

/// Connection limit by the process's file limit, which is raised as far as allowed.
pub(super) fn connection_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections_for_files(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Connections for this many files: all but a quarter, at least [`RESERVED_FILES`] and at most half.
fn connections_for_files(files: u64) -> usize {
    let reserve = RESERVED_FILES.max(files / 4).min(files / 2);
    usize::try_from(files - reserve).map_or(MAX_CONNECTIONS, |files| files.min(MAX_CONNECTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_file_descriptors_to_others() {
        for (files, connections) in [(256, 128), (1_024, 512), (4_096, 3_072), (20_000, 15_000), (u64::MAX, 65_536)] {
            assert_eq!(connections_for_files(files), connections, "{files}");
        }
    }

    #[test]
    fn loopback_has_a_limit_too() {
        let limits = limits_of(15_000);
        assert_eq!((limits.total, limits.per_address, limits.per_loopback_address), (15_000, 3_750, 13_125));
        let small = limits_of(1);
        assert_eq!((small.per_address, small.per_loopback_address), (1, 1));
    }
}
