//! Reader for TensorBoard event files (TFRecord framing: length, CRC of the length, payload, CRC of the payload). The
//! payload is an `Event` protocol buffer, of which only time, step and scalars are read. Files grow while they are
//! read: a partial record waits for more bytes. A wrong CRC stops reading the file.

use corro_model::metrics::{Axis, Source};
use crc::{CRC_32_ISCSI, Crc, Table};

use crate::curves::{CurveKey, Curves};

/// Maximum record length in bytes. Longer records (images, graphs) are skipped without buffering.
const MAX_RECORD_LEN: usize = 1 << 20;

#[derive(Clone, Debug, Default)]
pub struct EventFileReader {
    partial: Vec<u8>,
    /// Bytes of an oversized record that are still to be skipped.
    skip_remaining: u64,
    /// A CRC was wrong; nothing after it is read.
    pub damaged: bool,
    /// Prefix of the metric names: the directory of the run, if there are several.
    run: String,
}

/// One scalar summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    pub tag: String,
    pub step: i64,
    /// Seconds since 1970.
    pub wall_time: f64,
    pub value: f64,
}

impl EventFileReader {
    pub fn for_run(run: &str) -> EventFileReader {
        EventFileReader { run: run.to_owned(), ..EventFileReader::default() }
    }

    /// Adds the next bytes of the file.
    pub fn push(&mut self, bytes: &[u8], curves: &mut Curves) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.damaged {
            let passed = (self.skip_remaining.min(rest.len() as u64)) as usize;
            self.skip_remaining -= passed as u64;
            rest = &rest[passed..];
            // Bounds the buffer regardless of the size of a read.
            let (piece, later) = rest.split_at(rest.len().min(64 * 1024));
            self.partial.extend_from_slice(piece);
            rest = later;
            let run = self.run.clone();
            self.drain(|scalar| {
                let name = if run.is_empty() { scalar.tag } else { format!("{run}/{}", scalar.tag) };
                let time =
                    (scalar.wall_time.is_finite() && scalar.wall_time > 1e8).then_some(scalar.wall_time * 1000.0);
                let key = CurveKey { name, source: Source::Events, axis: Axis::Step, rank: None };
                let point = (scalar.step as f64, time.map(|time| time as i64), scalar.value);
                curves.add(key, None, point, false);
            });
        }
    }

    /// Calls `each` with the scalars of all complete records.
    fn drain(&mut self, mut each: impl FnMut(Scalar)) {
        let mut at = 0;
        while let Some(header) = self.partial.get(at..at + 12) {
            let len = u64::from_le_bytes(header[..8].try_into().expect("8 bytes"));
            if mask_crc(crc32c(&header[..8])) != u32::from_le_bytes(header[8..12].try_into().expect("4 bytes")) {
                self.damaged = true;
                break;
            }
            let whole = len.saturating_add(16);
            let there = (self.partial.len() - at) as u64;
            if len > MAX_RECORD_LEN as u64 {
                self.skip_remaining = whole.saturating_sub(there);
                at += whole.min(there) as usize;
                continue;
            }
            if there < whole {
                break;
            }
            let (start, end) = (at + 12, at + 12 + len as usize);
            let (record, sum) = (&self.partial[start..end], &self.partial[end..end + 4]);
            if mask_crc(crc32c(record)) != u32::from_le_bytes(sum.try_into().expect("4 bytes")) {
                self.damaged = true;
                break;
            }
            scalars(record, &mut each);
            at += whole as usize;
        }
        self.partial.drain(..at);
        if self.damaged {
            self.partial = Vec::new();
        }
    }
}

/// The scalars of one `Event` message.
fn scalars(event: &[u8], each: &mut impl FnMut(Scalar)) {
    let (mut wall_time, mut step, mut summary) = (0.0, 0, None);
    for field in Fields(event) {
        match field {
            (1, Field::Fixed64(bits)) => wall_time = f64::from_bits(bits),
            (2, Field::Varint(number)) => step = number as i64,
            (5, Field::Bytes(bytes)) => summary = Some(bytes),
            _ => {}
        }
    }
    for (number, field) in Fields(summary.unwrap_or_default()) {
        if let (1, Field::Bytes(value)) = (number, field)
            && let Some((tag, value)) = summary_value(value)
        {
            each(Scalar { tag, step, wall_time, value });
        }
    }
}

