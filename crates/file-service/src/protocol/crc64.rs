//! CRC-64 of NVMe, the checksum of ranges that are copied from a URL. Pure.

use crc::{CRC_64_NVME, Crc, Table};

static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    CRC64.checksum(bytes)
}

#[cfg(test)]
mod tests {
    /// The check value of the catalogue of parametrised CRC algorithms.
    #[test]
    fn the_known_value() {
        assert_eq!(super::checksum(b"123456789"), 0xAE8B_1486_0A79_9888);
        assert_eq!(super::checksum(b""), 0);
    }
}
