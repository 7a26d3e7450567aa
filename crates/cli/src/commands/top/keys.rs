//! Decodes the keys of a terminal in raw mode.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    Enter,
    Back,
    Refresh,
    Quit,
}

/// The first key in a chunk of input.
pub fn parse(bytes: &[u8]) -> Option<Key> {
    match bytes {
        // In raw mode Ctrl-C and Ctrl-D are bytes.
        [b'q' | b'Q' | 3 | 4, ..] => Some(Key::Quit),
        [b'k', ..] | [0x1b, b'[' | b'O', b'A', ..] => Some(Key::Up),
        [b'j', ..] | [0x1b, b'[' | b'O', b'B', ..] => Some(Key::Down),
        [b'\r' | b'\n', ..] | [0x1b, b'[' | b'O', b'C', ..] => Some(Key::Enter),
        [0x1b] | [0x7f | 8, ..] | [0x1b, b'[' | b'O', b'D', ..] => Some(Key::Back),
        [b'r', ..] => Some(Key::Refresh),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_both_cursor_modes_are_decoded() {
        for (bytes, key) in [
            (&b"q"[..], Some(Key::Quit)),
            (b"\x03", Some(Key::Quit)),
            (b"\x1b[A", Some(Key::Up)),
            (b"\x1bOB", Some(Key::Down)),
            (b"\r", Some(Key::Enter)),
            (b"\x1b", Some(Key::Back)),
            (b"\x1b[5~", None),
            (b"x", None),
            (b"", None),
        ] {
            assert_eq!(parse(bytes), key, "{bytes:?}");
        }
    }
}