/// `Summary.Value`: a tag with a `simple_value` or a tensor of one element.
fn summary_value(bytes: &[u8]) -> Option<(String, f64)> {
    let (mut tag, mut value) = (None, None);
    for field in Fields(bytes) {
        match field {
            (1, Field::Bytes(text)) => tag = Some(String::from_utf8_lossy(text).into_owned()),
            (2, Field::Fixed32(bits)) => value = Some(f64::from(f32::from_bits(bits))),
            (8, Field::Bytes(tensor)) => value = tensor_scalar(tensor),
            _ => {}
        }
    }
    tag.filter(|tag| !tag.is_empty() && tag.len() <= 256).zip(value)
}

/// The value of a `TensorProto` with one element of a numeric type.
fn tensor_scalar(bytes: &[u8]) -> Option<f64> {
    let (mut dtype, mut content, mut dimensions, mut value) = (0, &[][..], 1_u64, None);
    for field in Fields(bytes) {
        match field {
            (1, Field::Varint(number)) => dtype = number,
            (2, Field::Bytes(shape)) => {
                for (number, dimension) in Fields(shape) {
                    if let (2, Field::Bytes(dimension)) = (number, dimension) {
                        let size = Fields(dimension).find_map(|field| match field {
                            (1, Field::Varint(size)) => Some(size),
                            _ => None,
                        });
                        dimensions = dimensions.saturating_mul(size.unwrap_or(0));
                    }
                }
            }
            (4, Field::Bytes(raw)) => content = raw,
            // `float_val` and `double_val`, packed or unpacked, then integers.
            (5, Field::Bytes(raw)) => value = raw.get(..4).map(float),
            (5, Field::Fixed32(bits)) => value = Some(f64::from(f32::from_bits(bits))),
            (6, Field::Bytes(raw)) => value = raw.get(..8).map(double),
            (6, Field::Fixed64(bits)) => value = Some(f64::from_bits(bits)),
            (7 | 10, Field::Varint(number)) => value = Some(number as i64 as f64),
            (7 | 10, Field::Bytes(raw)) => value = varint(raw).map(|(number, _)| number as i64 as f64),
            _ => {}
        }
    }
    if dimensions != 1 {
        return None;
    }
    match (dtype, content.len()) {
        (1, 4) => Some(float(content)),
        (2, 8) => Some(double(content)),
        (3, 4) => Some(f64::from(i32::from_le_bytes(content.try_into().ok()?))),
        (9, 8) => Some(i64::from_le_bytes(content.try_into().ok()?) as f64),
        (1 | 2 | 3 | 9, _) => value,
        _ => None,
    }
}

fn float(raw: &[u8]) -> f64 {
    f64::from(f32::from_le_bytes(raw.try_into().expect("4 bytes")))
}

fn double(raw: &[u8]) -> f64 {
    f64::from_le_bytes(raw.try_into().expect("8 bytes"))
}

enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// Iterator over the fields of a message; ends at the first malformed field.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Field<'a>);

    fn next(&mut self) -> Option<(u64, Field<'a>)> {
        let (key, rest) = varint(self.0)?;
        let (field, rest) = match key & 7 {
            0 => varint(rest).map(|(number, rest)| (Field::Varint(number), rest))?,
            1 => rest.split_first_chunk().map(|(raw, rest)| (Field::Fixed64(u64::from_le_bytes(*raw)), rest))?,
            2 => {
                let (len, rest) = varint(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                (Field::Bytes(bytes), rest)
            }
            5 => rest.split_first_chunk().map(|(raw, rest)| (Field::Fixed32(u32::from_le_bytes(*raw)), rest))?,
            _ => return None,
        };
        self.0 = rest;
        Some((key >> 3, field))
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (idx, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * idx as u32)?;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[idx + 1..]));
        }
    }
    None
}

/// TensorFlow's masked CRC: checksums of data that contains checksums would be weak otherwise.
fn mask_crc(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    CRC32C.checksum(bytes)
}

static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

#[cfg(test)]
#[path = "tfevents_tests.rs"]
mod tests;
