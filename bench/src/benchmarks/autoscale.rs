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
use crate::fixture::{NODES, job_json, job_request, make_resources, ranks};
use crate::rank::RankListener;
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str =
    "ranks run 1.5 s (p50) and 4 s (p99) after the submit; nodes are gone 1.5 s and 4 s after the delay";
const LIMIT_P50_S: f64 = 1.5;
const LIMIT_P99_S: f64 = 4.0;
/// Idle time in seconds before nodes are removed.
const SCALE_DOWN_DELAY_S: f64 = 1.0;
const WARM_UP: usize = 1;

pub fn run(scale: Scale) -> Result<Verdict> {
    let samples = scale.pick(6, 40);
    let mut site = Site::new()?;
    site.up_with(&["--scale-down-delay", &SCALE_DOWN_DELAY_S.to_string()])?;
    make_resources(&site, 0)?;
    let api = Api::connect(&site)?;
    let (key, exe, listener) = (api.account_key()?, std::env::current_exe()?, RankListener::open()?);
    let s = |name: &str| Samples::new(name, "s");
    let mut manual_up = s("manual: resize to 4, all idle");
    let mut manual_down = s("manual: resize to 0, all gone");
    let mut scaled_up = s("autoScale: submit to all four ranks running");
    let mut scaled_down = s("autoScale: job's end to all nodes gone, less the delay");
    let manual = |count: usize| json!({"manual": {"targetNodeCount": count}});
    for sample in 0..WARM_UP + samples {
        let counted = sample >= WARM_UP;
        let began = Instant::now();
        api.set_scale(manual(NODES))?;
        api.wait_for_idle_nodes(NODES)?;
        let up = began.elapsed().as_secs_f64();
        let began = Instant::now();
        api.set_scale(manual(0))?;
        api.wait_for_no_nodes()?;
        let down = began.elapsed().as_secs_f64();

        api.set_scale(json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": NODES}}))?;
        let name = format!("job{sample}");
        let job = job_request(job_json(ranks(&listener.command(&exe, &name))), &api, &key)?;
        let began = api.submit(&name, &job)?;
        let (_, all) = listener.wait(&name, NODES)?;
        api.wait_for_success(&name)?;
        let ended = Instant::now();
        api.wait_for_no_nodes()?;
        let removal = ended.elapsed().as_secs_f64() - SCALE_DOWN_DELAY_S;
        if counted {
            manual_up.add(up);
            manual_down.add(down);
            scaled_up.add((all - began).as_secs_f64());
            scaled_down.add(removal.max(0.0));
        }
    }
    print_heading();
    [&manual_up, &scaled_up, &manual_down, &scaled_down].into_iter().for_each(Samples::print_row);
    let (up_p50, up_p99, down_p50, down_p99) = (scaled_up.p50(), scaled_up.p99(), scaled_down.p50(), scaled_down.p99());
    let figures = format!(
        "ranks run after p50 {up_p50:.2} s, p99 {up_p99:.2} s (a manual resize of the nodes alone takes {:.2} s), nodes gone after {down_p50:.2} and {down_p99:.2} s (manual {:.2} s); promised: {LIMIT_P50_S} and {LIMIT_P99_S} s",
        manual_up.p50(),
        manual_down.p50()
    );
    let met = [up_p50, down_p50].iter().all(|p50| *p50 <= LIMIT_P50_S)
        && [up_p99, down_p99].iter().all(|p99| *p99 <= LIMIT_P99_S);
    Ok(Verdict { met, figures })
}
