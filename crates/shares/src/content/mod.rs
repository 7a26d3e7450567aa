//! Content of files: create, write and resize (`file`), append (`append`), copy on the server (`copy`), reads that never
//! wait for a disk (`nonblocking`), and content that appears at once (`staging`). A reader never blocks a writer.

pub(crate) mod append;
pub(crate) mod copy;
pub(crate) mod file;
pub(crate) mod nonblocking;
pub(crate) mod staging;
