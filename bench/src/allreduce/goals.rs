//! Performance goals of the collectives, evaluated on the measurements. Pure.

use super::cases::RESNET_STEP;
use super::table::{NAMED, ORDERED, OURS, Results};
use crate::goal::{Goal, worst_ratio};

const MB: usize = 1 << 20;
/// Speed-up over Gloo at 1 MB and above.
const MIN_SPEEDUP_OVER_GLOO: f64 = 2.0;
/// Fraction of the bound by memory bandwidth, at 64 MB with 2 ranks.
const MIN_MEMORY_BANDWIDTH_FRACTION: f64 = 0.7;
/// Overhead that the named API (`Engine`) may add at 2 ranks, up to 64 KB. Above that, noise is larger than the overhead.
const MAX_NEGOTIATION_NS: f64 = 20e3;
const NEGOTIATION_MAX_BYTES: usize = 64 << 10;
/// Factor by which the named API may be slower than the ordered API between hosts, up to 64 KB.
const MAX_NAMED_TO_ORDERED_RATIO: f64 = 5.0;
/// Fraction of iperf3's rate in each direction, at 64 MB between 2 hosts.
const MIN_TCP_FRACTION: f64 = 0.9;

/// Limits of the machine, measured in the same run as the engines.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Lower bound for 64 MB with 2 ranks on one host, in nanoseconds.
    pub memory_ns: Option<f64>,
    /// Placements of 2 hosts, and iperf3's bytes per second in each direction there.
    pub tcp: Vec<(String, f64)>,
}

/// All goals whose inputs were measured, the most important first.
pub fn evaluate(results: &Results, limits: &Limits) -> Vec<Goal> {
    let mut goals = vec![against_peers(results), step(results), negotiation_overhead(results)];
    goals.extend(negotiation_between_hosts(results));
    goals.extend(against_gloo(results));
    goals.extend(memory(results, limits));
    goals.extend(limits.tcp.iter().map(|(placement, rate)| tcp(results, placement, *rate)));
    goals
}

fn against_peers(results: &Results) -> Goal {
    let ratios =
        results.cases().into_iter().filter(|(_, case)| *case != RESNET_STEP).filter_map(|(placement, case)| {
            let (ours, peer) = (results.ours(placement, case, ORDERED)?, results.fastest_peer(placement, case)?);
            Some((peer.samples.p50() / ours.samples.p50(), format!("{case}, {placement}, by {}", peer.engine)))
        });
    worst_ratio(ratios, 1.0, "times the fastest peer")
}

fn against_gloo(results: &Results) -> Option<Goal> {
    results.rows().iter().any(|row| row.engine == "gloo").then(|| {
        let ratios = results.cases().into_iter().filter_map(|(placement, case)| {
            let (ours, gloo) =
                (results.ours(placement, case, ORDERED)?, results.fastest_variant(placement, case, "gloo")?);
            let counts = ours.bytes >= MB && case != RESNET_STEP;
            counts.then(|| (gloo.samples.p50() / ours.samples.p50(), format!("{case}, {placement}")))
        });
        worst_ratio(ratios, MIN_SPEEDUP_OVER_GLOO, "times Gloo from 1 MB up")
    })
}

fn step(results: &Results) -> Goal {
    let ratios = results.placements().into_iter().filter_map(|placement| {
        let (ours, peer) =
            (results.fastest_variant(placement, RESNET_STEP, OURS)?, results.fastest_peer(placement, RESNET_STEP)?);
        Some((peer.samples.p50() / ours.samples.p50(), format!("{placement}, by {}", peer.engine)))
    });
    worst_ratio(ratios, 1.0, "times the fastest peer in a step of ResNet-50")
}

fn negotiation_overhead(results: &Results) -> Goal {
    let added = results.cases().into_iter().filter_map(|(placement, case)| {
        let (ordered, named) = (results.ours(placement, case, ORDERED)?, results.ours(placement, case, NAMED)?);
        let counts = placement == "2 ranks on one host" && ordered.bytes <= NEGOTIATION_MAX_BYTES;
        counts.then(|| (named.samples.p50() - ordered.samples.p50(), case.to_owned()))
    });
    let largest = added.max_by(|one, other| one.0.total_cmp(&other.0));
    match largest {
        Some((ns, case)) => Goal {
            met: ns <= MAX_NEGOTIATION_NS,
            figures: format!("negotiation adds {:.1} us ({case}; at most 20)", ns / 1e3),
        },
        None => Goal { met: false, figures: "not measured: the overhead of negotiation".to_owned() },
    }
}

