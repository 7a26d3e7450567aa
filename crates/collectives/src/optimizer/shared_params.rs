//! Shared memory of the ranks of one host for gradients and the values of large parameters. Only layout and access: `shm_optimizer` decides
//! when a rank may read or write which part.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::dtype::{Dtype, bytes_of, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::ops::Reduce;
use crate::op::{Combine, ReduceOp};
use crate::reduce;
use crate::transport::shm::segment::{CommRegion, SharedRegion};
use crate::transport::shm::step_sync::StepSync;
use crate::transport::wait_policy::WaitPolicy;

/// Largest number of ranks. With more, each rank would spend more time reading gradients than computing them.
const MAX_RANKS: usize = 16;
const F32_BYTES: usize = size_of::<f32>();
/// `sched_yield` calls before a waiting rank sleeps, if every rank has its own core: a few milliseconds, about as much as the ranks' steps
/// differ. On a virtual machine a core that goes idle is often not available at once when it is needed again.
const YIELDS_BEFORE_SLEEP: u32 = 20_000;
/// Tensor name of the collectives with which the ranks agree on a region.
const AGREEMENT_NAME: &str = "commons";

/// Gradients of all ranks and values of shared parameters in one shared region.
pub struct SharedParams {
    region: Arc<SharedRegion>,
    layouts: Vec<ParamLayout>,
    pub rank: usize,
    pub n_ranks: usize,
}

/// Layout of one parameter in the region: one column for each rank's gradient, followed by one for the values if they are shared.
#[derive(Clone, Copy)]
struct ParamLayout {
    /// Offset in bytes.
    first: usize,
    /// Elements.
    size: usize,
    /// Bytes of one column.
    bytes: usize,
    shared: bool,
}

impl SharedParams {
    /// Creates the region for parameters of these sizes; the values of those with at least `min_elements` elements are shared. Collective.
    /// `None` if not all ranks share memory, if they pass different arguments, or if a timeline is recorded, which is to show gradients.
    pub fn open(engine: &Engine, sizes: &[usize], min_elements: usize) -> Option<(SharedParams, StepSync)> {
        let world = &engine.world;
        let (rank, n_ranks) = (world.rank_info.rank, world.rank_info.size);
        let (layouts, n_bytes) = layouts(sizes, min_elements, n_ranks);
        let arguments: Vec<i64> = [min_elements].iter().chain(sizes).map(|size| *size as i64).collect();
        let (comm_region, region) = agree_on_region(engine, n_bytes, &arguments)?;
        let wait_policy = if world.wait_policy.spins > 0 {
            WaitPolicy { yields: YIELDS_BEFORE_SLEEP, ..world.wait_policy }
        } else {
            world.wait_policy
        };
        // Without timeout: a slow rank, for example one that writes a checkpoint, is waited for and reported after a while. A dead rank is
        // detected at once.
        let sync =
            StepSync::new(Arc::new(comm_region), (0..n_ranks).collect(), rank, wait_policy, world.peer_table.clone());
        Some((SharedParams { region: Arc::new(region), layouts, rank, n_ranks }, sync))
    }

    /// True if the values of a parameter are shared.
    pub fn is_shared(&self, index: usize) -> bool {
        self.layouts[index].shared
    }

    /// Elements of a parameter.
    pub fn size(&self, index: usize) -> usize {
        self.layouts[index].size
    }

    /// This rank's gradient of a parameter.
    pub fn gradient(&mut self, index: usize) -> &mut [f32] {
        let size = self.layouts[index].size;
        let at = self.column_ptr(index, self.rank, 0..size);
        // SAFETY: `column_ptr` checks the bounds and columns are page-aligned. `&mut self` excludes other slices of this rank. Other ranks read
        // the column only between this rank's publication and the end of the step, when it does not write.
        unsafe { std::slice::from_raw_parts_mut(at, size) }
    }

    /// Average over all ranks of some elements of a gradient, computed on demand.
    pub fn average(&self, index: usize, range: Range<usize>) -> AveragedGradient<'_> {
        AveragedGradient { shared_params: self, index, range }
    }

    /// Bytes of one rank's gradients of all parameters.
    pub fn gradient_bytes(&self) -> usize {
        self.layouts.iter().map(|layout| layout.size * F32_BYTES).sum()
    }

    /// Values of a parameter, if they are shared.
    pub fn values(&self, index: usize) -> Option<SharedSlice> {
        let ParamLayout { size, shared, .. } = self.layouts[index];
        let at = shared.then(|| self.column_ptr(index, self.n_ranks, 0..size))?;
        Some(SharedSlice { at, size, region: self.region.clone() })
    }

    /// Address of some elements of a column. Panics if they are out of bounds.
    fn column_ptr(&self, index: usize, column: usize, range: Range<usize>) -> *mut f32 {
        let ParamLayout { first, size, bytes, shared } = self.layouts[index];
        assert!(column < self.n_ranks + usize::from(shared) && range.start <= range.end && range.end <= size);
        self.region.at(first + column * bytes + range.start * F32_BYTES, range.len() * F32_BYTES).cast()
    }
}

