//! Where the ranks of one host exchange gradients: memory that all of them see. Entered by the optimizer helper, which says when.
//!
//! Every rank's backward pass writes its gradients there. Once all have said that theirs are whole, each rank reads everybody's, in the order of
//! ranks, while it steps: nothing is copied to be sent, and no thread is woken while a rank computes. There are two tables of gradients,
//! taken in turns: what is written in one step is read in it, and written again in the one after the next, before which everybody has said that it is
//! through with reading.
//!
//! Large parameters of more than two ranks are shared out: each rank steps with its share of the elements, leaves the values behind the gradients,
//! and takes the others' after all have come to that point (`meet`).

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::algorithm::parts;
use crate::dtype::{Dtype, bytes_of, bytes_of_mut};
use crate::engine::Engine;
use crate::engine::calls::Reduce;
use crate::engine::handle::EngineError;
use crate::op::{Combine, ReduceOp};
use crate::reduce;
use crate::transport::board::Board;
use crate::transport::segment::Room;

pub struct Exchange {
    board: Board,
    room: Room,
    /// By parameter.
    columns: Vec<Columns>,
    rank: usize,
    n_ranks: usize,
    /// Sums are multiplied with it.
    factor: f64,
    /// Which of the two tables is written.
    turn: usize,
}

/// Of one parameter: the gradient of each rank, one behind the other, twice; and, when its steps are shared out, behind them the values.
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    /// Elements.
    size: usize,
    /// Bytes of one column.
    bytes: usize,
    shared: bool,
}

const FLOAT: usize = size_of::<f32>();
/// The name under which ranks say that their gradients are whole, and agree on the memory.
const NAME: &str = "optimizer";

impl Exchange {
    /// For parameters of these sizes, which are shared out or not. Collective. Nothing where the ranks do not share memory, or are not of one mind.
    pub fn open(engine: &Engine, sizes: &[(usize, bool)], factor: f64) -> Option<Exchange> {
        let world = &engine.world;
        let (rank, n_ranks) = (world.place.rank, world.place.size);
        let segment = world.segment.as_ref().filter(|_| world.lowest.iter().all(|lowest| *lowest == 0))?;
        let (columns, n_bytes) = columns(sizes, n_ranks);
        let first = match rank {
            0 => world.next_room.fetch_add(segment.room_bytes(n_bytes), Ordering::Relaxed),
            _ => 0,
        };
        let sizes = sizes.iter().map(|(size, shared)| (2 * *size + usize::from(*shared)) as i64);
        let told: Vec<i64> = [first as i64].into_iter().chain(sizes).collect();
        let all = engine.allgather(NAME, &told, Reduce::AVERAGE.set).ok()?;
        let alike = all.len() == n_ranks * told.len() && all.chunks(told.len()).all(|row| row[1..] == told[1..]);
        let opened = segment.room(all[0] as u64, n_bytes).ok().filter(|_| alike);
        // What one of them cannot do, none does.
        let mut can = [u8::from(opened.is_some())];
        engine.allreduce(NAME, &mut can, Reduce { op: ReduceOp::Min, ..Reduce::SUM }).ok()?;
        let (area, room) = opened.filter(|_| can == [1])?;
        let mut board = Board::new(area, (0..n_ranks).collect(), rank, world.patience, world.roster.clone());
        board.limit_silence(Some(world.timeout));
        Some(Exchange { board, room, columns, rank, n_ranks, factor, turn: 0 })
    }

    /// This rank's gradient.
    pub fn gradient(&mut self, index: usize) -> &mut [f32] {
        let size = self.columns[index].size;
        let at = self.gradients(index, self.turn, self.rank, 0..size).cast_mut();
        // SAFETY: inside the room and aligned. Others read this table only after `turn`, and have read it when this rank comes back to it.
        unsafe { std::slice::from_raw_parts_mut(at, size) }
    }

    /// The gradients of this rank are whole and stay as they are; returns when those of all ranks are. From then on gradients are written to the
    /// other table, and sums are read from this one.
    pub fn turn(&mut self, engine: &Engine, name: &str) -> Result<(), EngineError> {
        self.turn ^= 1;
        engine.allreduce(&format!("{NAME}.{name}"), &mut [0u8], Reduce::SUM)
    }

