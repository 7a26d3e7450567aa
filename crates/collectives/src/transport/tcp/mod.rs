//! TCP connections between ranks: [`interfaces`] lists the addresses of this host, [`listener`] accepts, [`dial`] connects, [`socket`]
//! sets options and detects unreachable peers. Every connection is authenticated before anything else is read from it.

pub mod dial;
pub mod interfaces;
pub mod listener;
pub mod socket;
