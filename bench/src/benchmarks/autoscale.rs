//! Time from submitting a job to an empty autoscaling cluster until its ranks run, and from its end until the nodes are gone.
//!
//! The cluster scales between zero and four nodes; the server's delay of one second before idle nodes are removed is
//! subtracted. The comparison is a manual resize: from 0 to 4 nodes until all are idle, that is the start of four agents
//! without a queue, and to 0 until all are gone.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{NODES, job_json, make_resources, ranks, request_of};
use crate::rank::Ear;
use crate::site::Site;
use crate::stats::{Samples, heading};

pub const PROMISE: &str =
    "ranks run 1.5 s (p50) and 4 s (p99) after the submit; nodes are gone 1.5 s and 4 s after the delay";
const LIMIT_P50_S: f64 = 1.5;
const LIMIT_P99_S: f64 = 4.0;
/// Idle time in seconds before nodes are removed.
const DELAY_S: f64 = 1.0;
const WARM_UP: usize = 1;

pub fn run(scale: Scale) -> Result<Verdict> {
    let samples = scale.pick(6, 40);
    let mut site = Site::new()?;
    site.up_with(&["--scale-down-delay", &DELAY_S.to_string()])?;
    make_resources(&site, 0)?;
    let api = Api::connect(&site)?;
    let (key, exe, ear) = (api.account_key()?, std::env::current_exe()?, Ear::open()?);
    let s = |name: &str| Samples::new(name, "s");
    let mut by_hand = s("by hand: resize to 4, all idle");
    let mut away_by_hand = s("by hand: resize to 0, all gone");
    let mut grown = s("autoScale: submit to all four ranks running");
    let mut gone = s("autoScale: job's end to all nodes gone, less the delay");
    let manual = |count: usize| json!({"manual": {"targetNodeCount": count}});
    for sample in 0..WARM_UP + samples {
        let counted = sample >= WARM_UP;
        let began = Instant::now();
        api.scale(manual(NODES))?;
        api.wait_for_idle_nodes(NODES)?;
        let up = began.elapsed().as_secs_f64();
        let began = Instant::now();
        api.scale(manual(0))?;
        api.wait_for_no_nodes()?;
        let down = began.elapsed().as_secs_f64();

        api.scale(json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": NODES}}))?;
        let name = format!("job{sample}");
        let job = request_of(job_json(ranks(&ear.command(&exe, &name))), &api, &key)?;
        let began = api.submit(&name, &job)?;
        let (_, all) = ear.wait(&name, NODES)?;
        api.wait_for_success(&name)?;
        let ended = Instant::now();
        api.wait_for_no_nodes()?;
        let left = ended.elapsed().as_secs_f64() - DELAY_S;
        if counted {
            by_hand.add(up);
            away_by_hand.add(down);
            grown.add((all - began).as_secs_f64());
            gone.add(left.max(0.0));
        }
    }
    heading();
    [&by_hand, &grown, &away_by_hand, &gone].into_iter().for_each(Samples::row);
    let (grown50, grown99, gone50, gone99) = (grown.p50(), grown.p99(), gone.p50(), gone.p99());
    let figures = format!(
        "ranks run after p50 {grown50:.2} s, p99 {grown99:.2} s (by hand the nodes alone take {:.2} s), nodes gone after {gone50:.2} and {gone99:.2} s (by hand {:.2} s); promised: {LIMIT_P50_S} and {LIMIT_P99_S} s",
        by_hand.p50(),
        away_by_hand.p50()
    );
    let met = [grown50, gone50].iter().all(|p50| *p50 <= LIMIT_P50_S)
        && [grown99, gone99].iter().all(|p99| *p99 <= LIMIT_P99_S);
    Ok(Verdict { met, figures })
}
