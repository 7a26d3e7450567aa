//! Memory in which the ranks of one host keep gradients, and the values of large parameters, where all of them see them. Entered by
//! `together`, which says who may touch what when; here are only addresses, and what is read and written at them.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::dtype::{Dtype, bytes_of, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::calls::Reduce;
use crate::op::{Combine, ReduceOp};
use crate::reduce;
use crate::transport::shm::segment::{CommRegion, SharedRegion};
use crate::transport::shm::step_sync::StepSync;
use crate::transport::wait_policy::WaitPolicy;

/// With more ranks on a host than these everybody would read more gradients than it computes.
const MOST_RANKS: usize = 16;
const FLOAT: usize = size_of::<f32>();
/// Where every rank has a core, one that is ahead looks for the others for about as long as steps differ, some milliseconds: a processor
/// that is given back to sleep is, on a machine that is not one's own, often not there at once when it is wanted again.
const YIELDS: u32 = 20_000;
/// The name under which ranks agree on the memory.
const NAME: &str = "commons";

pub struct Commons {
    room: Arc<SharedRegion>,
    columns: Vec<Columns>,
    pub rank: usize,
    pub n_ranks: usize,
}

/// Of one parameter: the gradient of each rank, one behind the other, and, when its values are common, those.
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    /// Elements.
    size: usize,
    /// Bytes of one column.
    bytes: usize,
    common: bool,
}

impl Commons {
    /// For parameters of these sizes, of which those from `from` elements on have common values. Collective. Nothing where the ranks do not
    /// all share memory, are not of one mind, or somebody records a timeline, in which gradients are to be seen.
    pub fn open(engine: &Engine, sizes: &[usize], from: usize) -> Option<(Commons, StepSync)> {
        let world = &engine.world;
        let (rank, n_ranks) = (world.place.rank, world.place.size);
        let (columns, n_bytes) = columns(sizes, from, n_ranks);
        let words: Vec<i64> = [from].iter().chain(sizes).map(|size| *size as i64).collect();
        let (area, room) = agree(engine, n_bytes, &words)?;
        let wait_policy = if world.wait_policy.spins > 0 {
            WaitPolicy { yields: YIELDS, ..world.wait_policy }
        } else {
            world.wait_policy
        };
        // One that is late, with a checkpoint for example, is waited for, and told of after a while; one that is gone is noticed at once.
        let sync = StepSync::new(Arc::new(area), (0..n_ranks).collect(), rank, wait_policy, world.peer_table.clone());
        Some((Commons { room: Arc::new(room), columns, rank, n_ranks }, sync))
    }

    pub fn is_common(&self, index: usize) -> bool {
        self.columns[index].common
    }

    /// Elements of a parameter.
    pub fn size(&self, index: usize) -> usize {
        self.columns[index].size
    }

    /// This rank's gradient of a parameter.
    pub fn gradient(&mut self, index: usize) -> &mut [f32] {
        let size = self.columns[index].size;
        let at = self.column(index, self.rank, 0..size);
        // SAFETY: inside the room and aligned. Others read it only between this rank's offer and the end of the step.
        unsafe { std::slice::from_raw_parts_mut(at, size) }
    }

    /// What all ranks have of some elements of a gradient.
    pub fn sum(&self, index: usize, range: Range<usize>) -> Sum<'_> {
        Sum { commons: self, index, range }
    }

    /// Of the gradients of all parameters together.
    pub fn gradient_bytes(&self) -> usize {
        self.columns.iter().map(|columns| columns.size * FLOAT).sum()
    }

    /// Where the values of a parameter lie, if they are common.
    pub fn values(&self, index: usize) -> Option<Common> {
        let Columns { size, common, .. } = self.columns[index];
        let at = common.then(|| self.column(index, self.n_ranks, 0..size))?;
        Some(Common { at, size, room: self.room.clone() })
    }

    fn column(&self, index: usize, column: usize, range: Range<usize>) -> *mut f32 {
        let Columns { first, size, bytes, common } = self.columns[index];
        assert!(column < self.n_ranks + usize::from(common) && range.start <= range.end && range.end <= size);
        self.room.at(first + column * bytes + range.start * FLOAT, range.len() * FLOAT).cast()
    }
}

