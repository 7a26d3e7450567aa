//! CRC-64/NVME, the checksum of Azure Storage. Pure.

/// Reflected polynomial.
const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;

const TABLE: [u64; 256] = table();

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    !bytes.iter().fold(!0, |crc: u64, byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    /// Check value of the catalogue of parametrised CRC algorithms.
    #[test]
    fn check_value() {
        assert_eq!(super::checksum(b"123456789"), 0xAE8B_1486_0A79_9888);
        assert_eq!(super::checksum(b""), 0);
    }
}
