//! Does what the ranks have agreed on, with the tensors of this rank: brings small ones together, supplies zeros where this rank has joined,
//! makes room for results. Entered by the driver.

use std::ops::Range;
use std::sync::Arc;

use crate::algorithm::{Buffers, parts};
use crate::communicator::Communicator;
use crate::communicator::typed::after_each_other;
use crate::coordinator::{Kind, SetId, Tensor, Terms};
use crate::engine::driver::Driver;
use crate::engine::entry::{Entry, Target};
use crate::engine::handle::{EngineError, Output};
use crate::error::{Error, Refused};
use crate::reduce;

/// One tensor, ours or zeros.
struct Job<'a> {
    tensor: &'a Tensor,
    entry: Option<Entry>,
    n_bytes: usize,
}

impl Driver {
    pub(super) fn perform(&mut self, set: SetId, terms: Terms, tensors: &[Tensor]) {
        let job = |tensor| {
            let tensor: &Tensor = tensor;
            let entry = tensor.token.and_then(|token| self.entries.remove(&token));
            let elements: u64 = tensor.agreed.shape.iter().product();
            Job { tensor, entry, n_bytes: elements as usize * terms.dtype.size() }
        };
        let mut jobs: Vec<Job<'_>> = tensors.iter().map(job).collect();
        self.observed.begin(terms.kind, tensors);
        self.show_begin(terms.kind, tensors);
        if let Some(tensor) = tensors.first() {
            self.world.shared.peer_table.begin_work(&tensor.agreed.name);
        }
        let Some(Some(communicator)) = self.sets.get_mut(&set) else {
            debug_assert!(false, "only members are told to perform");
            return;
        };
        let fused = &mut self.fused;
        let outcome = match terms.kind {
            Kind::Allreduce => allreduce(communicator, terms, &mut jobs, fused),
            Kind::Adasum => adasum(communicator, terms, &mut jobs, fused),
            Kind::Allgather => jobs.iter_mut().try_for_each(|job| allgather(communicator, terms, job)),
            Kind::Broadcast => jobs.iter_mut().try_for_each(|job| broadcast(communicator, terms, job)),
            Kind::Alltoall => jobs.iter_mut().try_for_each(|job| alltoall(communicator, terms, job)),
            Kind::Reducescatter => jobs.iter_mut().try_for_each(|job| reducescatter(communicator, terms, job, fused)),
            Kind::Join | Kind::Barrier => Ok(()),
        };
        self.observed.end(terms, tensors);
        let n_bytes: usize = tensors.iter().map(|tensor| bytes_of(tensor, terms)).sum();
        self.show_end(tensors, n_bytes as u64);
        match outcome {
            Ok(()) => {}
            // All ranks were refused alike, before anything moved.
            Err(Error::Refused(refused)) => settle(jobs, &Err(EngineError::Failed(refused.to_string().into()))),
            Err(error) => {
                let text: Arc<str> = self.world.shared.peer_table.death().unwrap_or(error).to_string().into();
                settle(jobs, &Err(EngineError::Failed(text.clone())));
                self.end(&text);
                return;
            }
        }
        if let Some(tuning) = self.observed.reduced(terms.kind, tensors, n_bytes)
            && let Some(coordinator) = &mut self.coordinator
        {
            coordinator.tune(tuning);
        }
    }
}

fn bytes_of(tensor: &Tensor, terms: Terms) -> usize {
    tensor.agreed.shape.iter().product::<u64>() as usize * terms.dtype.size()
}

/// Ends what has not ended yet.
fn settle(jobs: Vec<Job<'_>>, result: &Result<(), EngineError>) {
    for mut job in jobs {
        settle_one(&mut job, result.clone());
    }
}

/// Ends one tensor that is ours, with nothing made for it.
fn settle_one(job: &mut Job<'_>, result: Result<(), EngineError>) {
    if let Some(entry) = job.entry.take() {
        entry.slot.settle(result, |_| {});
    }
}

/// Ends one tensor well, with what was made for it.
fn finish(job: &mut Job<'_>, bytes: Option<Vec<u8>>, shape: &[u64], received: &[u64]) {
    let Some(entry) = job.entry.take() else { return };
    let index = entry.index;
    entry.slot.settle(Ok(()), |outcome| {
        let output = &mut outcome.outputs[index];
        *output = Output { bytes: bytes.unwrap_or_default(), shape: shape.to_vec(), received: received.to_vec() };
    });
}

