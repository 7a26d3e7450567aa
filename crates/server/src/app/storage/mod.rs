//! Storage accounts and file servers, and how nodes reach them: volumes, mount tokens, NFS exports and share links.

pub mod accounts;
pub mod exports;
pub mod file_servers;
pub mod mount_tokens;
mod share_links;
pub mod volumes;
