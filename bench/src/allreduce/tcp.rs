//! TCP throughput between two of the hosts, measured with iperf3: the upper bound of every collective between hosts. Needs
//! Debian's `iperf3`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::hosts::Hosts;
use crate::peers::{Daemon, find, install, output_within};

const MAX_ATTEMPTS: u32 = 10;

/// Bytes per second from the first host to the second.
#[derive(Clone, Copy, Debug)]
pub struct TcpThroughput {
    /// In one direction only.
    pub one_way: f64,
    /// In each direction while both send, as in an allreduce.
    pub both_ways: f64,
}

pub fn measure(hosts: &Hosts, seconds: usize) -> Result<TcpThroughput> {
    if find("iperf3").is_none() {
        install("iperf3")?;
    }
    let both_ways = run_client(hosts, seconds, &["--bidir"])?;
    let one_way = run_client(hosts, seconds, &[])?;
    let rate = |report: &Value, sum: &str| report["end"][sum]["bits_per_second"].as_f64().map(|bits| bits / 8.0);
    let forward = rate(&both_ways, "sum_received").context("iperf3 reports no rate")?;
    let reverse = rate(&both_ways, "sum_received_bidir_reverse").context("iperf3 reports no reverse rate")?;
    Ok(TcpThroughput {
        one_way: rate(&one_way, "sum_received").context("iperf3 reports no rate")?,
        both_ways: (forward + reverse) / 2.0,
    })
}

/// Report of one iperf3 client. Restarts server and client until they connect: nothing signals when a server listens.
fn run_client(hosts: &Hosts, seconds: usize, options: &[&str]) -> Result<Value> {
    let address = hosts.address(2).to_string();
    let mut attempt = 1;
    loop {
        let mut server = hosts.program(2, "iperf3");
        let _server = Daemon::start(server.args(["--server", "--one-off"]))?;
        std::thread::park_timeout(Duration::from_millis(100) * attempt);
        let mut client = hosts.program(1, "iperf3");
        client.args(["--json", "--client", &address, "--time", &seconds.to_string()]).args(options);
        let report = output_within(&mut client, Duration::from_secs(60)).and_then(|output| {
            let report: Value = serde_json::from_str(&output.text)?;
            // It may exit with 0 and report an error.
            report["error"].as_str().map_or(Ok(report.clone()), |error| Err(anyhow!("iperf3: {error}")))
        });
        match report {
            Err(_) if attempt < MAX_ATTEMPTS => attempt += 1,
            report => return report,
        }
    }
}
