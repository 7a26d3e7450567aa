//! `corro mount` on a real `corro files`, through the kernel: the file system as programs see it, the files on the server's
//! disk, and the death of the server, the network or the mount process. Skipped with a notice without FUSE.

mod harness;

#[path = "mounting/concurrent_writes.rs"]
mod concurrent_writes;
#[path = "mounting/errors.rs"]
mod errors;
#[path = "mounting/files.rs"]
mod files;
#[path = "mounting/fixture.rs"]
mod fixture;
#[path = "mounting/links.rs"]
mod links;
#[path = "mounting/ordinary_user.rs"]
mod ordinary_user;
#[path = "mounting/outages.rs"]
mod outages;
