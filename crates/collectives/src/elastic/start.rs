//! Starts the engine of an elastic process in the next generation that can be connected.

use super::error::{ElasticStartError, PlaceError};
use super::process::ElasticProcess;
use crate::engine::{Engine, StartError};
use crate::options::Options;
use crate::settings::Settings;
use crate::transport::connect::error::ConnectError;
use crate::world::World;

/// Generations in a row that may fail to connect although no member is known to have died.
const MAX_UNEXPLAINED_FAILURES: u32 = 3;

/// Waits for a place in a generation later than `after` and connects with its other members. If a member dies meanwhile, all ask for another
/// generation. Returns the generation with its engine. `interrupted` is called while the driver is asked; `attempted` gets each generation
/// before it is connected: it must not be asked for again.
///
/// # Errors
/// When there is no place for this process, or the members cannot connect for another reason than the end of one of them.
pub fn start_generation(
    process: &ElasticProcess,
    after: u64,
    settings: &Settings,
    interrupted: &dyn Fn() -> bool,
    attempted: &dyn Fn(u64),
) -> Result<(u64, Engine), ElasticStartError> {
    let options = Options::from_settings(settings).map_err(StartError::from)?;
    let mut after = after;
    let mut n_unexplained = 0;
    loop {
        let (generation, launch) = process.next_launch(after, interrupted)?;
        attempted(generation);
        let world = World::connect_round(&launch, &options, generation);
        let error = match world.map_err(StartError::from).and_then(|world| Engine::in_world(world, settings)) {
            Ok(engine) => return Ok((generation, engine)),
            Err(StartError::Connect(error)) => error,
            Err(error) => return Err(error.into()),
        };
        n_unexplained = if error.is_end_of_peer() { 0 } else { n_unexplained + 1 };
        if interrupted() {
            return Err(PlaceError::Interrupted.into());
        }
        if !error.may_pass() || n_unexplained == MAX_UNEXPLAINED_FAILURES {
            return Err(StartError::Connect(error).into());
        }
        after = generation;
    }
}

impl ConnectError {
    /// True if a member is known to have ended.
    fn is_end_of_peer(&self) -> bool {
        use crate::bootstrap::rendezvous::error::RendezvousError as R;
        use crate::error::Error as E;
        match self {
            ConnectError::Broken(error) => matches!(error, E::Died { .. } | E::Left { .. } | E::Lost { .. }),
            ConnectError::Rendezvous(error) => {
                matches!(error, R::PeerFailed { .. } | R::Left { .. } | R::Rank0Lost(_) | R::Aborted { .. })
            }
            _ => false,
        }
    }

    /// True if another generation may connect: nothing is wrong with this process or its settings.
    fn may_pass(&self) -> bool {
        use crate::bootstrap::rendezvous::error::RendezvousError as R;
        match self {
            ConnectError::Missing { .. }
            | ConnectError::Unreachable { .. }
            | ConnectError::SharedMemory(_)
            | ConnectError::Network(_)
            | ConnectError::Rendezvous(R::Missing { .. } | R::NoRank0 { .. })
            | ConnectError::Broken(_) => true,
            error => error.is_end_of_peer(),
        }
    }
}
