//! Selects the algorithm of an operation within a host from a table over bytes, ranks and cores. Pure. The thresholds were measured
//! (`bench/run allreduce`); `CORRO_ALGORITHM` overrides them.

use crate::algorithm_override::{Algorithm, AlgorithmOverride};

/// The properties of an operation that the table depends on. Equal on all ranks of the host.
#[derive(Clone, Copy, Debug)]
pub struct SelectInput {
    pub n_bytes: usize,
    /// Members of the communicator on this host.
    pub n: usize,
    pub n_cores: usize,
    /// Whether members can read each other's memory (`process_vm_readv`).
    pub has_cma: bool,
}

/// Selects the algorithm of an allreduce within a host. An override that is impossible for this input is ignored.
pub fn select_allreduce(input: SelectInput, forced: &AlgorithmOverride) -> Algorithm {
    const SMALL: usize = crate::transport::shm::segment::SMALL_BYTES;
    let fits = |algorithm| algorithm != Algorithm::OneShot || input.n_bytes <= SMALL;
    let allowed = |algorithm| algorithm != Algorithm::Cma || input.has_cma;
    if let Some(algorithm) = forced.allreduce.filter(|algorithm| fits(*algorithm) && allowed(*algorithm)) {
        return algorithm;
    }
    // With a core per rank, one-shot wins as long as reading every input is cheaper than one more step (measured with
    // 2 to 16 ranks on 16 cores). Where ranks share cores, a step is a context switch, and worth more bytes.
    let is_oversubscribed = input.n > input.n_cores;
    let one_shot_max_bytes = match (is_oversubscribed, input.n) {
        (false, ..=2) => SMALL,
        (false, _) => 2048,
        (true, n) => SMALL.min(64 * 1024 / n),
    };
    if input.n_bytes <= one_shot_max_bytes {
        return Algorithm::OneShot;
    }
    // Two ranks with a core each: for sizes between the caches of one core and the caches of all, one copy beats two
    // (measured on 2 and on 16 cores); above, chunks that stay in the caches do.
    let is_medium = (4 << 20..=32 << 20).contains(&input.n_bytes);
    if input.n == 2 && !is_oversubscribed && input.has_cma && is_medium {
        return Algorithm::Cma;
    }
    Algorithm::PipelinedShm {
        chunk: match (is_oversubscribed, input.n) {
            (true, _) => 1024 * 1024,
            (false, 2) if input.n_bytes > 32 << 20 => 1024 * 1024,
            (false, 2) => 512 * 1024,
            (false, _) => 256 * 1024,
        },
    }
}

/// Selects the algorithm of an allgather or broadcast, which only copies: reading the source directly saves the second copy of large parts.
pub fn select_copy(longest_part_bytes: usize, has_cma: bool) -> Algorithm {
    if has_cma && longest_part_bytes >= 1024 * 1024 {
        Algorithm::Cma
    } else {
        Algorithm::PipelinedShm { chunk: 256 * 1024 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_as_it_was_measured() {
        let input = |n_bytes, n, n_cores| SelectInput { n_bytes, n, n_cores, has_cma: true };
        let selected = |input| select_allreduce(input, &AlgorithmOverride::default());
        assert_eq!(selected(input(32 << 10, 2, 2)), Algorithm::OneShot);
        assert_eq!(selected(input(1 << 20, 2, 2)), Algorithm::PipelinedShm { chunk: 512 << 10 });
        assert_eq!(selected(input(16 << 20, 2, 2)), Algorithm::Cma);
        let without_cma = SelectInput { has_cma: false, ..input(16 << 20, 2, 2) };
        assert_eq!(selected(without_cma), Algorithm::PipelinedShm { chunk: 512 << 10 });
        assert_eq!(selected(input(64 << 20, 2, 2)), Algorithm::PipelinedShm { chunk: 1 << 20 });
        assert_eq!(selected(input(4096, 8, 16)), Algorithm::PipelinedShm { chunk: 256 << 10 });
        assert_eq!(selected(input(4096, 8, 2)), Algorithm::OneShot);
        assert_eq!(selected(input(16 << 20, 8, 2)), Algorithm::PipelinedShm { chunk: 1 << 20 });
    }

    #[test]
    fn an_override_is_obeyed_where_it_is_possible() {
        let input = SelectInput { n_bytes: 1 << 20, n: 4, n_cores: 2, has_cma: false };
        let cma = AlgorithmOverride::parse("allreduce=direct").expect("a known algorithm");
        assert_ne!(select_allreduce(input, &cma), Algorithm::Cma, "the kernel does not allow it");
        assert_eq!(select_allreduce(SelectInput { has_cma: true, ..input }, &cma), Algorithm::Cma);
        let one_shot = AlgorithmOverride::parse("allreduce=flat").expect("a known algorithm");
        assert_ne!(select_allreduce(input, &one_shot), Algorithm::OneShot, "it does not fit");
    }
}