fn negotiation_between_hosts(results: &Results) -> Option<Goal> {
    let ratios = results.cases().into_iter().filter_map(|(placement, case)| {
        let (ordered, named) = (results.ours(placement, case, ORDERED)?, results.ours(placement, case, NAMED)?);
        let counts = placement.ends_with(" hosts") && ordered.bytes <= NEGOTIATION_MAX_BYTES;
        counts.then(|| (named.samples.p50() / ordered.samples.p50(), format!("{case}, {placement}")))
    });
    let (ratio, case) = ratios.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let figures = format!("between hosts the named API takes {ratio:.1} times the ordered API ({case}; at most 5)");
    Some(Goal { met: ratio <= MAX_NAMED_TO_ORDERED_RATIO, figures })
}

fn memory(results: &Results, limits: &Limits) -> Option<Goal> {
    let ours = results.ours("2 ranks on one host", "64MB", ORDERED)?;
    let fraction = limits.memory_ns? / ours.samples.p50();
    let figures = format!("{:.0} % of the bound by memory bandwidth at 64MB with 2 ranks (70)", fraction * 100.0);
    Some(Goal { met: fraction >= MIN_MEMORY_BANDWIDTH_FRACTION, figures })
}

fn tcp(results: &Results, placement: &str, rate: f64) -> Goal {
    let Some(ours) = results.ours(placement, "64MB", ORDERED) else {
        return Goal { met: false, figures: format!("not measured: 64MB, {placement}") };
    };
    let fraction = ours.bus_gb_per_s() * 1e9 / rate;
    let figures = format!("{:.0} % of iperf3 both ways at 64MB, {placement} (90)", fraction * 100.0);
    Goal { met: fraction >= MIN_TCP_FRACTION, figures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allreduce::cases::{Case, Measurement};

    fn results(rows: &[(&str, &str, &str, f64)]) -> Results {
        let mut results = Results::default();
        let cases = [Case::of_bytes(4, 1), Case::of_bytes(MB, 1), Case::of_bytes(64 * MB, 1)];
        for (engine, variant, case, ns) in rows {
            let measurement = Measurement { case: (*case).to_owned(), variant: (*variant).to_owned(), ns: vec![*ns] };
            results.add("2 ranks on one host", 2, engine, &cases, vec![measurement]);
        }
        results
    }

    #[test]
    fn the_worst_placement_decides() {
        let results = results(&[
            (OURS, ORDERED, "4B", 100.0),
            ("openmpi", "x", "4B", 200.0),
            (OURS, ORDERED, "1MB", 100.0),
            ("openmpi", "x", "1MB", 400.0),
            ("gloo", "x", "1MB", 150.0),
        ]);
        let expected = "at worst 1.50 times the fastest peer (1MB, 2 ranks on one host, by gloo; goal 1)";
        assert_eq!(against_peers(&results), Goal { met: true, figures: expected.to_owned() });
        assert!(!against_gloo(&results).expect("Gloo is there").met);
    }

    #[test]
    fn a_goal_without_measurement_is_not_met() {
        let goals = evaluate(&results(&[]), &Limits { memory_ns: Some(1.0), tcp: vec![("wire".to_owned(), 1.0)] });
        assert!(goals.iter().all(|goal| !goal.met), "{goals:?}");
    }

    #[test]
    fn negotiation_may_add_a_little() {
        let added =
            |ns| negotiation_overhead(&results(&[(OURS, ORDERED, "4B", 500.0), (OURS, NAMED, "4B", 500.0 + ns)])).met;
        assert!(added(20_000.0) && !added(20_001.0));
    }

    #[test]
    fn negotiation_between_hosts_may_take_a_multiple() {
        let between = |ns: f64| {
            let mut results = Results::default();
            for (variant, ns) in [(ORDERED, 100.0), (NAMED, ns)] {
                let measurement = Measurement { case: "4B".to_owned(), variant: variant.to_owned(), ns: vec![ns] };
                results.add("4 ranks on 4 hosts", 4, OURS, &[Case::of_bytes(4, 1)], vec![measurement]);
            }
            negotiation_between_hosts(&results).expect("measured").met
        };
        assert!(between(500.0) && !between(501.0));
    }

    #[test]
    fn memory_is_the_limit() {
        let fraction =
            |ns| memory(&results(&[(OURS, ORDERED, "64MB", ns)]), &Limits { memory_ns: Some(70.0), tcp: Vec::new() });
        assert!(fraction(100.0).expect("measured").met && !fraction(101.0).expect("measured").met);
    }
}
