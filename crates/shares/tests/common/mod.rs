//! One fresh share per test.

// Each test file compiles this one for itself and uses its own part of it.
#![allow(dead_code)]

use std::path::PathBuf;

use corro_shares::{Share, ShareError, SharePath, Shares};
use tempfile::TempDir;

pub struct Bench {
    pub dir: TempDir,
    pub shares: Shares,
    pub share: Share,
}

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let shares = Shares::open(dir.path().join("root")).expect("a root");
        let share = shares.create_share("acc", "myshare").expect("a share");
        Bench { dir, shares, share }
    }

    /// Where the share lies, for looking at it behind the library's back.
    pub fn host(&self) -> PathBuf {
        self.shares.host_path("acc", "myshare").expect("good names")
    }
}

pub fn p(text: &str) -> SharePath {
    SharePath::parse(text).expect("a good path")
}

/// The service's code of a result; `ok` for success.
pub fn code<T>(result: Result<T, ShareError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => error.code(),
    }
}
