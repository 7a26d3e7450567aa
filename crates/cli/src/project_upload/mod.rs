//! A project directory as the working directory of a job: its files are selected by [`files`], sent by [`send`], and copied for further jobs by
//! [`replicate`]. [`job_directory`] says where they are on the share.

pub mod files;
pub mod job_directory;
pub mod replicate;
pub mod send;
