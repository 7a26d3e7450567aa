//! State of an elastic training: what every process keeps in memory from one generation to the next, and the agreement
//! at the beginning of a generation about who sends it.

use corro_collectives::optimizer::broadcast_parameters;
use corro_collectives::{Engine, SetId};

use crate::network::Weights;
use crate::train::TrainError;

pub struct State {
    pub weights: Weights,
    /// Of RMSprop.
    pub accumulators: Weights,
    pub position: Position,
}

/// How far a training has come. Later positions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Completed steps.
    pub iterations: u64,
    /// Completed epochs.
    pub epoch: usize,
    /// Images of the current epoch that are used.
    pub image: usize,
}

/// Gives all ranks the state of the one that is ahead, unless all are equal. False if no rank has a state. Collective over
/// all ranks; all make the same decision.
pub fn synchronize(engine: &Engine, state: &mut Option<State>) -> Result<bool, TrainError> {
    let own = state.as_ref().map(|state| state.position);
    let all = engine.allgather("positions", &encode(own), SetId::GLOBAL).map_err(TrainError::Ranks)?;
    let positions: Vec<Option<Position>> =
        all.chunks_exact(4).map(|words| decode(words.try_into().expect("four words"))).collect();
    let Some((leader, position)) = choose_leader(&positions) else { return Ok(false) };
    if positions.iter().all(|other| *other == Some(position)) {
        return Ok(true);
    }
    let leads = engine.rank_info().rank == leader;
    // A state that is received partly is none.
    let mut sent = match state.take() {
        Some(own) if leads => own,
        _ => State { weights: Weights::zeros(), accumulators: Weights::zeros(), position },
    };
    let outcome = broadcast_parameters(engine, &mut sent.weights.slices_mut(), leader as u32)
        .and_then(|()| broadcast_parameters(engine, &mut sent.accumulators.slices_mut(), leader as u32));
    if leads || outcome.is_ok() {
        *state = Some(sent);
    }
    outcome.map_err(TrainError::Ranks)?;
    Ok(true)
}

/// The rank that is ahead, the lowest among equals.
fn choose_leader(positions: &[Option<Position>]) -> Option<(usize, Position)> {
    let with_state = positions.iter().enumerate().filter_map(|(rank, position)| Some((rank, (*position)?)));
    with_state.reduce(|ahead, other| if other.1 > ahead.1 { other } else { ahead })
}

fn encode(position: Option<Position>) -> [i64; 4] {
    position.map_or([0; 4], |Position { iterations, epoch, image }| [1, iterations as i64, epoch as i64, image as i64])
}

fn decode([has_state, iterations, epoch, image]: [i64; 4]) -> Option<Position> {
    (has_state != 0).then_some(Position { iterations: iterations as u64, epoch: epoch as usize, image: image as usize })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(iterations: u64, epoch: usize, image: usize) -> Option<Position> {
        Some(Position { iterations, epoch, image })
    }

    fn check(positions: &[Option<Position>], expected: Option<usize>) {
        assert_eq!(choose_leader(positions).map(|(rank, _)| rank), expected, "{positions:?}");
        assert!(positions.iter().all(|position| decode(encode(*position)) == *position));
    }

    #[test]
    fn the_rank_that_is_ahead_leads() {
        check(&[None, None], None);
        check(&[position(0, 0, 0), None], Some(0));
        check(&[None, position(7, 1, 32), position(7, 1, 32)], Some(1));
        check(&[position(7, 1, 32), position(8, 1, 64), position(7, 1, 32)], Some(1));
        // One rank has completed the epoch, whose validation failed on the others.
        check(&[position(9, 1, 160), position(9, 2, 0), None], Some(1));
    }
}
