//! Filter for untrusted text on a terminal: passes text, colours and the sequences of progress bars, and drops all other control sequences. Output of
//! jobs goes through it if standard output is a terminal, so that a job cannot write to the clipboard (OSC 52), set the title, make the terminal send
//! input, or overwrite lines of others.
//!
//! Passed: printable UTF-8; newline, carriage return, tab, backspace; SGR (`CSI … m`); erase in line (`CSI K`), cursor column (`CSI G`), and
//! cursor up (`CSI A`), at most by the number of lines passed before. Dropped: all other sequences of ECMA-48, in 7-bit form and as C1
//! characters of UTF-8; an invalid byte becomes U+FFFD. A newline ends every sequence, so an incomplete one drops at most its line.
//!
//! Streaming: the result does not depend on how the text is split into chunks.

use std::io::{self, IsTerminal, Write};

/// Longer control sequences are dropped; those that are passed are much shorter.
const MAX_SEQUENCE_BYTES: usize = 64;
const ESC: u8 = 0x1b;
/// Resets colours and other attributes.
const RESET: &[u8] = b"\x1b[0m";

#[derive(Debug, Default)]
pub struct TerminalFilter {
    state: State,
    /// Bytes of an incomplete character or control sequence.
    pending: Vec<u8>,
    /// Passed lines above the cursor.
    lines_above: u32,
    /// Whether attributes are set.
    is_coloured: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// Inside a UTF-8 character, with the number of missing bytes.
    Character {
        missing: u8,
    },
    Escape,
    /// After `ESC` and an intermediate byte: designates a character set, for instance.
    EscapeIntermediate,
    Csi,
    /// A control string (OSC, DCS, SOS, PM, APC), which is dropped up to its end.
    String,
}

impl TerminalFilter {
    /// Filters the next chunk and appends the result to `out`.
    pub fn filter(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        for &byte in chunk {
            self.process_byte(byte, out);
        }
    }

    /// Bytes to write after the last chunk, which reset the attributes.
    pub fn finish(&mut self) -> &'static [u8] {
        self.pending.clear();
        self.state = State::Text;
        if std::mem::take(&mut self.is_coloured) { RESET } else { b"" }
    }

    fn process_byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if byte == b'\n' {
            self.abandon(out);
            self.lines_above = self.lines_above.saturating_add(1);
            return out.push(byte);
        }
        match self.state {
            State::Text => self.process_text(byte, out),
            State::Character { missing } => match byte {
                0x80..=0xbf => self.process_continuation(byte, missing, out),
                _ => {
                    self.abandon(out);
                    self.process_text(byte, out);
                }
            },
            State::Escape => match byte {
                b'[' => self.enter(State::Csi),
                b']' | b'P' | b'X' | b'^' | b'_' => self.enter(State::String),
                b' '..=b'/' => self.enter(State::EscapeIntermediate),
                // The end of a control string, or a terminal function that is dropped.
                b'0'..=b'~' => self.enter(State::Text),
                _ => self.restart(byte, out),
            },
            State::EscapeIntermediate => match byte {
                b' '..=b'/' => {}
                b'0'..=b'~' => self.enter(State::Text),
                _ => self.restart(byte, out),
            },
            State::Csi => match byte {
                b' '..=b'?' => {
                    // One byte beyond the limit marks the sequence as too long.
                    if self.pending.len() <= MAX_SEQUENCE_BYTES {
                        self.pending.push(byte);
                    }
                }
                b'@'..=b'~' => {
                    let parameters = std::mem::take(&mut self.pending);
                    self.enter(State::Text);
                    self.finish_csi(&parameters, byte, out);
                }
                _ => self.restart(byte, out),
            },
            State::String => match byte {
                ESC => self.enter(State::Escape),
                0x07 | 0x18 | 0x1a => self.enter(State::Text),
                // ST as a C1 character.
                0x9c if self.pending == [0xc2] => self.enter(State::Text),
                _ => {
                    self.pending.clear();
                    self.pending.extend((byte == 0xc2).then_some(byte));
                }
            },
        }
    }

    fn process_text(&mut self, byte: u8, out: &mut Vec<u8>) {
        let character = |filter: &mut Self, missing| {
            filter.enter(State::Character { missing });
            filter.pending.push(byte);
        };
        match byte {
            b' '..=b'~' | b'\r' | b'\t' | 0x08 => out.push(byte),
            ESC => self.enter(State::Escape),
            0x00..0x20 | 0x7f => {}
            0xc2..=0xdf => character(self, 1),
            0xe0..=0xef => character(self, 2),
            0xf0..=0xf4 => character(self, 3),
            0x80..0xc2 | 0xf5.. => push_replacement(out),
        }
    }

    fn process_continuation(&mut self, byte: u8, missing: u8, out: &mut Vec<u8>) {
        self.pending.push(byte);
        if missing > 1 {
            self.state = State::Character { missing: missing - 1 };
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        self.enter(State::Text);
        match std::str::from_utf8(&pending) {
            Ok("\u{9b}") => self.enter(State::Csi),
            Ok("\u{90}" | "\u{98}" | "\u{9d}" | "\u{9e}" | "\u{9f}") => self.enter(State::String),
            Ok(text) if text.chars().any(char::is_control) => {}
            Ok(text) => out.extend_from_slice(text.as_bytes()),
            Err(_) => push_replacement(out),
        }
    }

    fn finish_csi(&mut self, parameters: &[u8], last: u8, out: &mut Vec<u8>) {
        let is_plain = |also: &[u8]| parameters.iter().all(|byte| byte.is_ascii_digit() || also.contains(byte));
        if parameters.len() > MAX_SEQUENCE_BYTES {
            return;
        }
        match last {
            // A private marker would make it another function.
            b'm' if is_plain(b";:") => {
                self.is_coloured = !matches!(parameters, b"" | b"0");
            }
            b'K' | b'G' if is_plain(b"") => {}
            b'A' if is_plain(b"") => {
                let wanted: u32 = std::str::from_utf8(parameters).ok().and_then(|n| n.parse().ok()).unwrap_or(1);
                let lines = wanted.max(1).min(self.lines_above);
                self.lines_above -= lines;
                if lines > 0 {
                    out.extend_from_slice(format!("\x1b[{lines}A").as_bytes());
                }
                return;
            }
            _ => return,
        }
        out.extend_from_slice(b"\x1b[");
        out.extend_from_slice(parameters);
        out.push(last);
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.pending.clear();
    }

    /// Ends a control sequence at a byte that cannot be part of it.
    fn restart(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.enter(State::Text);
        self.process_text(byte, out);
    }

    fn abandon(&mut self, out: &mut Vec<u8>) {
        if matches!(self.state, State::Character { .. }) {
            push_replacement(out);
        }
        self.enter(State::Text);
    }
}

