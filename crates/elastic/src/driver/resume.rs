//! A driver that goes on with a training which another one began, for a launcher that was restarted while processes ran on.

use std::time::Duration;

use crate::action::{Generation, ProcessId};
use crate::settings::Settings;

use super::{Driver, Process, ProcessState};

/// What the processes of a training know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// The generation that began last, and its members in the order of their ranks, dead ones included.
    pub generation: Generation,
    pub members: Vec<ProcessId>,
    /// Processes that live, each with its host and slot.
    pub processes: Vec<(ProcessId, String, usize)>,
    /// Highest number of a process so far.
    pub last_process: ProcessId,
}

impl Driver {
    /// A driver that goes on: members of the last generation compute, other processes are starting. Events that follow
    /// say what has ended or waits meanwhile, after the current hosts. Earlier resets and exclusions are forgotten.
    pub fn resume(settings: Settings, seed: u64, resumed: Resumed) -> Driver {
        let mut driver = Driver::new(settings, seed);
        let Resumed { generation, members, processes, last_process } = resumed;
        for (id, host, slot) in processes {
            let is_member = members.contains(&id);
            let state = if is_member { ProcessState::Running } else { ProcessState::Starting };
            driver.last_process = driver.last_process.max(id);
            driver.processes.insert(id, Process { host, slot, state, is_replacement: false, has_asked: is_member });
        }
        driver.last_process = driver.last_process.max(last_process);
        (driver.generation, driver.members) = (generation, members);
        driver.has_failure = driver.members.iter().any(|id| !driver.processes.contains_key(id));
        let computes = driver.survivors().next().is_some();
        driver.idle_since = (!computes).then_some(Duration::ZERO);
        driver
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Host, OnFailure};

    #[test]
    fn a_resumed_driver_continues_with_the_next_generation() {
        let second = Duration::from_secs(1);
        let settings = Settings {
            min: 2,
            max: Some(4),
            elastic_timeout: second * 600,
            reset_limit: None,
            cooldown: None,
            on_failure: OnFailure::RestartOnHost,
        };
        let place = |id: u64, host: &str| (id, host.to_owned(), 0);
        let resumed = Resumed {
            generation: 3,
            members: vec![2, 1, 5],
            processes: vec![place(1, "a"), place(2, "b"), place(5, "c")],
            last_process: 6,
        };
        let mut driver = Driver::resume(settings, 0, resumed);
        let hosts = ["a", "b", "c", "d"].map(|name| Host { name: name.to_owned(), slots: 1 });
        let started = driver.on_hosts(second, &hosts);
        assert_eq!(started, [Action::Start { process: 7, host: "d".to_owned(), slot: 0 }]);
        assert_eq!(driver.on_waiting(second, 7, 0), [Action::Notify { generation: 3, change: crate::Change::Added }]);
        for process in [1, 5] {
            assert_eq!(driver.on_waiting(second, process, 3), []);
        }
        let begun = driver.on_waiting(second, 2, 3);
        let order = begun.iter().find_map(|action| match action {
            Action::Begin { generation: 4, members } => {
                Some(members.iter().map(|member| member.process).collect::<Vec<_>>())
            }
            _ => None,
        });
        assert_eq!(order, Some(vec![2, 1, 5, 7]));
    }
}
