//! The Azure resources around Batch AI that its users need: resource groups, storage accounts, subscriptions, tokens.

pub mod group;
pub mod principal;
pub mod server;
pub mod storage_account;
pub mod subscription;
pub mod token;

pub use group::*;
pub use principal::*;
pub use server::*;
pub use storage_account::*;
pub use subscription::*;
pub use token::*;