fn push_replacement(out: &mut Vec<u8>) {
    out.extend_from_slice("\u{fffd}".as_bytes());
}

/// Writer for untrusted text: filtered if it is a terminal, unchanged otherwise.
#[derive(Debug)]
pub struct FilteredWriter<W: Write> {
    out: W,
    filter: Option<TerminalFilter>,
}

impl<W: Write + IsTerminal> FilteredWriter<W> {
    pub fn new(out: W) -> FilteredWriter<W> {
        let filter = out.is_terminal().then(TerminalFilter::default);
        FilteredWriter { out, filter }
    }
}

impl<W: Write> Write for FilteredWriter<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let Some(filter) = &mut self.filter else { return self.out.write(piece) };
        let mut shown = Vec::with_capacity(piece.len());
        filter.filter(piece, &mut shown);
        self.out.write_all(&shown)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Drop for FilteredWriter<W> {
    fn drop(&mut self) {
        let end = self.filter.as_mut().map_or(&b""[..], TerminalFilter::finish);
        if !end.is_empty() {
            let _ = self.out.write_all(end).and_then(|()| self.out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use corro_test_support::rng::SplitMix64;

    use super::*;

    fn passed(text: &[u8]) -> Vec<u8> {
        let (mut filter, mut out) = (TerminalFilter::default(), Vec::new());
        filter.filter(text, &mut out);
        out
    }

    #[test]
    fn what_is_passed_and_what_is_dropped() {
        let check = |text: &str, expected: &str| {
            assert_eq!(String::from_utf8(passed(text.as_bytes())).expect("UTF-8"), expected, "{text:?}");
        };
        for unchanged in [
            "plain, ünïcode 日本 🦀\ttab\n",
            "\r 10/10 [====]\x08\x08\x1b[K\r",
            "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mrgb\x1b[m \x1b[4:3mcurly\x1b[m",
            "bar 1\nbar 2\x1b[1A\r\x1b[2Kbar 1 again\x1b[5G",
        ] {
            check(unchanged, unchanged);
        }
        for (text, expected) in [
            // The clipboard, a title, a hyperlink, a notification; ended by BEL, ST, the C1 form of ST, or not at all.
            ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
            ("a\x1b]0;title\x1b\\b", "ab"),
            ("a\u{9d}0;title\u{9c}b", "ab"),
            ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
            ("a\x1b]0;no end\nb", "a\nb"),
            ("a\x1b]0;other end\x18b", "ab"),
            // Queries, which the terminal answers as if they were typed; modes; clearing; other screens; reports of the mouse.
            ("a\x1b[6n\x1b[c\x1b[>c\x1b[=c\x1b[0x\x1b[?1$p\x1b[>q\x1b[21tb", "ab"),
            ("a\u{9b}6nb\u{9b}31mc", "ab\x1b[31mc"),
            ("a\x1b[?1049h\x1b[?1000h\x1b[?25l\x1b[2J\x1b[H\x1b[10;10Hb\x1b[1;2rc", "abc"),
            ("a\x1b[>4;2mb\x1b[?4mc\x1b[1 mb", "abcb"),
            ("a\x1bP$q\"p\x1b\\b\x1b_G\x1b\\c\x1b^x\x1b\\d\x1bXx\x1b\\e", "abcde"),
            ("a\x1bcb\x1b7\x1b8c\x1b(0d\x1b#8e\x1bMf\x1b%Gg", "abcdefg"),
            ("a\u{85}b\u{84}c\u{8d}d\u{7f}e\0f\x07g\x0bh\x0ci\x0ej", "abcdefghij"),
            // A sequence inside of a string, or of another sequence, begins anew.
            ("a\x1b]0;\x1b[31mred", "a\x1b[31mred"),
            ("a\x1b[12\x1b[31mred", "a\x1b[31mred"),
            ("a\x1b[1\r2", "a\r2"),
            // Not above what was passed.
            ("\x1b[Aa\n\x1b[99Ab\x1b[Ac", "a\n\x1b[1Abc"),
            ("a\n\n\x1b[Ab\x1b[0Ac\x1b[Ad", "a\n\n\x1b[1Ab\x1b[1Acd"),
            (&format!("a\x1b[{}mb", "1;".repeat(40)), "ab"),
        ] {
            check(text, expected);
        }
        assert_eq!(passed(b"a\x9b6n\xffb\xc3(\xe2\x82"), "a\u{fffd}6n\u{fffd}b\u{fffd}(".as_bytes());
        assert_eq!(
            passed(b"\xe2\x82\n\xed\xa0\x80x"),
            "\u{fffd}\n\u{fffd}x".as_bytes(),
            "surrogates are no characters"
        );
    }

    #[test]
    fn colours_end_with_the_text() {
        let (mut filter, mut out) = (TerminalFilter::default(), Vec::new());
        filter.filter(b"\x1b[31mred", &mut out);
        assert_eq!((filter.finish(), filter.finish()), (RESET, &b""[..]));
        filter.filter(b"\x1b[31mred\x1b[0m", &mut out);
        assert_eq!(filter.finish(), b"");
    }

    /// Nothing but text, four control characters and four control sequences, by a reading of the output that shares nothing with the filter.
    fn is_harmless(output: &str) -> bool {
        let mut rest = output;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c == '\x1b' {
                let Some(csi) = rest.strip_prefix('[') else { return false };
                let end = csi.find(|c: char| !(c.is_ascii_digit() || c == ';' || c == ':'));
                let Some(end) = end.filter(|end| "mKGA".contains(&csi[*end..=*end])) else { return false };
                rest = &csi[end + 1..];
            } else if c.is_control() && !"\n\r\t\x08".contains(c) {
                return false;
            }
        }
        true
    }

    /// Text, controls, beginnings and ends of sequences, C1 characters and arbitrary bytes, in any order.
    fn any_text(rng: &mut SplitMix64) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..rng.below(30) {
            match rng.below(7) {
                0 => text.extend([(0x20 + rng.below(0x60)) as u8]),
                1 => text.extend([rng.below(0x20) as u8]),
                2 => text.extend(
                    rng.pick(["\x1b[", "\x1b]", "\x1bP", "\x1b_", "\x1b\\", "\x1b(", "\x1b", "\x07", "\n"])
                        .expect("not empty")
                        .bytes(),
                ),
                3 => text
                    .extend(rng.pick(["1", "31;1", "?25", ">", ":", "$", " ", "99", ";"]).expect("not empty").bytes()),
                4 => text
                    .extend(rng.pick(["m", "K", "A", "G", "n", "c", "h", "J", "t", "H"]).expect("not empty").bytes()),
                5 => text.extend([0xc2, (0x80 + rng.below(0x20)) as u8]),
                _ => text.extend([rng.below(256) as u8]),
            }
        }
        text
    }

    #[test]
    fn cuts_change_nothing_and_nothing_harmful_passes() {
        for seed in 0..20_000 {
            let mut rng = SplitMix64::new(seed);
            let text = any_text(&mut rng);
            let whole = passed(&text);
            let (mut filter, mut out, mut rest) = (TerminalFilter::default(), Vec::new(), &text[..]);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + rng.index(rest.len()));
                filter.filter(piece, &mut out);
                rest = after;
            }
            assert_eq!(out, whole, "seed {seed}");
            let whole = String::from_utf8(whole).expect("the filter writes UTF-8");
            assert!(is_harmless(&whole), "seed {seed}: {whole:?} of {text:?}");
            assert_eq!(passed(whole.as_bytes()), whole.as_bytes(), "seed {seed}: filtered twice it stays what it is");
        }
    }
}
