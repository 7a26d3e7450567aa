//! The algorithms that `CORRO_ALGORITHM` can force, and the parser of its value. Pure. The values are part of the wire format of
//! [`crate::transport::peer_info`], because all ranks must use the same algorithm.

use std::fmt;

/// Algorithms of an allreduce within a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Every rank reads the whole input of every other: [`crate::algorithm::one_shot`]. `flat` in `CORRO_ALGORITHM`.
    OneShot,
    /// Through shared memory in chunks of this many bytes: [`crate::algorithm::pipelined_shm`]. `staged` in `CORRO_ALGORITHM`.
    PipelinedShm { chunk: usize },
    /// With `process_vm_readv`: [`crate::algorithm::cma_collectives`]. `direct` in `CORRO_ALGORITHM`.
    Cma,
}

/// The value of `CORRO_ALGORITHM`, which overrides the selection table. For measurements and debugging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlgorithmOverride {
    pub allreduce: Option<Algorithm>,
}

impl AlgorithmOverride {
    /// Parses `allreduce=flat|staged|staged:BYTES|direct`.
    pub fn parse(text: &str) -> Option<AlgorithmOverride> {
        let mut forced = AlgorithmOverride::default();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (collective, name) = item.split_once('=')?;
            let algorithm = match name.split_once(':') {
                None if name == "flat" => Algorithm::OneShot,
                None if name == "direct" => Algorithm::Cma,
                None if name == "staged" => Algorithm::PipelinedShm { chunk: 256 * 1024 },
                Some(("staged", bytes)) => Algorithm::PipelinedShm { chunk: bytes.parse().ok()? },
                _ => return None,
            };
            match collective {
                "allreduce" => forced.allreduce = Some(algorithm),
                _ => return None,
            }
        }
        Some(forced)
    }
}

/// In the syntax of [`AlgorithmOverride::parse`]; `none` when nothing is forced.
impl fmt::Display for AlgorithmOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.allreduce {
            None => write!(f, "none"),
            Some(Algorithm::OneShot) => write!(f, "allreduce=flat"),
            Some(Algorithm::PipelinedShm { chunk }) => write!(f, "allreduce=staged:{chunk}"),
            Some(Algorithm::Cma) => write!(f, "allreduce=direct"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_parsed_and_others_refused() {
        assert_eq!(
            AlgorithmOverride::parse("allreduce=staged:4096"),
            Some(AlgorithmOverride { allreduce: Some(Algorithm::PipelinedShm { chunk: 4096 }) })
        );
        for bad in ["allreduce", "allreduce=odd", "gather=flat", "allreduce=staged:x"] {
            assert_eq!(AlgorithmOverride::parse(bad), None, "{bad}");
        }
    }
}
