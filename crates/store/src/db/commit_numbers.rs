//! Commit numbers of one opened database, stored in SQLite's `application_id`. The first continues the database's number, whose
//! log it may start. The second is random, so that the numbers of two copies of a database soon differ. It never starts a log,
//! because no checkpoint runs before it.

use rusqlite::Connection;

use crate::sqlite_header::next_commit_number;

pub struct CommitNumbers {
    last: u32,
    draw: RandomDraw,
}

/// When the random number is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RandomDraw {
    AfterNext,
    Next,
    Done,
}

impl CommitNumbers {
    /// Numbers of a database whose last one is `last`.
    pub fn new(last: u32) -> Self {
        Self { last, draw: RandomDraw::AfterNext }
    }

    pub fn next(&self) -> u32 {
        match self.draw {
            RandomDraw::Next => draw(),
            RandomDraw::AfterNext | RandomDraw::Done => next_commit_number(self.last),
        }
    }

    /// Records that a commit used `number`. `true` if checkpoints are allowed from now on.
    pub fn record(&mut self, number: u32) -> bool {
        self.last = number;
        let was = self.draw;
        self.draw = if was == RandomDraw::AfterNext { RandomDraw::Next } else { RandomDraw::Done };
        was == RandomDraw::Next
    }

    /// Draws no random number if it would be the next, since a checkpoint lets that commit start a log. `true` if checkpoints
    /// are allowed from now on.
    pub fn skip_draw(&mut self) -> bool {
        let skips = self.draw == RandomDraw::Next;
        if skips {
            self.draw = RandomDraw::Done;
        }
        skips
    }
}

pub fn draw() -> u32 {
    u32::from_be_bytes(crate::encryption::random()).max(1)
}

pub fn store(connection: &Connection, number: u32) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", number as i32)
}
