//! Code that all Azure resources share: naming one on the command line ([`args`], [`resource_ref`]), and showing, listing, deleting and terminating it
//! ([`actions`]).

pub mod actions;
pub mod args;
pub mod resource_ref;
