//! Prints the rank numbers of this process and checks that the ranks find each other. Start it with any launcher (`corro run`,
//! `horovodrun`, `torchrun --no-python`, `srun`, `mpirun`).

use std::error::Error;
use std::time::Instant;

use corro_collectives::bootstrap::launch_env::Launch;
use corro_collectives::bootstrap::rendezvous;

fn main() -> Result<(), Box<dyn Error>> {
    let launch = Launch::from_environment()?;
    for round in 0..2 {
        let started = Instant::now();
        let hostname = launch.rank_info.hostname.as_bytes();
        let hosts = rendezvous::exchange(&launch, round, hostname, started + launch.timeout)?;
        let elapsed = started.elapsed();
        let hosts: Vec<_> = hosts.iter().map(|host| String::from_utf8_lossy(host)).collect();
        let rank_info = launch.rank_info.clone().complete(&hosts);
        println!(
            "rank {} of {}, local {} of {}, cross {} of {}, round {round}: met in {elapsed:.1?} at {:?}",
            rank_info.rank,
            rank_info.size,
            rank_info.local_rank,
            rank_info.local_size,
            rank_info.cross_rank,
            rank_info.cross_size,
            launch.rendezvous,
        );
    }
    Ok(())
}
