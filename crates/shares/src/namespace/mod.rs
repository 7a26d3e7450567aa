//! Whole shares and containers: the root of all accounts and handles on single trees (`root`), creation, listing and
//! deletion (`share_admin`), read-only copies (`snapshots`) and what changed since one (`snapshot_diff`).

pub(crate) mod root;
pub(crate) mod share_admin;
pub(crate) mod snapshot_diff;
pub(crate) mod snapshots;
