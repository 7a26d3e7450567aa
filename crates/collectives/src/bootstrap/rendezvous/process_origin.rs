//! Origin of a process: its parent, process group and session, and its machine. Without a secret and without a launcher's
//! id for the run, only the origin distinguishes the ranks of two worlds that use the same `MASTER_PORT`.

use sha2::{Digest, Sha256};

/// Properties that children of one launcher have in common. A number is 0 when its process is outside the PID namespace, as
/// for the first processes of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessOrigin {
    /// Digest of the kernel's boot id and the PID namespace. Process numbers can be compared only if it is equal.
    pub machine: [u8; 16],
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
}

pub const ORIGIN_BYTES: usize = 32;

impl ProcessOrigin {
    /// The origin of this process.
    pub fn of_this_process() -> ProcessOrigin {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let digest = Sha256::digest(format!("{} {}", boot.trim(), namespace.display()));
        // SAFETY: the calls take no pointers and cannot fail for the calling process. (rustix cannot represent group or session 0.)
        let [parent, group, session] =
            unsafe { [libc::getppid(), libc::getpgrp(), libc::getsid(0)] }.map(|pid| pid.max(0) as u32);
        ProcessOrigin {
            machine: digest[..16].try_into().expect("16 bytes"),
            pid: std::process::id(),
            parent,
            group,
            session,
        }
    }

    /// Whether both have the same parent. Parent 1 does not count, because init adopts orphans of all kinds.
    pub fn is_sibling(&self, other: &ProcessOrigin) -> bool {
        self.machine == other.machine && self.parent == other.parent && self.parent > 1
    }

    /// Whether both may belong to one world: on one machine they have the parent, the process group or the session in common. True for
    /// ranks of other machines and containers, and if group and session are both outside the PID namespace (0), where nothing can be compared.
    pub fn may_share_world(&self, other: &ProcessOrigin) -> bool {
        self.machine != other.machine
            || self.is_sibling(other)
            || self.group == other.group
            || self.session == other.session
    }

    pub fn encode(&self) -> [u8; ORIGIN_BYTES] {
        let mut bytes = [0; ORIGIN_BYTES];
        bytes[..16].copy_from_slice(&self.machine);
        let numbers = [self.pid, self.parent, self.group, self.session];
        for (slot, number) in bytes[16..].chunks_exact_mut(4).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8; ORIGIN_BYTES]) -> ProcessOrigin {
        let number = |nth: usize| u32::from_le_bytes(bytes[16 + 4 * nth..][..4].try_into().expect("four bytes"));
        let [pid, parent, group, session] = [0, 1, 2, 3].map(number);
        ProcessOrigin { machine: bytes[..16].try_into().expect("16 bytes"), pid, parent, group, session }
    }
}

#[cfg(test)]
mod tests {
    use corro_test_support::skip;

    use super::*;

    #[test]
    fn an_origin_round_trips() {
        let own = ProcessOrigin::of_this_process();
        assert_eq!(ProcessOrigin::decode(&own.encode()), own);
        assert!(own.pid > 0 && own.may_share_world(&own), "{own:?}");
    }

    /// The first process of a PID namespace has a parent, group and session outside of it.
    #[test]
    fn an_origin_exists_in_a_pid_namespace_of_its_own() {
        let test = "bootstrap::rendezvous::process_origin::tests::an_origin_round_trips";
        let mut child = std::process::Command::new("unshare");
        child
            .args(["--user", "--map-root-user", "--pid", "--fork"])
            .arg(std::env::current_exe().expect("a test program"));
        let output = match child.args(["--exact", test]).output() {
            Ok(output) => output,
            Err(error) => return skip::missing_component(format_args!("unshare: {error}")),
        };
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if stderr.starts_with("unshare: ") {
            return skip::unsupported_machine(format_args!("unshare: {stderr}"));
        }
        assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
    }

    #[test]
    fn processes_of_one_world_have_something_in_common() {
        let rank_0 = ProcessOrigin { machine: [1; 16], pid: 20, parent: 10, group: 10, session: 5 };
        let stranger = ProcessOrigin { machine: [1; 16], pid: 40, parent: 30, group: 30, session: 6 };
        for (other, sibling, shares) in [
            (ProcessOrigin { pid: 21, ..rank_0 }, true, true),
            (stranger, false, false),
            (ProcessOrigin { parent: 10, ..stranger }, true, true),
            (ProcessOrigin { group: 10, ..stranger }, false, true),
            (ProcessOrigin { session: 5, ..stranger }, false, true),
            (ProcessOrigin { machine: [2; 16], ..stranger }, false, true),
            (ProcessOrigin { machine: [2; 16], ..rank_0 }, false, true),
        ] {
            assert_eq!((rank_0.is_sibling(&other), rank_0.may_share_world(&other)), (sibling, shares), "{other:?}");
        }
        let adopted = ProcessOrigin { parent: 1, ..stranger };
        assert!(!adopted.may_share_world(&ProcessOrigin { parent: 1, ..rank_0 }));
    }
}
