//! Which slot a key is in: CRC16 (XMODEM) of its hash tag, or of all of it where it has none.

const SLOTS: u16 = 16_384;

/// The slots of one of `of` primaries among which all are shared out.
pub(super) fn share(one: usize, of: usize) -> std::ops::RangeInclusive<u16> {
    let start = |one: usize| (usize::from(SLOTS) * one / of) as u16;
    start(one)..=start(one + 1) - 1
}

pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// What stands between the first `{` and the next `}`, unless that is nothing.
fn tag(key: &[u8]) -> &[u8] {
    let find = |from: usize, byte: u8| key[from..].iter().position(|&b| b == byte);
    let Some(open) = find(0, b'{') else { return key };
    match find(open + 1, b'}') {
        None | Some(0) => key,
        Some(len) => &key[open + 1..][..len],
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_xmodems() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn a_key_is_in_the_slot_of_its_tag() {
        for (key, tag_of_it) in [
            ("k", "k"),
            ("{user}.a", "user"),
            ("a{}b", "a{}b"),
            ("a{b", "a{b"),
            ("a}{b}", "b"),
            ("{{x}}", "{x"),
            ("{a}{b}", "a"),
        ] {
            assert_eq!(tag(key.as_bytes()), tag_of_it.as_bytes(), "of {key}");
        }
    }

    #[test]
    fn shares_are_all_slots_and_each_once() {
        let shares: Vec<_> = (0..3).map(|i| share(i, 3)).collect();
        assert_eq!(shares, [0..=5460, 5461..=10921, 10922..=16383]);
    }
}
