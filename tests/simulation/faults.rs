//! Fault injection: servers and agents are killed or stopped, agents freeze, connections are cut, ranks are killed.

use super::world::{Event, TROUBLE, World};
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
    Stun,
    StandUp(NodeId),
    Cut,
    Mend(NodeId),
}

impl World {
    pub fn plan_faults(&mut self) {
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
                Fault::Stun,
                Fault::Cut,
                Fault::Cut,
            ];
            let (fault, at) = (self.rng.pick(kinds).expect("there are some"), self.rng.between(0, TROUBLE));
            self.after(at, Event::Fault(fault));
        }
    }

    pub fn fail(&mut self, fault: Fault) {
        let living: Vec<NodeId> =
            self.bodies.iter().filter(|(_, body)| body.lives()).map(|(id, _)| id.clone()).collect();
        let victim = self.rng.pick(living);
        self.say(|| format!("{fault:?} ({victim:?})"));
        match (fault, victim) {
            (Fault::KillServer, _) => self.server_crashes(),
            (Fault::StandUp(node), _) => self.stands_up(&node),
            (Fault::Mend(node), _) => {
                if let Some(body) = self.bodies.get_mut(&node) {
                    body.cut_off = false;
                }
            }
            (Fault::KillAgent, Some(node)) => {
                self.tally.crashes += 1;
                self.agent_ends(&node);
            }
            (Fault::RestartAgent, Some(node)) => {
                self.tally.crashes += 1;
                // On the server's own machine a dead agent is noticed at once, unless a new one has replaced it.
                let pause = self.rng.between(5, if self.joined { 4_000 } else { 200 });
                self.start_again_after(&node, pause);
                self.agent_ends(&node);
            }
            (Fault::StopAgent, Some(node)) => {
                if self.joined && !self.rng.one_in(4) {
                    let pause = self.rng.between(1_000, 8_000);
                    self.start_again_after(&node, pause);
                }
                self.agent_told_to_end(&node);
            }
            (Fault::KillRank, _) => {
                let ranks = self.bodies.values_mut().flat_map(|body| &mut body.ranks).filter(|rank| rank.alive);
                if let Some(rank) = self.rng.pick(ranks) {
                    rank.alive = false;
                }
            }
            (Fault::Stun, Some(node)) => {
                self.bodies.get_mut(&node).expect("it lives").stands_still = true;
                // Nothing ends the ranks of a machine that freezes with them. It must not be forgotten meanwhile.
                let long = self.rng.between(10, if self.joined { 1_500 } else { 8_000 });
                self.after(long, Event::Fault(Fault::StandUp(node)));
            }
            (Fault::Cut, Some(node)) => {
                let body = self.bodies.get_mut(&node).expect("it lives");
                body.cut_off = true;
                let wire = body.wire;
                let (long, here, there) =
                    (self.rng.between(10, 8_000), self.rng.between(0, 3_000), self.rng.between(0, 3_000));
                if let Some(wire) = wire {
                    self.after(here, Event::AgentNotices(node.clone(), wire));
                    self.after(there, Event::ServerNotices(node.clone(), wire));
                }
                self.after(long, Event::Fault(Fault::Mend(node)));
            }
            (Fault::KillAgent | Fault::RestartAgent | Fault::StopAgent | Fault::Stun | Fault::Cut, None) => {}
        }
    }
}
