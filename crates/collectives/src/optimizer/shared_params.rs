//! Memory in which the ranks of one host keep gradients, and the values of large parameters, where all of them see them. Entered by
//! `together`, which says who may touch what when; here are only addresses, and what is read and written at them.

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

/// With more ranks on a host than these everybody would read more gradients than it computes.
const MAX_RANKS: usize = 16;
const F32_BYTES: usize = size_of::<f32>();
/// Where every rank has a core, one that is ahead looks for the others for about as long as steps differ, some milliseconds: a processor
/// that is given back to sleep is, on a machine that is not one's own, often not there at once when it is wanted again.
const YIELDS_BEFORE_SLEEP: u32 = 20_000;
/// The name under which ranks agree on the memory.
const AGREEMENT_NAME: &str = "commons";

pub struct SharedParams {
    region: Arc<SharedRegion>,
    layouts: Vec<ParamLayout>,
    pub rank: usize,
    pub n_ranks: usize,
}

/// Of one parameter: the gradient of each rank, one behind the other, and, when its values are common, those.
#[derive(Clone, Copy)]
struct ParamLayout {
    first: usize,
    /// Elements.
    size: usize,
    /// Bytes of one column.
    bytes: usize,
    shared: bool,
}

impl SharedParams {
    /// For parameters of these sizes, of which those from `from` elements on have common values. Collective. Nothing where the ranks do not
    /// all share memory, are not of one mind, or somebody records a timeline, in which gradients are to be seen.
    pub fn open(engine: &Engine, sizes: &[usize], min_elements: usize) -> Option<(SharedParams, StepSync)> {
        let world = &engine.world;
        let (rank, n_ranks) = (world.rank_info.rank, world.rank_info.size);
        let (layouts, n_bytes) = layouts(sizes, min_elements, n_ranks);
        let proposal_words: Vec<i64> = [min_elements].iter().chain(sizes).map(|size| *size as i64).collect();
        let (area, region) = agree_on_region(engine, n_bytes, &proposal_words)?;
        let wait_policy = if world.wait_policy.spins > 0 {
            WaitPolicy { yields: YIELDS_BEFORE_SLEEP, ..world.wait_policy }
        } else {
            world.wait_policy
        };
        // One that is late, with a checkpoint for example, is waited for, and told of after a while; one that is gone is noticed at once.
        let sync = StepSync::new(Arc::new(area), (0..n_ranks).collect(), rank, wait_policy, world.peer_table.clone());
        Some((SharedParams { region: Arc::new(region), layouts, rank, n_ranks }, sync))
    }

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
        // SAFETY: inside the room and aligned. Others read it only between this rank's offer and the end of the step.
        unsafe { std::slice::from_raw_parts_mut(at, size) }
    }

    /// What all ranks have of some elements of a gradient.
    pub fn average(&self, index: usize, range: Range<usize>) -> AveragedGradient<'_> {
        AveragedGradient { shared_params: self, index, range }
    }

    /// Of the gradients of all parameters together.
    pub fn gradient_bytes(&self) -> usize {
        self.layouts.iter().map(|layout| layout.size * F32_BYTES).sum()
    }

    /// Where the values of a parameter lie, if they are common.
    pub fn values(&self, index: usize) -> Option<SharedSlice> {
        let ParamLayout { size, shared, .. } = self.layouts[index];
        let at = shared.then(|| self.column_ptr(index, self.n_ranks, 0..size))?;
        Some(SharedSlice { at, size, region: self.region.clone() })
    }

    fn column_ptr(&self, index: usize, column: usize, range: Range<usize>) -> *mut f32 {
        let ParamLayout { first, size, bytes, shared } = self.layouts[index];
        assert!(column < self.n_ranks + usize::from(shared) && range.start <= range.end && range.end <= size);
        self.region.at(first + column * bytes + range.start * F32_BYTES, range.len() * F32_BYTES).cast()
    }
}

/// Memory that all ranks see, `n_bytes` of it, when all ask for the same with the same words. Collective. Nothing where they do not all share
/// memory, and where a timeline is recorded.
pub fn agree_on_region(engine: &Engine, n_bytes: usize, proposal_words: &[i64]) -> Option<(CommRegion, SharedRegion)> {
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
    let proposal: Vec<i64> = [first as i64].iter().chain(proposal_words).copied().collect();
    let all = engine.allgather(AGREEMENT_NAME, &proposal, Reduce::AVERAGE.set).ok()?;
    let all_equal =
        all.len() == n_ranks * proposal.len() && all.chunks(proposal.len()).all(|row| row[1..] == proposal[1..]);
    let opened = segment.shared_region(all[0] as u64, n_bytes).ok().filter(|_| all_equal && !engine.timeline.is_on());
    // What one of them cannot do, none does.
    let mut can = [u8::from(opened.is_some())];
    engine.allreduce(AGREEMENT_NAME, &mut can, Reduce { op: ReduceOp::Min, ..Reduce::SUM }).ok()?;
    opened.filter(|_| can == [1])
}

/// Where everything lies, and how many bytes that are. Columns begin on pages, so that no line is two ranks'.
fn layouts(sizes: &[usize], min_elements: usize, n_ranks: usize) -> (Vec<ParamLayout>, usize) {
    let mut end = 0;
    let one = |&size: &usize| {
        let (first, bytes, shared) = (end, (size * F32_BYTES).next_multiple_of(4096).max(4096), size >= min_elements);
        end += bytes * (n_ranks + usize::from(shared));
        ParamLayout { first, size, bytes, shared }
    };
    let layouts = sizes.iter().map(one).collect();
    // Those who only meet have a page too: nothing cannot be mapped.
    (layouts, end.max(4096))
}

/// The average over all ranks of some elements of a gradient, made by whoever steps with it: best a little at a time, which then stays in the
/// cache. Always added up in the order of ranks.
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

    /// The average of the elements from `first` on.
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
        // SAFETY: inside the room and aligned; a sum is asked for when all have offered their gradients, which nobody changes in this step.
        unsafe { std::slice::from_raw_parts(at, n) }
    }
}

/// The values of a parameter: this rank's own, or such that all ranks of the host have in common.
#[derive(Debug)]
pub enum ParamStorage {
    Local(Vec<f32>),
    Shared(SharedSlice),
}

/// Values in memory that all ranks of a host see. Read outside of steps, and written in a step or by one rank that the others wait for.
#[derive(Debug)]
pub struct SharedSlice {
    at: *mut f32,
    size: usize,
    /// Keeps the memory where it is.
    region: Arc<SharedRegion>,
}

// SAFETY: memory that is there as long as this is; who may touch what when is the same for threads as for ranks.
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
            // SAFETY: inside the room, which is held; see `Common`.
            ParamStorage::Shared(shared) => unsafe { std::slice::from_raw_parts(shared.at, shared.size) },
        }
    }
}

impl DerefMut for ParamStorage {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            ParamStorage::Local(values) => values,
            // SAFETY: as above.
            ParamStorage::Shared(shared) => unsafe { std::slice::from_raw_parts_mut(shared.at, shared.size) },
        }
    }
}

/// A copy is its owner's.
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
