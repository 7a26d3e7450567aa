//! The server's side of the Azure Files and Blob endpoints: account keys, the audit log of file operations, and the file
//! service on a port of its own.

pub mod account_keys;
pub mod audit_log;
pub mod standalone;
