//! Fault injection: servers and agents are killed or stopped, agents freeze, connections are cut, ranks are killed.

use super::world::{Event, FAULT_PERIOD_MS, World};
use corro_model::NodeId;

#[derive(Clone, Debug)]
pub enum Fault {
    KillServer,
    KillAgent,
    /// Killed, and soon restarted.
    RestartAgent,
    /// Asked to stop; where nodes joined by themselves it is usually restarted.
    StopAgent,
    KillRank,
    /// The agent freezes: longer than its lease, or shorter.
    Freeze,
    Thaw(NodeId),
    CutConnection,
    RestoreConnection(NodeId),
}

impl World {
    pub fn schedule_faults(&mut self) {
        // Some runs have no faults: then nothing may be requeued without a reason.
        let many = self.rng.between(0, 9);
        for _ in 0..many {
            let kinds = [
                Fault::KillServer,
                Fault::KillAgent,
                Fault::KillAgent,
                Fault::RestartAgent,
                Fault::StopAgent,
                Fault::KillRank,
                Fault::Freeze,
                Fault::CutConnection,
                Fault::CutConnection,
            ];
            let (fault, at) = (self.rng.pick(kinds).expect("there are some"), self.rng.between(0, FAULT_PERIOD_MS));
            self.schedule(at, Event::Fault(fault));
        }
    }

    pub fn inject(&mut self, fault: Fault) {
        let living: Vec<NodeId> =
            self.agents.iter().filter(|(_, agent)| agent.is_alive()).map(|(id, _)| id.clone()).collect();
        let victim = self.rng.pick(living);
        self.log(|| format!("{fault:?} ({victim:?})"));
        match (fault, victim) {
            (Fault::KillServer, _) => self.server_crashes(),
            (Fault::Thaw(node), _) => self.thaw(&node),
            (Fault::RestoreConnection(node), _) => {
                if let Some(agent) = self.agents.get_mut(&node) {
                    agent.cut_off = false;
                }
            }
            (Fault::KillAgent, Some(node)) => {
                self.stats.crashes += 1;
                self.agent_ends(&node);
            }
            (Fault::RestartAgent, Some(node)) => {
                self.stats.crashes += 1;
                // On the server's own machine a dead agent is noticed at once, unless a new one has replaced it.
                let pause = self.rng.between(5, if self.joined { 4_000 } else { 200 });
                self.schedule_restart(&node, pause);
                self.agent_ends(&node);
            }
            (Fault::StopAgent, Some(node)) => {
                if self.joined && !self.rng.one_in(4) {
                    let pause = self.rng.between(1_000, 8_000);
                    self.schedule_restart(&node, pause);
                }
                self.shut_down_agent(&node);
            }
            (Fault::KillRank, _) => {
                let ranks = self.agents.values_mut().flat_map(|agent| &mut agent.ranks).filter(|rank| rank.alive);
                if let Some(rank) = self.rng.pick(ranks) {
                    rank.alive = false;
                }
            }
            (Fault::Freeze, Some(node)) => {
                self.agents.get_mut(&node).expect("it lives").frozen = true;
                // Nothing ends the ranks of a machine that freezes with them. It must not be forgotten meanwhile.
                let long = self.rng.between(10, if self.joined { 1_500 } else { 8_000 });
                self.schedule(long, Event::Fault(Fault::Thaw(node)));
            }
            (Fault::CutConnection, Some(node)) => {
                let agent = self.agents.get_mut(&node).expect("it lives");
                agent.cut_off = true;
                let conn = agent.conn;
                let (long, here, there) =
                    (self.rng.between(10, 8_000), self.rng.between(0, 3_000), self.rng.between(0, 3_000));
                if let Some(conn) = conn {
                    self.schedule(here, Event::AgentDetectsCut(node.clone(), conn));
                    self.schedule(there, Event::ServerDetectsCut(node.clone(), conn));
                }
                self.schedule(long, Event::Fault(Fault::RestoreConnection(node)));
            }
            (
                Fault::KillAgent | Fault::RestartAgent | Fault::StopAgent | Fault::Freeze | Fault::CutConnection,
                None,
            ) => {}
        }
    }
}
