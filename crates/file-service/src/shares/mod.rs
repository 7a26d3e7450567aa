//! Operations on whole shares and on the settings of an account's file service.

pub(crate) mod access_policies;
pub(crate) mod listing;
pub(crate) mod permissions;
pub(crate) mod quota;
pub(crate) mod service_properties;
pub(crate) mod share_ops;
