//! What long-running commands write about their work: on standard error, one line each. `CORRO_LOG` chooses how much
//! (`warn` unless set; `info` tells every step of nodes and jobs).

use tracing_subscriber::EnvFilter;

pub fn init() {
    let filter = EnvFilter::try_from_env("CORRO_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    // A second call in one process changes nothing.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).try_init();
}

/// What `--verbose` and `--debug` tell of client commands: each request and its answer, and with `--debug` what was in them.
pub fn tell_requests(in_full: bool) {
    let filter = EnvFilter::new(if in_full { "corro_client=trace" } else { "corro_client=debug" });
    let talk = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let _ = talk.without_time().with_target(false).with_level(false).try_init();
}
