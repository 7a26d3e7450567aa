//! Hosts and their slots: what discovery lists now, in the order in which hosts first appeared; which hosts are excluded and until
//! when; which slots wait before their next start because the last ones failed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::settings::Host;

/// Consecutive starts of a slot that may fail before its process has asked for a place.
const MAX_FAILED_STARTS: u32 = 3;

/// Delay of a start after such a failure; doubles with each.
const RESTART_DELAY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct HostTable {
    hosts: Vec<HostRecord>,
    random: u64,
}

#[derive(Clone, Debug)]
struct HostRecord {
    name: String,
    /// 0: discovery does not list the host now.
    slots: usize,
    exclusion: Exclusion,
    n_exclusions: u32,
    failed_slots: BTreeMap<usize, FailedSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exclusion {
    None,
    Until(Duration),
    Forever,
}

/// A slot whose last process failed.
#[derive(Clone, Copy, Debug)]
struct FailedSlot {
    /// Consecutive failures before the process asked for a place.
    n_failed_starts: u32,
    not_before: Duration,
}

/// A slot in which a process may be started.
#[derive(Debug)]
pub(crate) struct FreeSlot {
    pub(crate) host: String,
    pub(crate) slot: usize,
    /// Whether its last process failed, so that a new one replaces it.
    pub(crate) is_replacement: bool,
}

impl HostTable {
    pub(crate) fn new(seed: u64) -> HostTable {
        HostTable { hosts: Vec::new(), random: seed }
    }

    /// Takes over what discovery lists now.
    pub(crate) fn update(&mut self, listed: &[Host]) {
        for known in &mut self.hosts {
            let slots = listed.iter().rfind(|host| host.name == known.name).map_or(0, |host| host.slots);
            if slots == 0 {
                // A host that comes back starts afresh, but stays excluded.
                known.failed_slots.clear();
            }
            known.slots = slots;
        }
        for host in listed {
            if !self.hosts.iter().any(|known| known.name == host.name) {
                self.hosts.push(HostRecord {
                    name: host.name.clone(),
                    slots: host.slots,
                    exclusion: Exclusion::None,
                    n_exclusions: 0,
                    failed_slots: BTreeMap::new(),
                });
            }
        }
    }

    /// Whether discovery lists the slot, excluded or not.
    pub(crate) fn is_listed(&self, host: &str, slot: usize) -> bool {
        self.find(host).is_some_and(|host| slot < host.slots)
    }

    /// Whether processes in this slot may be members.
    pub(crate) fn is_usable(&self, host: &str, slot: usize) -> bool {
        self.find(host).is_some_and(|host| slot < host.slots && host.exclusion == Exclusion::None)
    }

    /// Number of slots in which processes run or may be started.
    pub(crate) fn usable_slots(&self) -> usize {
        let slots = |host: &HostRecord| (0..host.slots).filter(|slot| !host.is_given_up(*slot)).count();
        self.hosts.iter().filter(|host| host.exclusion == Exclusion::None).map(slots).sum()
    }

    /// Whether processes of a listed slot failed too often before they asked.
    pub(crate) fn has_given_up_slot(&self) -> bool {
        self.hosts.iter().any(|host| (0..host.slots).any(|slot| host.is_given_up(slot)))
    }

    /// Slots in which a process may be started now, in order.
    pub(crate) fn free_slots(&self, now: Duration, is_occupied: impl Fn(&str, usize) -> bool) -> Vec<FreeSlot> {
        let mut free = Vec::new();
        for host in self.hosts.iter().filter(|host| host.exclusion == Exclusion::None) {
            for slot in 0..host.slots {
                let failed = host.failed_slots.get(&slot);
                let may_start = !host.is_given_up(slot) && failed.is_none_or(|failed| failed.not_before <= now);
                if may_start && !is_occupied(&host.name, slot) {
                    free.push(FreeSlot { host: host.name.clone(), slot, is_replacement: failed.is_some() });
                }
            }
        }
        free
    }

    /// Whether discovery lists hosts, and all of them are excluded.
    pub(crate) fn all_excluded(&self) -> bool {
        let mut listed = self.hosts.iter().filter(|host| host.slots > 0).peekable();
        listed.peek().is_some() && listed.all(|host| host.exclusion != Exclusion::None)
    }

    /// Records that the process in a slot failed; returns whether the slot is given up.
    pub(crate) fn record_failure(&mut self, now: Duration, host: &str, slot: usize, had_asked: bool) -> bool {
        let Some(host) = self.hosts.iter_mut().find(|known| known.name == host) else { return false };
        let before = host.failed_slots.get(&slot).map_or(0, |failed| failed.n_failed_starts);
        let n_failed_starts = if had_asked { 0 } else { before + 1 };
        let delay = match n_failed_starts {
            0 => Duration::ZERO,
            n => RESTART_DELAY * (1 << (n - 1).min(8)),
        };
        host.failed_slots.insert(slot, FailedSlot { n_failed_starts, not_before: now + delay });
        host.is_given_up(slot)
    }

    /// The process in the slot became a member.
    pub(crate) fn forget_failure(&mut self, host: &str, slot: usize) {
        if let Some(host) = self.hosts.iter_mut().find(|known| known.name == host) {
            host.failed_slots.remove(&slot);
        }
    }

