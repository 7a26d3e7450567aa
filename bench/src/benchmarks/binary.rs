//! Size of the release binary, the only file that Corro needs.

use anyhow::Result;

use super::{Scale, Verdict};
use crate::site::corro_binary;
use crate::stats::{Samples, print_heading};

pub const PROMISE: &str = "the release binary is smaller than 40 MB";
const LIMIT_MB: f64 = 40.0;

pub fn run(_: Scale) -> Result<Verdict> {
    let size = std::fs::metadata(corro_binary()?)?.len() as f64 / 1e6;
    let mut sizes = Samples::new("size of corro", "MB");
    sizes.add(size);
    print_heading();
    sizes.print_row();
    Ok(Verdict { met: size < LIMIT_MB, figures: format!("{size:.1} MB (promised: under {LIMIT_MB:.0} MB)") })
}
