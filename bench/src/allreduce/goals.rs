//! Performance goals of the collectives, evaluated on the measurements. Pure.

use super::cases::STEP;
use super::table::{DIRECT, NEGOTIATED, OURS, Results};
use crate::goal::{Goal, worst};

const MB: usize = 1 << 20;
/// Speed-up over Gloo at 1 MB and above.
const TIMES_GLOO: f64 = 2.0;
/// Fraction of the bound by memory bandwidth, at 64 MB with 2 ranks.
const OF_MEMORY: f64 = 0.7;
/// Overhead that the named API (`Engine`) may add at 2 ranks, up to 64 KB. Above that, noise is larger than the overhead.
const NEGOTIATION_NS: f64 = 20e3;
const NEGOTIATION_UP_TO: usize = 64 << 10;
/// Factor by which the named API may be slower than the ordered API between hosts, up to 64 KB.
const TIMES_DIRECT: f64 = 5.0;
/// Fraction of iperf3's rate in each direction, at 64 MB between 2 hosts.
const OF_TCP: f64 = 0.9;

/// Machine limits that were measured beside the engines.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Lower bound for 64 MB with 2 ranks on one host, in nanoseconds.
    pub memory_ns: Option<f64>,
    /// Placements of 2 hosts, and iperf3's bytes per second in each direction there.
    pub tcp: Vec<(String, f64)>,
}

pub fn judge(results: &Results, limits: &Limits) -> Vec<Goal> {
    let mut goals = vec![against_peers(results), step(results), negotiation(results)];
    goals.extend(negotiation_between_hosts(results));
    goals.extend(against_gloo(results));
    goals.extend(memory(results, limits));
    goals.extend(limits.tcp.iter().map(|(place, rate)| tcp(results, place, *rate)));
    goals
}

fn against_peers(results: &Results) -> Goal {
    let ratios = results.cases().into_iter().filter(|(_, case)| *case != STEP).filter_map(|(place, case)| {
        let (ours, peer) = (results.ours(place, case, DIRECT)?, results.fastest_peer(place, case)?);
        Some((peer.samples.p50() / ours.samples.p50(), format!("{case}, {place}, by {}", peer.engine)))
    });
    worst(ratios, 1.0, "times the fastest peer")
}

fn against_gloo(results: &Results) -> Option<Goal> {
    results.rows().iter().any(|row| row.engine == "gloo").then(|| {
        let ratios = results.cases().into_iter().filter_map(|(place, case)| {
            let (ours, gloo) = (results.ours(place, case, DIRECT)?, results.of(place, case, "gloo")?);
            let counts = ours.bytes >= MB && case != STEP;
            counts.then(|| (gloo.samples.p50() / ours.samples.p50(), format!("{case}, {place}")))
        });
        worst(ratios, TIMES_GLOO, "times Gloo from 1 MB up")
    })
}

fn step(results: &Results) -> Goal {
    let ratios = results.places().into_iter().filter_map(|place| {
        let (ours, peer) = (results.of(place, STEP, OURS)?, results.fastest_peer(place, STEP)?);
        Some((peer.samples.p50() / ours.samples.p50(), format!("{place}, by {}", peer.engine)))
    });
    worst(ratios, 1.0, "times the fastest peer in a step of ResNet-50")
}

fn negotiation(results: &Results) -> Goal {
    let added = results.cases().into_iter().filter_map(|(place, case)| {
        let (direct, negotiated) = (results.ours(place, case, DIRECT)?, results.ours(place, case, NEGOTIATED)?);
        let counts = place == "2 ranks on one host" && direct.bytes <= NEGOTIATION_UP_TO;
        counts.then(|| (negotiated.samples.p50() - direct.samples.p50(), case.to_owned()))
    });
    let most = added.max_by(|one, other| one.0.total_cmp(&other.0));
    match most {
        Some((ns, case)) => Goal {
            met: ns <= NEGOTIATION_NS,
            figures: format!("negotiation adds {:.1} us ({case}; at most 20)", ns / 1e3),
        },
        None => Goal { met: false, figures: "nothing to tell what negotiation adds".to_owned() },
    }
}

