//! Texts of the scope `corro_elastic` on the launcher's rendezvous server, with which the engine in a process asks for its place.

use crate::action::{Generation, Member};

/// Answer to a process that is not part of the training any more.
pub const DISMISSED: &str = "dismissed";

/// Bits of the answer to `update.<generation>`.
pub const REMOVED: u8 = 1;
pub const ADDED: u8 = 2;

/// `GENERATION RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE` in decimal, separated by single blanks.
pub fn place_text(generation: Generation, member: &Member, size: usize) -> String {
    let Member { rank, local_rank, local_size, cross_rank, cross_size, .. } = member;
    format!("{generation} {rank} {size} {local_rank} {local_size} {cross_rank} {cross_size}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Change;

    #[test]
    fn texts_are_those_of_the_protocol() {
        let members = crate::ranks::assign(&[(4, "a"), (7, "b")]);
        assert_eq!(place_text(3, &members[1], 2), "3 1 2 0 1 1 2");
        assert_eq!((Change::Removed as u8, Change::Added as u8, Change::Both as u8), (REMOVED, ADDED, REMOVED | ADDED));
    }
}
