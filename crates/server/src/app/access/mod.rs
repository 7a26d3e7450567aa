//! Authentication and authorisation: the installation's identity and administrator, principals with their roles, access
//! tokens, and the caller of a request.

pub mod caller;
pub mod installation;
pub mod principals;
pub mod tokens;
