//! The short commands (`corro job`, `corro cluster`, `corro share`) on a real server: how names are found, what people see, and what programs get.

mod harness;

#[path = "short_commands/completion.rs"]
mod completion;
#[path = "short_commands/logs.rs"]
mod logs;
#[path = "short_commands/names.rs"]
mod names;
#[path = "short_commands/shares.rs"]
mod shares;
