//! Attacks from outside on a real server: logins, file modes, leaked secrets, path traversal, links, limits, and the
//! credentials of nodes. The cases are vulnerabilities that products of this kind had.

mod harness;

#[path = "security/audit.rs"]
mod audit;
#[path = "security/authentication.rs"]
mod authentication;
#[path = "security/canary.rs"]
mod canary;
#[path = "security/limits.rs"]
mod limits;
#[path = "security/paths.rs"]
mod paths;
#[path = "security/roles.rs"]
mod roles;
#[path = "security/tls.rs"]
mod tls;
