//! Those who make nodes, each behind the trait [`corro_server::Provider`].

pub mod joined;
pub mod local;
