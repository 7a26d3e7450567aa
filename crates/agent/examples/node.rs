//! A node as a separate process, for the tests of this crate: `node guard` runs a guard, and `node SERVER ROOT ADDRESS
//! TOKEN` runs an agent whose guards are started from this executable.

use corro_agent::{AgentConfig, PythonCacheConfig};
use corro_launch::process::Launcher;
use corro_model::Secret;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|word| word == "guard").is_some() {
        corro_launch::guard::run();
    }
    let mut text = move || args.next().and_then(|word| word.into_string().ok()).unwrap_or_default();
    let config = AgentConfig {
        server: text(),
        server_file: None,
        trust: Default::default(),
        root: text().into(),
        address: Some(text()),
        join_token: Secret::new(text()),
        guard: Launcher::this_executable(),
        ports: None,
        heartbeat: AgentConfig::HEARTBEAT,
        engine_sockets: Vec::new(),
        rejoin: false,
        isolation: Default::default(),
        remote_shares: false,
        python_cache: PythonCacheConfig::from_environment(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let end = runtime.block_on(corro_agent::run(config))?;
    println!("{end:?}");
    Ok(())
}