fn negotiation_between_hosts(results: &Results) -> Option<Goal> {
    let ratios = results.cases().into_iter().filter_map(|(place, case)| {
        let (direct, negotiated) = (results.ours(place, case, DIRECT)?, results.ours(place, case, NEGOTIATED)?);
        let counts = place.ends_with(" hosts") && direct.bytes <= NEGOTIATION_UP_TO;
        counts.then(|| (negotiated.samples.p50() / direct.samples.p50(), format!("{case}, {place}")))
    });
    let (ratio, case) = ratios.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let figures = format!("negotiation between hosts takes {ratio:.1} times the direct door ({case}; at most 5)");
    Some(Goal { met: ratio <= TIMES_DIRECT, figures })
}

fn memory(results: &Results, limits: &Limits) -> Option<Goal> {
    let ours = results.ours("2 ranks on one host", "64MB", DIRECT)?;
    let part = limits.memory_ns? / ours.samples.p50();
    let figures = format!("{:.0} % of what memory allows at 64MB with 2 ranks (70)", part * 100.0);
    Some(Goal { met: part >= OF_MEMORY, figures })
}

fn tcp(results: &Results, place: &str, rate: f64) -> Goal {
    let Some(ours) = results.ours(place, "64MB", DIRECT) else {
        return Goal { met: false, figures: format!("no figure for 64MB, {place}") };
    };
    let part = ours.bus() * 1e9 / rate;
    let figures = format!("{:.0} % of iperf3 both ways at 64MB, {place} (90)", part * 100.0);
    Goal { met: part >= OF_TCP, figures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allreduce::cases::{Case, Measured};

    fn results(rows: &[(&str, &str, &str, f64)]) -> Results {
        let mut results = Results::default();
        let cases = [Case::of_bytes(4, 1), Case::of_bytes(MB, 1), Case::of_bytes(64 * MB, 1)];
        for (engine, way, case, ns) in rows {
            let said = Measured { case: (*case).to_owned(), way: (*way).to_owned(), ns: vec![*ns] };
            results.add("2 ranks on one host", 2, engine, &cases, vec![said]);
        }
        results
    }

    #[test]
    fn the_worst_place_decides() {
        let results = results(&[
            (OURS, DIRECT, "4B", 100.0),
            ("openmpi", "x", "4B", 200.0),
            (OURS, DIRECT, "1MB", 100.0),
            ("openmpi", "x", "1MB", 400.0),
            ("gloo", "x", "1MB", 150.0),
        ]);
        let expected = "at worst 1.50 times the fastest peer (1MB, 2 ranks on one host, by gloo; wanted 1)";
        assert_eq!(against_peers(&results), Goal { met: true, figures: expected.to_owned() });
        assert!(!against_gloo(&results).expect("Gloo is there").met);
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let goals = judge(&results(&[]), &Limits { memory_ns: Some(1.0), tcp: vec![("wire".to_owned(), 1.0)] });
        assert!(goals.iter().all(|goal| !goal.met), "{goals:?}");
    }

    #[test]
    fn negotiation_may_add_a_little() {
        let added =
            |ns| negotiation(&results(&[(OURS, DIRECT, "4B", 500.0), (OURS, NEGOTIATED, "4B", 500.0 + ns)])).met;
        assert!(added(20_000.0) && !added(20_001.0));
    }

    #[test]
    fn negotiation_between_hosts_may_take_a_multiple() {
        let between = |ns: f64| {
            let mut results = Results::default();
            for (way, ns) in [(DIRECT, 100.0), (NEGOTIATED, ns)] {
                let said = Measured { case: "4B".to_owned(), way: way.to_owned(), ns: vec![ns] };
                results.add("4 ranks on 4 hosts", 4, OURS, &[Case::of_bytes(4, 1)], vec![said]);
            }
            negotiation_between_hosts(&results).expect("measured").met
        };
        assert!(between(500.0) && !between(501.0));
    }

    #[test]
    fn memory_is_the_limit() {
        let part =
            |ns| memory(&results(&[(OURS, DIRECT, "64MB", ns)]), &Limits { memory_ns: Some(70.0), tcp: Vec::new() });
        assert!(part(100.0).expect("measured").met && !part(101.0).expect("measured").met);
    }
}