/// Memory that all ranks see, `n_bytes` of it, when all ask for the same with the same words. Collective. Nothing where they do not all share
/// memory, and where a timeline is recorded.
pub fn agree(engine: &Engine, n_bytes: usize, words: &[i64]) -> Option<(CommRegion, SharedRegion)> {
    let world = &engine.world;
    let (rank, n_ranks) = (world.place.rank, world.place.size);
    let segment = world.segment.as_ref().filter(|_| world.lowest.iter().all(|lowest| *lowest == 0))?;
    if n_ranks > MOST_RANKS {
        return None;
    }
    let first = match rank {
        0 => world.next_room.fetch_add(segment.room_bytes(n_bytes), Ordering::Relaxed),
        _ => 0,
    };
    let told: Vec<i64> = [first as i64].iter().chain(words).copied().collect();
    let all = engine.allgather(NAME, &told, Reduce::AVERAGE.set).ok()?;
    let alike = all.len() == n_ranks * told.len() && all.chunks(told.len()).all(|row| row[1..] == told[1..]);
    let opened = segment.room(all[0] as u64, n_bytes).ok().filter(|_| alike && !engine.timeline.is_on());
    // What one of them cannot do, none does.
    let mut can = [u8::from(opened.is_some())];
    engine.allreduce(NAME, &mut can, Reduce { op: ReduceOp::Min, ..Reduce::SUM }).ok()?;
    opened.filter(|_| can == [1])
}

/// Where everything lies, and how many bytes that are. Columns begin on pages, so that no line is two ranks'.
fn columns(sizes: &[usize], from: usize, n_ranks: usize) -> (Vec<Columns>, usize) {
    let mut end = 0;
    let one = |&size: &usize| {
        let (first, bytes, common) = (end, (size * FLOAT).next_multiple_of(4096).max(4096), size >= from);
        end += bytes * (n_ranks + usize::from(common));
        Columns { first, size, bytes, common }
    };
    let columns = sizes.iter().map(one).collect();
    // Those who only meet have a page too: nothing cannot be mapped.
    (columns, end.max(4096))
}

/// The average over all ranks of some elements of a gradient, made by whoever steps with it: best a little at a time, which then stays in the
/// cache. Always added up in the order of ranks.
pub struct Sum<'c> {
    commons: &'c Commons,
    index: usize,
    range: Range<usize>,
}

impl Sum<'_> {
    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The average of the elements from `first` on.
    pub fn reduce(&self, first: usize, out: &mut [f32]) {
        let n = out.len();
        let of = |rank| bytes_of(self.of(rank, first, n));
        reduce::combine_into(Dtype::F32, Combine::Sum, bytes_of_mut(out), of(0), of(1));
        for rank in 2..self.commons.n_ranks {
            reduce::combine(Dtype::F32, Combine::Sum, bytes_of_mut(out), of(rank));
        }
        let factor = 1.0 / self.commons.n_ranks as f64;
        reduce::scale(Dtype::F32, factor, bytes_of_mut(out)).expect("floats can be scaled");
    }

    fn of(&self, rank: usize, first: usize, n: usize) -> &[f32] {
        assert!(first <= self.len() && n <= self.len() - first);
        let start = self.range.start + first;
        let at = self.commons.column(self.index, rank, start..start + n);
        // SAFETY: inside the room and aligned; a sum is asked for when all have offered their gradients, which nobody changes in this step.
        unsafe { std::slice::from_raw_parts(at, n) }
    }
}

/// The values of a parameter: this rank's own, or such that all ranks of the host have in common.
#[derive(Debug)]
pub enum Values {
    Own(Vec<f32>),
    Common(Common),
}

/// Values in memory that all ranks of a host see. Read outside of steps, and written in a step or by one rank that the others wait for.
#[derive(Debug)]
pub struct Common {
    at: *mut f32,
    size: usize,
    /// Keeps the memory where it is.
    room: Arc<SharedRegion>,
}

// SAFETY: memory that is there as long as this is; who may touch what when is the same for threads as for ranks.
unsafe impl Send for Common {}
unsafe impl Sync for Common {}

impl Common {
    pub(super) fn is_of(&self, commons: &Commons) -> bool {
        Arc::ptr_eq(&self.room, &commons.room)
    }
}

impl Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Values::Own(values) => values,
            // SAFETY: inside the room, which is held; see `Common`.
            Values::Common(common) => unsafe { std::slice::from_raw_parts(common.at, common.size) },
        }
    }
}

impl DerefMut for Values {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Values::Own(values) => values,
            // SAFETY: as above.
            Values::Common(common) => unsafe { std::slice::from_raw_parts_mut(common.at, common.size) },
        }
    }
}

/// A copy is its owner's.
impl Clone for Values {
    fn clone(&self) -> Values {
        Values::Own(self.to_vec())
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Values) -> bool {
        **self == **other
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Values {
        Values::Own(values)
    }
}

impl<'v> IntoIterator for &'v Values {
    type Item = &'v f32;
    type IntoIter = std::slice::Iter<'v, f32>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'v> IntoIterator for &'v mut Values {
    type Item = &'v mut f32;
    type IntoIter = std::slice::IterMut<'v, f32>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