    /// What all ranks have of some elements. Until the next `turn`.
    pub fn sum(&self, index: usize, range: Range<usize>) -> Sum<'_> {
        Sum { exchange: self, index, range }
    }

    /// The elements of a parameter that this rank steps with.
    pub fn own(&self, index: usize) -> Range<usize> {
        let Columns { size, shared, .. } = self.columns[index];
        if shared { parts::rows(size, self.n_ranks, self.rank) } else { 0..size }
    }

    /// Room for the values that this rank has stepped with, where others wait for them.
    pub fn stepped(&mut self, index: usize) -> Option<(Sum<'_>, &mut [f32])> {
        let own = self.own(index);
        let at = self.columns[index].shared.then(|| self.column(index, 2 * self.n_ranks, own.clone()))?;
        // SAFETY: inside the room and aligned. This rank alone writes its share; others read it between `meet` and their next `turn`.
        let values = unsafe { std::slice::from_raw_parts_mut(at.cast_mut(), own.len()) };
        Some((self.sum(index, own), values))
    }

    /// Whether anything is shared out.
    pub fn shares(&self) -> bool {
        self.columns.iter().any(|columns| columns.shared)
    }

    /// Returns when all ranks have come. All are on the way here.
    pub fn meet(&mut self) -> Result<(), EngineError> {
        self.board.post();
        self.board.wait_all(self.board.step()).map_err(|error| EngineError::Failed(error.to_string().into()))
    }

    /// After the meeting: the values that others have stepped with.
    pub fn take(&self, index: usize, values: &mut [f32]) {
        let own = self.own(index);
        for range in [0..own.start, own.end..values.len()].into_iter().filter(|range| !range.is_empty()) {
            let at = self.column(index, 2 * self.n_ranks, range.clone());
            // SAFETY: inside the room; nobody writes there before all have made a turn.
            unsafe { std::ptr::copy_nonoverlapping(at, values[range.clone()].as_mut_ptr(), range.len()) }
        }
    }

    fn gradients(&self, index: usize, turn: usize, rank: usize, range: Range<usize>) -> *const f32 {
        self.column(index, turn * self.n_ranks + rank, range)
    }

    fn column(&self, index: usize, column: usize, range: Range<usize>) -> *const f32 {
        let Columns { first, size, bytes, shared } = self.columns[index];
        assert!(column < n_columns(self.n_ranks, shared) && range.start <= range.end && range.end <= size);
        self.room.at(first + column * bytes + range.start * FLOAT, range.len() * FLOAT).cast_const().cast()
    }
}

fn n_columns(n_ranks: usize, shared: bool) -> usize {
    2 * n_ranks + usize::from(shared)
}

/// Where everything lies, and how many bytes that are. Columns begin on pages, so that no line is two ranks'.
fn columns(sizes: &[(usize, bool)], n_ranks: usize) -> (Vec<Columns>, usize) {
    let mut end = 0;
    let one = |&(size, shared): &(usize, bool)| {
        let (first, bytes) = (end, (size * FLOAT).next_multiple_of(4096).max(4096));
        end += bytes * n_columns(n_ranks, shared);
        Columns { first, size, bytes, shared }
    };
    (sizes.iter().map(one).collect(), end)
}

/// What all ranks have of some elements of a gradient, to be reduced by whoever steps with it: best a little at a time, which then stays in the cache.
pub struct Sum<'x> {
    exchange: &'x Exchange,
    index: usize,
    range: Range<usize>,
}

impl Sum<'_> {
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// The reduced elements from `first` on.
    pub fn reduce(&self, first: usize, out: &mut [f32]) {
        let n = out.len();
        let of = |rank| bytes_of(self.of(rank, first, n));
        reduce::combine_into(Dtype::F32, Combine::Sum, bytes_of_mut(out), of(0), of(1));
        for rank in 2..self.exchange.n_ranks {
            reduce::combine(Dtype::F32, Combine::Sum, bytes_of_mut(out), of(rank));
        }
        reduce::scale(Dtype::F32, self.exchange.factor, bytes_of_mut(out)).expect("floats can be scaled");
    }

    /// When there are two ranks: both gradients. Their sum is to be multiplied with [`Sum::factor`].
    pub fn pair(&self) -> Option<[&[f32]; 2]> {
        (self.exchange.n_ranks == 2).then(|| [0, 1].map(|rank| self.of(rank, 0, self.len())))
    }

    pub fn factor(&self) -> f32 {
        self.exchange.factor as f32
    }

    fn of(&self, rank: usize, first: usize, n: usize) -> &[f32] {
        assert!(first <= self.len() && n <= self.len() - first);
        let Sum { exchange, index, range } = self;
        let at = exchange.gradients(*index, exchange.turn ^ 1, rank, range.start + first..range.start + first + n);
        // SAFETY: inside the room and aligned; all have made their turn, and nobody writes to this table before this rank makes the next.
        unsafe { std::slice::from_raw_parts(at, n) }
    }
}
