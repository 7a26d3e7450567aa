//! Members of a communicator by host, and rails: rings of one member per host over which operations between hosts are divided. Pure.

/// Members by host. Hosts are in the order of their first member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    hosts: Vec<Vec<usize>>,
    host: usize,
    local_rank: usize,
}

impl Topology {
    /// `host_of`: for each member a key that is equal for members of one host.
    pub fn new(host_of: &[usize], me: usize) -> Topology {
        let mut keys: Vec<usize> = Vec::new();
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        for (member, key) in host_of.iter().enumerate() {
            let host = keys.iter().position(|known| known == key).unwrap_or_else(|| {
                keys.push(*key);
                hosts.push(Vec::new());
                hosts.len() - 1
            });
            hosts[host].push(member);
        }
        let host = keys.iter().position(|key| *key == host_of[me]).expect("every member has a host");
        let local_rank = hosts[host].iter().position(|member| *member == me).expect("this member is on its host");
        Topology { hosts, host, local_rank }
    }

    pub fn n_hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Index of this host.
    pub fn host(&self) -> usize {
        self.host
    }

    /// The members of this host, ascending.
    pub fn locals(&self) -> &[usize] {
        &self.hosts[self.host]
    }

    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Number of rails: of members on the smallest host.
    pub fn n_rails(&self) -> usize {
        self.hosts.iter().map(Vec::len).min().unwrap_or(1)
    }

    /// The members of a rail, one of each host.
    pub fn rail(&self, rail: usize) -> impl Iterator<Item = usize> + '_ {
        self.hosts.iter().map(move |host| host[rail])
    }

    /// Whether every host has one member, so that all links are TCP.
    pub fn is_one_per_host(&self) -> bool {
        self.hosts.iter().all(|host| host.len() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_on_their_hosts() {
        let topology = Topology::new(&[0, 0, 2, 2, 2, 5], 4);
        assert_eq!(topology.locals(), [2, 3, 4]);
        assert_eq!((topology.n_hosts(), topology.host(), topology.local_rank()), (3, 1, 2));
        assert_eq!(topology.n_rails(), 1);
        assert_eq!(topology.rail(0).collect::<Vec<_>>(), [0, 2, 5]);
        assert!(!topology.is_one_per_host());
        assert!(Topology::new(&[0, 1, 2], 1).is_one_per_host());
        let mixed = Topology::new(&[0, 1, 0, 1], 3);
        assert_eq!((mixed.n_rails(), mixed.rail(1).collect::<Vec<_>>()), (2, vec![2, 3]));
    }
}
