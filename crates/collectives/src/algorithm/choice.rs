//! Which way an operation takes: a table over size and ranks. Pure. The numbers were measured (`bench/run allreduce`); a variable
//! overrides them.

use std::fmt;

/// What the table is asked with.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub n_bytes: usize,
    /// Members of the communicator on this host.
    pub n: usize,
    pub n_cores: usize,
    /// Whether members may read each other's memory.
    pub direct: bool,
}

/// Ways within a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Flat,
    /// With so many bytes of a stage in each round.
    Staged {
        chunk: usize,
    },
    Direct,
}

/// Forced by `CORRO_ALGORITHM`; for measuring and for doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    pub allreduce: Option<Way>,
}

impl Forced {
    /// `allreduce=flat|staged|staged:BYTES|direct`
    pub fn parse(text: &str) -> Option<Forced> {
        let mut forced = Forced::default();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (collective, way) = item.split_once('=')?;
            let way = match way.split_once(':') {
                None if way == "flat" => Way::Flat,
                None if way == "direct" => Way::Direct,
                None if way == "staged" => Way::Staged { chunk: 256 * 1024 },
                Some(("staged", bytes)) => Way::Staged { chunk: bytes.parse().ok()? },
                _ => return None,
            };
            match collective {
                "allreduce" => forced.allreduce = Some(way),
                _ => return None,
            }
        }
        Some(forced)
    }
}

/// As it is parsed; `none` when nothing is forced.
impl fmt::Display for Forced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.allreduce {
            None => write!(f, "none"),
            Some(Way::Flat) => write!(f, "allreduce=flat"),
            Some(Way::Staged { chunk }) => write!(f, "allreduce=staged:{chunk}"),
            Some(Way::Direct) => write!(f, "allreduce=direct"),
        }
    }
}

/// Allreduce within a host.
pub fn allreduce(case: Case, forced: &Forced) -> Way {
    const SMALL: usize = crate::transport::shm::segment::SMALL_BYTES;
    let fits = |way| way != Way::Flat || case.n_bytes <= SMALL;
    let allowed = |way| way != Way::Direct || case.direct;
    if let Some(way) = forced.allreduce.filter(|way| fits(*way) && allowed(*way)) {
        return way;
    }
    // Where every rank has a core, flat wins as long as reading everybody's input is cheaper than one more step (measured with
    // 2 to 16 ranks on 16 cores). Where ranks share cores, a step is a change of process, and worth more bytes.
    let crowded = case.n > case.n_cores;
    let flat_up_to = match (crowded, case.n) {
        (false, ..=2) => SMALL,
        (false, _) => 2048,
        (true, n) => SMALL.min(64 * 1024 / n),
    };
    if case.n_bytes <= flat_up_to {
        return Way::Flat;
    }
    // Two ranks with a core each: between what fits into their caches and what the caches of all hold, one copy beats two
    // (measured on 2 and on 16 cores); above, stages that stay in the caches do.
    let middle = (4 << 20..=32 << 20).contains(&case.n_bytes);
    if case.n == 2 && !crowded && case.direct && middle {
        return Way::Direct;
    }
    Way::Staged {
        chunk: match (crowded, case.n) {
            (true, _) => 1024 * 1024,
            (false, 2) if case.n_bytes > 32 << 20 => 1024 * 1024,
            (false, 2) => 512 * 1024,
            (false, _) => 256 * 1024,
        },
    }
}

/// Work in which one copy is all there is to do, allgather and broadcast: reading it where it lies saves the second one.
pub fn take(longest: usize, direct: bool) -> Way {
    if direct && longest >= 1024 * 1024 { Way::Direct } else { Way::Staged { chunk: 256 * 1024 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_as_it_was_measured() {
        let case = |n_bytes, n, n_cores| Case { n_bytes, n, n_cores, direct: true };
        let way = |case| allreduce(case, &Forced::default());
        assert_eq!(way(case(32 << 10, 2, 2)), Way::Flat);
        assert_eq!(way(case(1 << 20, 2, 2)), Way::Staged { chunk: 512 << 10 });
        assert_eq!(way(case(16 << 20, 2, 2)), Way::Direct);
        assert_eq!(way(Case { direct: false, ..case(16 << 20, 2, 2) }), Way::Staged { chunk: 512 << 10 });
        assert_eq!(way(case(64 << 20, 2, 2)), Way::Staged { chunk: 1 << 20 });
        assert_eq!(way(case(4096, 8, 16)), Way::Staged { chunk: 256 << 10 });
        assert_eq!(way(case(4096, 8, 2)), Way::Flat);
        assert_eq!(way(case(16 << 20, 8, 2)), Way::Staged { chunk: 1 << 20 });
    }

    #[test]
    fn what_is_forced_is_taken_where_it_can_be() {
        let case = Case { n_bytes: 1 << 20, n: 4, n_cores: 2, direct: false };
        let forced = Forced::parse("allreduce=direct").expect("a known way");
        assert_ne!(allreduce(case, &forced), Way::Direct, "the kernel does not let us");
        assert_eq!(allreduce(Case { direct: true, ..case }, &forced), Way::Direct);
        let flat = Forced::parse("allreduce=flat").expect("a known way");
        assert_ne!(allreduce(case, &flat), Way::Flat, "it does not fit");
        assert_eq!(
            Forced::parse("allreduce=staged:4096"),
            Some(Forced { allreduce: Some(Way::Staged { chunk: 4096 }) })
        );
        for bad in ["allreduce", "allreduce=odd", "gather=flat", "allreduce=staged:x"] {
            assert_eq!(Forced::parse(bad), None, "{bad}");
        }
    }
}
