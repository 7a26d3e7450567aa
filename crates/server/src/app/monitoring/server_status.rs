//! What a server says about itself to every client that is logged in.

use corro_model::arm::ServerStatus;

use crate::app::App;

impl App {
    pub fn server_status(&self) -> ServerStatus {
        ServerStatus { version: env!("CARGO_PKG_VERSION").to_owned(), start_time: self.started }
    }
}
