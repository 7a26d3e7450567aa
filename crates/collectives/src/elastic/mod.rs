//! A process of an elastic job: a job whose ranks change while it runs. The launcher's driver decides who is a member of which *generation*, a
//! world of connected ranks, numbered from 1. A process asks it over HTTP for its place in the next generation ([`ElasticProcess`]), connects with
//! the other members ([`start_generation`]), and asks again when a member has died or the driver has announced a change. The process itself goes
//! on, so its memory and what it has imported stay.
//!
//! Variables: `HOROVOD_ELASTIC=1` and `CORRO_ELASTIC_PROCESS`, the number of this process, from 1 and never reused, beside the variables of the
//! launcher's key-value server. The requests:
//!
//! - `GET /corro_elastic/place.PROCESS.AFTER?wait=SECONDS`: the place in a generation later than AFTER, as
//!   `GENERATION RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE [ADDR:PORT]`, where the last is another key-value server for this
//!   generation; or `dismissed`. Status 404: ask again; 410: the job is over, the body says why.
//! - `GET /corro_elastic/update.GENERATION?wait=SECONDS`: `1`, `2` or `3` ([`HostsUpdate`]) once members shall ask for another generation.
//!
//! Ranks of generation G meet in the round G of the rendezvous.

mod driver_client;
mod error;
mod process;
mod start;
#[cfg(test)]
mod tests;

pub use driver_client::HostsUpdate;
pub use error::{ElasticStartError, PlaceError};
pub use process::ElasticProcess;
pub use start::start_generation;