    /// Excludes a host for the cooldown, or for ever. Returns the length of the exclusion.
    pub(crate) fn exclude(
        &mut self,
        now: Duration,
        host: &str,
        cooldown: Option<(Duration, Duration)>,
    ) -> Option<Duration> {
        let random = self.next_random();
        let host = self.hosts.iter_mut().find(|known| known.name == host)?;
        let length = cooldown.map(|(lower, upper)| {
            let doubled = lower.saturating_mul(1u32.checked_shl(host.n_exclusions).unwrap_or(u32::MAX));
            doubled.saturating_add(lower.mul_f64(random)).clamp(lower, upper.max(lower))
        });
        host.n_exclusions += 1;
        host.exclusion = length.map_or(Exclusion::Forever, |length| Exclusion::Until(now + length));
        length
    }

    /// Ends exclusions whose time is over; returns the hosts.
    pub(crate) fn readmit(&mut self, now: Duration) -> Vec<String> {
        let is_over = |host: &&mut HostRecord| matches!(host.exclusion, Exclusion::Until(end) if end <= now);
        let over = self.hosts.iter_mut().filter(is_over).map(|host| {
            host.exclusion = Exclusion::None;
            host.name.clone()
        });
        over.collect()
    }

    /// Times at which a slot becomes usable.
    pub(crate) fn timers(&self) -> impl Iterator<Item = Duration> {
        let exclusions = self.hosts.iter().filter_map(|host| match host.exclusion {
            Exclusion::Until(end) => Some(end),
            _ => None,
        });
        let restarts = self.hosts.iter().flat_map(|host| host.failed_slots.values().map(|failed| failed.not_before));
        exclusions.chain(restarts)
    }

    fn find(&self, name: &str) -> Option<&HostRecord> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// A number from 0 to below 1 (SplitMix64).
    fn next_random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl HostRecord {
    fn is_given_up(&self, slot: usize) -> bool {
        self.failed_slots.get(&slot).is_some_and(|failed| failed.n_failed_starts >= MAX_FAILED_STARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn table(hosts: &[(&str, usize)]) -> HostTable {
        let mut table = HostTable::new(7);
        update(&mut table, hosts);
        table
    }

    fn update(table: &mut HostTable, hosts: &[(&str, usize)]) {
        let hosts: Vec<Host> = hosts.iter().map(|(name, slots)| Host { name: (*name).into(), slots: *slots }).collect();
        table.update(&hosts);
    }

    fn free(table: &HostTable, now: Duration) -> Vec<String> {
        let free = table.free_slots(now, |host, slot| (host, slot) == ("a", 0));
        free.iter().map(|free| format!("{}:{}", free.host, free.slot)).collect()
    }

    #[test]
    fn hosts_keep_the_order_in_which_they_appeared() {
        let mut table = table(&[("a", 2), ("c", 1)]);
        update(&mut table, &[("b", 1), ("c", 1), ("a", 1)]);
        assert_eq!(free(&table, SECOND), ["c:0", "b:0"]);
        assert!(!table.is_listed("a", 1) && table.is_listed("a", 0));
        update(&mut table, &[("a", 2)]);
        assert_eq!(free(&table, SECOND), ["a:1"]);
    }

    #[test]
    fn exclusions_double_within_their_range() {
        let mut table = table(&[("a", 1)]);
        let range = Some((SECOND * 10, SECOND * 45));
        let mut now = SECOND;
        for (low, high) in [(10, 20), (20, 30), (40, 45), (45, 45), (45, 45)] {
            let length = table.exclude(now, "a", range).expect("it has an end");
            assert!((SECOND * low..=SECOND * high).contains(&length), "{length:?} is not in {low}–{high} s");
            assert!(table.all_excluded() && !table.is_usable("a", 0));
            assert_eq!(table.readmit(now + length - SECOND), [] as [String; 0]);
            now += length;
            assert_eq!(table.readmit(now), ["a"]);
            assert!(table.is_usable("a", 0));
        }
        assert_eq!(table.exclude(now, "a", None), None);
        update(&mut table, &[]);
        update(&mut table, &[("a", 1)]);
        assert_eq!(table.readmit(now * 1000), [] as [String; 0]);
        assert!(table.all_excluded());
    }

    #[test]
    fn a_slot_that_never_asks_is_given_up() {
        let mut table = table(&[("b", 1)]);
        assert!(!table.record_failure(SECOND, "b", 0, false));
        assert_eq!((free(&table, SECOND), free(&table, SECOND * 2)), (vec![], vec!["b:0".to_owned()]));
        // Once it has asked, it may fail as often as the reset limit allows, and starts again at once.
        assert!(!table.record_failure(SECOND * 3, "b", 0, true));
        assert_eq!(free(&table, SECOND * 3), ["b:0"]);
        assert!(!table.record_failure(SECOND * 4, "b", 0, false));
        assert!(!table.record_failure(SECOND * 6, "b", 0, false));
        assert!(table.record_failure(SECOND * 9, "b", 0, false));
        assert_eq!((free(&table, SECOND * 1000), table.usable_slots()), (vec![], 0));
    }
}
