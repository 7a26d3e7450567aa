//! Start it with any launcher (`corro run`, `horovodrun`, `torchrun --no-python`, `srun`, `mpirun`) to see where each process
//! believes to be, and whether the ranks find each other.

use std::error::Error;
use std::time::Instant;

use corro_collectives::bootstrap::meet;
use corro_collectives::bootstrap::place::Launch;

fn main() -> Result<(), Box<dyn Error>> {
    let launch = Launch::from_environment()?;
    for round in 0..2 {
        let started = Instant::now();
        let hosts = meet::exchange(&launch, round, launch.place.hostname.as_bytes(), started + launch.timeout)?;
        let met = started.elapsed();
        let hosts: Vec<_> = hosts.iter().map(|host| String::from_utf8_lossy(host)).collect();
        let place = launch.place.clone().complete(&hosts);
        println!(
            "rank {} of {}, local {} of {}, cross {} of {}, round {round}: met in {met:.1?} at {:?}",
            place.rank,
            place.size,
            place.local_rank,
            place.local_size,
            place.cross_rank,
            place.cross_size,
            launch.meeting,
        );
    }
    Ok(())
}
