//! Negotiation with the kernel at the mount: capabilities, largest requests, granularity of times.

use std::time::Duration;

use fuser::{InitFlags, KernelConfig};

/// Configures the connection. What an older kernel lacks is left out.
pub(super) fn negotiate(config: &mut KernelConfig, has_write_cache: bool) {
    for capability in [
        InitFlags::FUSE_ATOMIC_O_TRUNC,
        InitFlags::FUSE_AUTO_INVAL_DATA,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_ASYNC_DIO,
    ] {
        // Older kernels lack some of these.
        let _ = config.add_capabilities(capability);
    }
    if has_write_cache && config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).is_err() {
        tracing::warn!("this kernel does not support FUSE writeback caching: --write-cache has no effect");
    }
    let _ = config.set_max_write(1 << 20);
    let _ = config.set_max_readahead(u32::MAX).or_else(|most| config.set_max_readahead(most));
    let _ = config.set_max_background(64);
    let _ = config.set_time_granularity(Duration::from_nanos(1));
}
