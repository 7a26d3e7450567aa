//! TCP throughput between two of the hosts, measured with iperf3: the upper bound of every collective between hosts. Needs
//! Debian's `iperf3`.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::hosts::Hosts;
use crate::peers::{Daemon, find, install, output_within};

const ATTEMPTS: u32 = 10;

/// Bytes per second from the first host to the second.
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    /// In one direction only.
    pub one_way: f64,
    /// In each direction while both send, as in an allreduce.
    pub both_ways: f64,
}

pub fn measure(hosts: &Hosts, seconds: usize) -> Result<Tcp> {
    if find("iperf3").is_none() {
        install("iperf3")?;
    }
    let both_ways = client(hosts, seconds, &["--bidir"])?;
    let one_way = client(hosts, seconds, &[])?;
    let rate = |said: &Value, sum: &str| said["end"][sum]["bits_per_second"].as_f64().map(|bits| bits / 8.0);
    let forth = rate(&both_ways, "sum_received").context("iperf3 says no rate")?;
    let back = rate(&both_ways, "sum_received_bidir_reverse").context("iperf3 says no rate back")?;
    Ok(Tcp { one_way: rate(&one_way, "sum_received").context("iperf3 says no rate")?, both_ways: (forth + back) / 2.0 })
}

/// Restarts server and client until they connect: nothing signals when a server listens.
fn client(hosts: &Hosts, seconds: usize, options: &[&str]) -> Result<Value> {
    let address = hosts.address(2).to_string();
    let mut attempt = 1;
    loop {
        let mut server = hosts.program(2, "iperf3");
        let _server = Daemon::start(server.args(["--server", "--one-off"]))?;
        std::thread::park_timeout(Duration::from_millis(100) * attempt);
        let mut client = hosts.program(1, "iperf3");
        client.args(["--json", "--client", &address, "--time", &seconds.to_string()]).args(options);
        let said = output_within(&mut client, Duration::from_secs(60)).and_then(|said| {
            let said: Value = serde_json::from_str(&said.text)?;
            // It may exit with 0 and report an error.
            said["error"].as_str().map_or(Ok(said.clone()), |error| Err(anyhow!("iperf3: {error}")))
        });
        match said {
            Err(_) if attempt < ATTEMPTS => attempt += 1,
            said => return said,
        }
    }
}
