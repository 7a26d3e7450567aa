//! What long-running commands write about their work: on standard error, one line each. `CORRO_LOG` chooses how much
//! (`warn` unless set; `info` tells every step of nodes and jobs).

use tracing_subscriber::EnvFilter;

pub fn init() {
    let filter = EnvFilter::try_from_env("CORRO_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    // A second call in one process changes nothing.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).try_init();
}