/// Maps a shared region of `n_bytes` if all ranks pass the same `arguments`. Collective. `None` if not all ranks share memory, or if a timeline
/// is recorded on any of them.
pub fn agree_on_region(engine: &Engine, n_bytes: usize, arguments: &[i64]) -> Option<(CommRegion, SharedRegion)> {
    let world = &engine.world;
    let (rank, n_ranks) = (world.rank_info.rank, world.rank_info.size);
    let segment = world.segment.as_ref().filter(|_| world.lowest.iter().all(|lowest| *lowest == 0))?;
    if n_ranks > MAX_RANKS {
        return None;
    }
    let first = match rank {
        0 => world.shared_bytes_used.fetch_add(segment.shared_region_bytes(n_bytes), Ordering::Relaxed),
        _ => 0,
    };
    let proposal: Vec<i64> = [first as i64].iter().chain(arguments).copied().collect();
    let all = engine.allgather(AGREEMENT_NAME, &proposal, Reduce::AVERAGE.set).ok()?;
    let all_equal =
        all.len() == n_ranks * proposal.len() && all.chunks(proposal.len()).all(|row| row[1..] == proposal[1..]);
    let opened = segment.shared_region(all[0] as u64, n_bytes).ok().filter(|_| all_equal && !engine.timeline.is_on());
    // All ranks succeed or none.
    let mut can = [u8::from(opened.is_some())];
    engine.allreduce(AGREEMENT_NAME, &mut can, Reduce { op: ReduceOp::Min, ..Reduce::SUM }).ok()?;
    opened.filter(|_| can == [1])
}

/// Layout of all parameters and the total number of bytes. Columns are page-aligned, so no cache line is written by two ranks.
fn layouts(sizes: &[usize], min_elements: usize, n_ranks: usize) -> (Vec<ParamLayout>, usize) {
    let mut end = 0;
    let one = |&size: &usize| {
        let (first, bytes, shared) = (end, (size * F32_BYTES).next_multiple_of(4096).max(4096), size >= min_elements);
        end += bytes * (n_ranks + usize::from(shared));
        ParamLayout { first, size, bytes, shared }
    };
    let layouts = sizes.iter().map(one).collect();
    // At least one page, because an empty region cannot be mapped.
    (layouts, end.max(4096))
}

/// Average over all ranks of some elements of a gradient, computed by the stepping rank, best in small pieces that stay in the cache. Always
/// added in rank order, so that all runs give the same bits.
pub struct AveragedGradient<'c> {
    shared_params: &'c SharedParams,
    index: usize,
    range: Range<usize>,
}

impl AveragedGradient<'_> {
    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Writes the average of the elements from index `first` on to `out`.
    pub fn average_into(&self, first: usize, out: &mut [f32]) {
        let n = out.len();
        let gradient_of = |rank| bytes_of(self.gradient_of(rank, first, n));
        reduce::combine_into(Dtype::F32, Combine::Sum, bytes_of_mut(out), gradient_of(0), gradient_of(1));
        for rank in 2..self.shared_params.n_ranks {
            reduce::combine(Dtype::F32, Combine::Sum, bytes_of_mut(out), gradient_of(rank));
        }
        let factor = 1.0 / self.shared_params.n_ranks as f64;
        reduce::scale(Dtype::F32, factor, bytes_of_mut(out)).expect("floats can be scaled");
    }

    fn gradient_of(&self, rank: usize, first: usize, n: usize) -> &[f32] {
        assert!(first <= self.len() && n <= self.len() - first);
        let start = self.range.start + first;
        let at = self.shared_params.column_ptr(self.index, rank, start..start + n);
        // SAFETY: `column_ptr` checks the bounds and columns are page-aligned. An average is computed only after all ranks have published their
        // gradients, which no rank writes until the step is over.
        unsafe { std::slice::from_raw_parts(at, n) }
    }
}

/// Values of a parameter, in private or in shared memory.
#[derive(Debug)]
pub enum ParamStorage {
    Local(Vec<f32>),
    Shared(SharedSlice),
}

/// Values in memory shared by all ranks of a host. Read outside of steps; written in a step, or by one rank while the others wait.
#[derive(Debug)]
pub struct SharedSlice {
    at: *mut f32,
    size: usize,
    /// Keeps the region mapped.
    region: Arc<SharedRegion>,
}

// SAFETY: the region stays mapped while the slice exists. Access is synchronized by the step protocol of `shm_optimizer`, which holds for
// threads as for ranks.
unsafe impl Send for SharedSlice {}
unsafe impl Sync for SharedSlice {}

impl SharedSlice {
    pub(super) fn is_of(&self, shared_params: &SharedParams) -> bool {
        Arc::ptr_eq(&self.region, &shared_params.region)
    }
}

impl Deref for ParamStorage {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            ParamStorage::Local(values) => values,
            // SAFETY: the address is in the region, which `shared.region` keeps mapped, and `size` elements were checked when it was created.
            // Nobody writes outside of steps, see `SharedSlice`.
            ParamStorage::Shared(shared) => unsafe { std::slice::from_raw_parts(shared.at, shared.size) },
        }
    }
}

impl DerefMut for ParamStorage {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            ParamStorage::Local(values) => values,
            // SAFETY: address and size as in `deref`. Values are written only in a step, each element by one rank, or by one rank while the
            // others wait.
            ParamStorage::Shared(shared) => unsafe { std::slice::from_raw_parts_mut(shared.at, shared.size) },
        }
    }
}

/// Clones into private memory.
impl Clone for ParamStorage {
    fn clone(&self) -> ParamStorage {
        ParamStorage::Local(self.to_vec())
    }
}

impl PartialEq for ParamStorage {
    fn eq(&self, other: &ParamStorage) -> bool {
        **self == **other
    }
}

impl From<Vec<f32>> for ParamStorage {
    fn from(values: Vec<f32>) -> ParamStorage {
        ParamStorage::Local(values)
    }
}

impl<'v> IntoIterator for &'v ParamStorage {
    type Item = &'v f32;
    type IntoIter = std::slice::Iter<'v, f32>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v> IntoIterator for &'v mut ParamStorage {
    type Item = &'v mut f32;
    type IntoIter = std::slice::IterMut<'v, f32>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
