//! Entries of directories: create, remove and list (`directory`), the flat listing of the blob service (`flat_listing`),
//! symbolic links (`links`), renames (`rename`). Works on a link, never on what it leads to.

pub(crate) mod directory;
pub(crate) mod flat_listing;
pub(crate) mod links;
pub(crate) mod rename;
