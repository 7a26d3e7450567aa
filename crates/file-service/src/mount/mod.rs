//! Extensions for mounts on other machines, which the Azure service has no request for: `comp=corro-…` parameters and `x-corro-…`
//! headers, signed and authorized like all other requests. The client is `crates/mount`.

pub(crate) mod append;
pub(crate) mod mount_ops;
pub(crate) mod multi_range_write;
