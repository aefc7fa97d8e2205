//! The checksum of a header: CRC-32 with Castagnoli's polynomial, as RFC 4960 has it in Appendix B.

/// The checksum of a whole `header`, where `at` is the place of the checksum itself: it counts as
/// zeros.
pub(super) fn of_header(header: &[u8], at: usize) -> u32 {
    let (before, behind) = header.split_at(at.min(header.len()));
    let behind = behind.get(CHECKSUM_LEN..).unwrap_or_default();
    of(before.iter().chain(&[0; CHECKSUM_LEN]).chain(behind))
}

/// The checksum of any bytes.
fn of<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    !bytes.fold(!0, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

/// Bytes of a checksum.
pub(super) const CHECKSUM_LEN: usize = 4;

/// What each byte does to the rest.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};
/// Castagnoli's, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, Appendix B.4.
    #[test]
    fn the_examples_of_iscsi_come_out() {
        assert_eq!(of(b"123456789".iter()), 0xe306_9283);
        assert_eq!(of([0; 32].iter()), 0x8a91_36aa);
        assert_eq!(of([0xff; 32].iter()), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(of(ascending.iter()), 0x46dd_794e);
    }

    #[test]
    fn the_field_itself_counts_as_zeros() {
        let header = b"before\x01\x02\x03\x04behind";
        let zeroed = b"before\0\0\0\0behind";
        assert_eq!(of_header(header, 6), of(zeroed.iter()));
    }
}
