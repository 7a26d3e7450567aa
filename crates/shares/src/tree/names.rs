//! Valid names of accounts and shares, checked before one becomes a directory. The rules are in `model`. Neither allows
//! a dot, so hidden names in an account's directory are free for internal use.

use corro_model::names::{FILE_SERVERS, JOB_SHARED, NameKind, check_name};

/// Lower-case letters and digits; or one of the pseudo accounts, whose names no account can have.
pub fn is_account_name(name: &str) -> bool {
    matches!(name, FILE_SERVERS | JOB_SHARED) || check_name(NameKind::StorageAccount, name).is_ok()
}

/// Lower-case letters, digits and single dashes, none at an end.
pub fn is_share_name(name: &str) -> bool {
    check_name(NameKind::Share, name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let (s24, s25, s63, s64) = ("a".repeat(24), "a".repeat(25), "a".repeat(63), "a".repeat(64));
        for (name, account, share) in [
            ("abc", true, true),
            ("a1b2", true, true),
            ("my-share", false, true),
            (&s24, true, true),
            (&s25, false, true),
            (&s63, false, true),
            (&s64, false, false),
            ("ab", false, false),
            ("", false, false),
            ("-abc", false, false),
            ("abc-", false, false),
            ("a--b", false, false),
            ("Abc", false, false),
            ("..", false, false),
            ("...", false, false),
            (".trash-1", false, false),
            ("a/b", false, false),
            ("a_b", false, false),
            ("ábc", false, false),
            ("abc\n", false, false),
        ] {
            assert_eq!(is_account_name(name), account, "account {name:?}");
            assert_eq!(is_share_name(name), share, "share {name:?}");
        }
    }
}
