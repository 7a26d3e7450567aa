//! Memory of an idle server: after its start, and after the tutorial's load.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Scale, Verdict};
use crate::api::Api;
use crate::fixture::{ACCOUNT, CLUSTER, EXPERIMENT, IN_WORKSPACE, NODES, SHARE, job_json, make_resources};
use crate::memory::resident;
use crate::site::Site;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "an idle server holds less than 50 MB, after its start and after the tutorial's load";
const LIMIT_MB: f64 = 50.0;
const SAMPLES: usize = 20;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(scale: Scale) -> Result<Verdict> {
    let mut site = Site::new()?;
    site.up()?;
    let started = sample_server(&site, "server, just started")?;
    make_resources(&site, NODES)?;
    let api = Api::connect(&site)?;
    api.wait_for_idle_nodes(NODES)?;
    let with_nodes = sample_server(&site, "server, four idle nodes")?;
    let agents = sample_agents(&site, "before")?;
    train(&site, scale)?;
    api.wait_for_success("cifar_distributed")?;
    api.wait_for_idle_nodes(NODES)?;
    let after_load = sample_server(&site, "server, after the tutorial's load")?;
    let agents_after = sample_agents(&site, "after")?;
    print_heading();
    for (rss, pss) in [&started, &with_nodes, &after_load].into_iter().chain(&agents).chain(&agents_after) {
        rss.print_row();
        pss.print_row();
    }
    let peaks = [&started, &with_nodes, &after_load].map(|(rss, _)| rss.max());
    let figures = format!(
        "server RSS {:.1} MB after start, {:.1} MB with four idle nodes, {:.1} MB after the load (promised: under {LIMIT_MB:.0} MB)",
        peaks[0], peaks[1], peaks[2]
    );
    Ok(Verdict { met: peaks.iter().all(|rss| *rss < LIMIT_MB), figures })
}

/// Chapters 4 to 7 of the tutorial: upload, submit, stream, list, download.
fn train(site: &Site, scale: Scale) -> Result<()> {
    let settings = json!({"epochs": scale.pick(4, 16), "batch": 8, "synthetic": {"train": 500, "test": 400}});
    std::fs::write(site.path().join("settings.json"), settings.to_string())?;
    let share_options = format!("-s {SHARE} --account-name {ACCOUNT}");
    site.corro(&format!("storage file upload {share_options} --path cifar --source settings.json"))?;
    let corro = crate::site::corro_binary()?.display().to_string().replace('\'', r"'\''");
    let share = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar";
    let job = job_json(json!({"horovodSettings": {
        "pythonScriptFilePath": format!("{share}/settings.json"),
        "pythonInterpreterPath": format!("'{corro}' train"),
        "commandLineArgs": format!("--dir={share}")
    }}));
    std::fs::write(site.path().join("job.json"), job.to_string())?;
    let name = "cifar_distributed";
    site.corro(&format!(
        "batchai job create {IN_WORKSPACE} -e {EXPERIMENT} -c {CLUSTER} -n {name} -f job.json --storage-account-name {ACCOUNT}"
    ))?;
    site.corro(&format!("batchai job file stream {IN_WORKSPACE} -e {EXPERIMENT} -j {name} -f stdout.txt"))?;
    site.corro(&format!("batchai job file list {IN_WORKSPACE} -e {EXPERIMENT} -j {name} -o table"))?;
    site.corro(&format!(
        "storage file download {share_options} --path cifar/saved_models/keras_cifar10_trained_model.h5"
    ))
}

/// RSS and PSS of the server, over two idle seconds.
fn sample_server(site: &Site, name: &str) -> Result<(Samples, Samples)> {
    sample_memory(&[site.server_pid()?], name)
}

/// RSS and PSS of all agents together.
fn sample_agents(site: &Site, when: &str) -> Result<Vec<(Samples, Samples)>> {
    let pids: Vec<u32> = site.agents().into_iter().map(|(_, pid)| pid).collect();
    let pids = (pids.len() == NODES).then_some(pids).context("a node has no running agent")?;
    Ok(vec![sample_memory(&pids, &format!("each agent, {when} the load"))?])
}

fn sample_memory(pids: &[u32], name: &str) -> Result<(Samples, Samples)> {
    let (mut rss, mut pss) = (Samples::new(format!("{name}: RSS"), "MB"), Samples::new(format!("{name}: PSS"), "MB"));
    for _ in 0..SAMPLES {
        for pid in pids {
            let now = resident(*pid)?;
            rss.add(now.rss);
            pss.add(now.pss);
        }
        std::thread::park_timeout(SAMPLE_INTERVAL);
    }
    Ok((rss, pss))
}
