//! Code that all Azure resources share: naming one on the command line ([`args`], [`resource_ref`]), showing, listing, deleting and terminating it
//! ([`actions`]), and the names of the short commands ([`short_names`]), which are looked up on the server ([`lookup`]) and decided by [`resolve`].

pub mod actions;
pub mod args;
pub mod lookup;
pub mod resolve;
pub mod resource_ref;
pub mod short_names;
