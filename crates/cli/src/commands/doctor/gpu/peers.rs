//! Test of peer access: each pair of GPUs that the driver allows it copies memory directly, and what arrives is compared.

use super::cuda::{Device, Driver, pattern};

/// Pairs that are named, at most.
const MAX_NAMED: usize = 8;

pub fn test(driver: &Driver, devices: &[Device]) -> Result<String, String> {
    if devices.len() < 2 {
        return Ok("not needed: there is one GPU".to_owned());
    }
    let (mut without, mut n_pairs) = (Vec::new(), 0);
    for (at, first) in devices.iter().enumerate() {
        for second in &devices[at + 1..] {
            n_pairs += 1;
            if !(driver.can_access_peer(first, second)? && driver.can_access_peer(second, first)?) {
                without.push(format!("{}-{}", first.ordinal, second.ordinal));
                continue;
            }
            for (device, peer) in [(first, second), (second, first)] {
                copy(driver, device, peer)
                    .map_err(|error| format!("GPU {} to {}: {error}", device.ordinal, peer.ordinal))?;
            }
        }
    }
    summary(n_pairs, &without)
}

fn copy(driver: &Driver, device: &Device, peer: &Device) -> Result<(), String> {
    let expected = pattern(device.ordinal as u8 ^ 0x3c);
    driver.select(peer)?;
    let target = driver.alloc()?;
    driver.select(device)?;
    driver.enable_peer_access(peer)?;
    let source = driver.alloc()?;
    driver.write(source.address, &expected)?;
    driver.copy_peer((&target, peer), (&source, device))?;
    driver.select(peer)?;
    match driver.read(target.address)? == *expected {
        true => Ok(()),
        false => Err("other bytes arrive than were sent".to_owned()),
    }
}

/// Pure.
fn summary(n_pairs: usize, without: &[String]) -> Result<String, String> {
    let more = if without.len() > MAX_NAMED { " and more" } else { "" };
    let named = without[..without.len().min(MAX_NAMED)].join(", ");
    match without.len() {
        0 if n_pairs == 1 => Ok("works between both GPUs: memory was copied directly".to_owned()),
        0 => Ok(format!("works between all {n_pairs} pairs of GPUs: memory was copied directly")),
        n if n == n_pairs => Err("no GPU can access the memory of another".to_owned()),
        _ => Err(format!("missing between the GPUs {named}{more}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_without_access_are_named() {
        let pairs = |n: usize| (0..n).map(|i| format!("0-{i}")).collect::<Vec<_>>();
        assert!(summary(1, &[]).is_ok_and(|text| text.contains("both")));
        assert!(summary(6, &[]).is_ok_and(|text| text.contains("all 6 pairs")));
        assert_eq!(summary(6, &pairs(2)), Err("missing between the GPUs 0-0, 0-1".to_owned()));
        assert_eq!(summary(2, &pairs(2)), Err("no GPU can access the memory of another".to_owned()));
        assert!(summary(99, &pairs(9)).is_err_and(|text| text.ends_with("0-7 and more")));
    }
}
