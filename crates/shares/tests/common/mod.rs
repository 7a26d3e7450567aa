//! Fixture: one fresh share per test.

// Each test file compiles this module for itself and uses a part of it.
#![allow(dead_code)]

use std::path::PathBuf;

use corro_shares::{Share, ShareError, SharePath, Shares};
use tempfile::TempDir;

pub struct Fixture {
    pub dir: TempDir,
    pub shares: Shares,
    pub share: Share,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let shares = Shares::open(dir.path().join("root")).expect("a root");
        let share = shares.create_share("acc", "myshare").expect("a share");
        Fixture { dir, shares, share }
    }

    /// Path of the share on disk.
    pub fn host(&self) -> PathBuf {
        self.shares.host_path("acc", "myshare").expect("good names")
    }
}

pub fn p(text: &str) -> SharePath {
    SharePath::parse(text).expect("a good path")
}

/// Error code of a result; `ok` for success.
pub fn code<T>(result: Result<T, ShareError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => error.code(),
    }
}