fn allreduce(
    communicator: &mut Communicator,
    terms: Terms,
    jobs: &mut [Job<'_>],
    fused: &mut Vec<u8>,
) -> Result<(), Error> {
    let reduction = communicator.reduction(terms.dtype, terms.op, terms.postscale)?;
    let mut start = 0;
    while start < jobs.len() {
        let end = start + parts::run_length(jobs[start..].iter().map(|job| job.n_bytes));
        let run = &mut jobs[start..end];
        let n_bytes = run.iter().map(|job| job.n_bytes).sum();
        let buffers = match &*run {
            [Job { entry: Some(entry), .. }] => at_home(entry),
            _ => None,
        };
        match buffers {
            Some(mut buffers) => {
                // SAFETY: the caller of the operation said that they hold so many bytes until it is done.
                unsafe {
                    if terms.prescale != 1.0 {
                        buffers.bring(n_bytes);
                        buffers.src = buffers.dst;
                        scale(terms, std::slice::from_raw_parts_mut(buffers.dst, n_bytes))?;
                    }
                    communicator.allreduce_raw(buffers, n_bytes, reduction)?;
                }
                finish_where_wanted(&mut run[0], None);
            }
            None => {
                gather(run, fused);
                scale(terms, fused)?;
                let at = fused.as_mut_ptr();
                // SAFETY: one vector.
                unsafe { communicator.allreduce_raw(Buffers { src: at, dst: at }, n_bytes, reduction)? };
                spread(run, fused);
            }
        }
        start = end;
    }
    Ok(())
}

/// Where an operation can work without company.
fn at_home(entry: &Entry) -> Option<Buffers> {
    match entry.place.output {
        Target::At(dst) => Some(Buffers { src: entry.place.input, dst }),
        Target::All(..) | Target::Fresh => None,
    }
}

/// Copies the inputs of a run behind each other; zeros for those this rank has no input for.
fn gather(run: &[Job<'_>], fused: &mut Vec<u8>) {
    fused.clear();
    for job in run {
        match &job.entry {
            // SAFETY: the caller of the operation said that the input holds so many bytes until it is done.
            Some(entry) => fused.extend_from_slice(unsafe { input_of(entry, job.n_bytes) }),
            None => fused.resize(fused.len() + job.n_bytes, 0),
        }
    }
}

/// Copies the results of a run to where they are wanted.
fn spread(run: &mut [Job<'_>], fused: &[u8]) {
    let mut rest = fused;
    for job in run {
        let (own, after) = rest.split_at(job.n_bytes);
        rest = after;
        finish_where_wanted(job, Some(own));
    }
}

/// `result`: the bytes, unless they are already there.
fn finish_where_wanted(job: &mut Job<'_>, result: Option<&[u8]>) {
    let target = job.entry.as_ref().map(|entry| entry.place.output);
    let agreed = job.tensor.agreed.clone();
    match (target, result) {
        (Some(Target::At(dst)), Some(result)) => {
            // SAFETY: the caller of the operation said that the output holds as many bytes as the input.
            unsafe { std::ptr::copy_nonoverlapping(result.as_ptr(), dst, result.len()) };
            finish(job, None, &agreed.shape, &[]);
        }
        (Some(Target::All(..) | Target::Fresh), Some(result)) => finish(job, Some(result.to_vec()), &agreed.shape, &[]),
        _ => finish(job, None, &agreed.shape, &[]),
    }
}

/// # Safety
/// The entry's input must hold `n_bytes`.
unsafe fn input_of(entry: &Entry, n_bytes: usize) -> &[u8] {
    if n_bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(entry.place.input, n_bytes) }
}

fn scale(terms: Terms, data: &mut [u8]) -> Result<(), Error> {
    let refused = |_| Refused::Undefined { op: "scaling", dtype: terms.dtype.name() };
    Ok(reduce::scale(terms.dtype, terms.prescale, data).map_err(refused)?)
}

fn adasum(
    communicator: &mut Communicator,
    terms: Terms,
    jobs: &mut [Job<'_>],
    fused: &mut Vec<u8>,
) -> Result<(), Error> {
    communicator.check_adasum(terms.dtype)?;
    gather(jobs, fused);
    scale(terms, fused)?;
    let lengths: Vec<usize> = jobs.iter().map(|job| job.n_bytes).collect();
    let ranges = after_each_other(&lengths, 1);
    // SAFETY: one vector, divided by these ranges.
    unsafe { communicator.adasum_raw(fused.as_mut_ptr(), &ranges, terms.dtype)? };
    scale(Terms { prescale: terms.postscale, ..terms }, fused)?;
    spread(jobs, fused);
    Ok(())
}

fn allgather(communicator: &mut Communicator, terms: Terms, job: &mut Job<'_>) -> Result<(), Error> {
    let agreed = job.tensor.agreed.clone();
    let row_bytes = row_bytes(&agreed.shape, terms);
    let parts = row_parts(&agreed.rows, row_bytes);
    let n_bytes = parts.last().map_or(0, |part| part.end);
    let own = parts[communicator.rank()].clone();
    let Some(entry) = &job.entry else { return Ok(()) };
    let mut output: Vec<u8> = Vec::new();
    // Whoever has no room for what all brought takes part nevertheless: the others count on it.
    let (dst, fits) = match entry.place.output {
        Target::All(at, room) if room == n_bytes => (at, true),
        target => {
            output.reserve_exact(n_bytes);
            (output.as_mut_ptr(), !matches!(target, Target::All(..)))
        }
    };
    let buffers = Buffers { src: entry.place.input.wrapping_sub(own.start), dst };
    // SAFETY: there is room for all parts, and the input is the own one, there or apart.
    unsafe { communicator.allgather_raw(buffers, &parts)? };
    if !fits {
        // Only for this rank, which goes on with what was agreed after it.
        let refused = EngineError::Failed(Refused::Room { n_bytes }.to_string().into());
        settle_one(job, Err(refused));
        return Ok(());
    }
    if dst == output.as_mut_ptr() {
        // SAFETY: all parts were written.
        unsafe { output.set_len(n_bytes) };
    }
    finish(job, Some(output), &agreed.shape, &[]);
    Ok(())
}

fn broadcast(communicator: &mut Communicator, terms: Terms, job: &mut Job<'_>) -> Result<(), Error> {
    let root = communicator.world_ranks().iter().position(|rank| *rank == terms.root as usize);
    let root = root.ok_or(Refused::Root { root: terms.root as usize, size: communicator.size() })?;
    let Some(entry) = &job.entry else { return Ok(()) };
    let n_bytes = job.n_bytes;
    let is_root = communicator.rank() == root;
    let mut fresh: Vec<u8> = Vec::new();
    let dst = match entry.place.output {
        Target::At(dst) => dst,
        Target::All(..) | Target::Fresh => {
            fresh.resize(n_bytes, 0);
            fresh.as_mut_ptr()
        }
    };
    // SAFETY: input and output hold so many bytes, said the caller of the operation, in the same place or apart.
    unsafe {
        if is_root {
            Buffers { src: entry.place.input, dst }.bring(n_bytes);
        }
        communicator.broadcast_raw(dst, n_bytes, root)?;
    }
    let shape = job.tensor.agreed.shape.clone();
    finish(job, Some(fresh), &shape, &[]);
    Ok(())
}

fn alltoall(communicator: &mut Communicator, terms: Terms, job: &mut Job<'_>) -> Result<(), Error> {
    let agreed = job.tensor.agreed.clone();
    let row_bytes = row_bytes(&agreed.shape, terms);
    let (sent, received) = (row_parts(&job.tensor.splits, row_bytes), row_parts(&agreed.rows, row_bytes));
    let n_bytes = received.last().map_or(0, |part| part.end);
    let mut output: Vec<u8> = Vec::with_capacity(n_bytes);
    let Some(entry) = &job.entry else { return Ok(()) };
    // SAFETY: the splits are within the input, said the member; the output has room for what comes.
    unsafe {
        communicator.alltoall_raw(entry.place.input, &sent, output.as_mut_ptr(), &received)?;
        output.set_len(n_bytes);
    }
    finish(job, Some(output), &agreed.shape, &agreed.rows);
    Ok(())
}

fn reducescatter(
    communicator: &mut Communicator,
    terms: Terms,
    job: &mut Job<'_>,
    fused: &mut Vec<u8>,
) -> Result<(), Error> {
    let reduction = communicator.reduction(terms.dtype, terms.op, terms.postscale)?;
    let agreed = job.tensor.agreed.clone();
    let row_bytes = row_bytes(&agreed.shape, terms);
    let n_rows = agreed.shape.first().copied().unwrap_or(0) as usize;
    let rows = |member| parts::rows(n_rows, communicator.size(), member);
    let parts: Vec<Range<usize>> =
        (0..communicator.size()).map(rows).map(|rows| rows.start * row_bytes..rows.end * row_bytes).collect();
    let own = rows(communicator.rank());
    let Some(entry) = &job.entry else { return Ok(()) };
    let mut input = entry.place.input;
    if terms.prescale != 1.0 {
        gather(std::slice::from_ref(job), fused);
        scale(terms, fused)?;
        input = fused.as_ptr();
    }
    let mut output: Vec<u8> = Vec::new();
    let out = match entry.place.output {
        Target::At(all) => all.wrapping_add(own.start * row_bytes),
        Target::All(..) | Target::Fresh => {
            output.resize(own.len() * row_bytes, 0);
            output.as_mut_ptr()
        }
    };
    // SAFETY: the input holds all parts, said the caller of the operation; there is room for ours.
    unsafe { communicator.reducescatter_raw(input, out, &parts, reduction)? };
    let mut shape = agreed.shape.clone();
    if let Some(first) = shape.first_mut() {
        *first = own.len() as u64;
    }
    finish(job, Some(output), &shape, &[]);
    Ok(())
}

fn row_bytes(shape: &[u64], terms: Terms) -> usize {
    shape.iter().skip(1).product::<u64>() as usize * terms.dtype.size()
}

fn row_parts(rows: &[u64], row_bytes: usize) -> Vec<Range<usize>> {
    let rows: Vec<usize> = rows.iter().map(|rows| *rows as usize).collect();
    after_each_other(&rows, row_bytes)
}
