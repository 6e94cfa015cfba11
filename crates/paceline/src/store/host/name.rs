//! A bucket's name as a file's: readable, in lower-case ASCII alone, so that file systems that fold
//! case or normalise Unicode keep two names apart. What is not `a`-`z`, `0`-`9`, `-` or `_` is
//! written as `%` and two hex digits, which can be read back: two names never share a file.
//!
//! A name too long for that (a file's name ends at 255 bytes) keeps its beginning and gets a
//! 128-bit hash behind a `~`, which no short name holds. The file holds the full name and it is
//! compared at every first reading: two names whose hashes met would get an error, never each
//! other's tokens.

use std::fmt::Write as _;

/// What marks a file of the folder as a bucket.
pub(super) const SUFFIX: &str = ".bucket";
/// Longest file name without the suffix, well below the 255 bytes of every common file system and
/// the 143 of encrypted ones.
const STEM_MAX: usize = 120;

/// The file's name of a bucket.
pub(super) fn file_name(name: &str) -> String {
    let mut stem = String::with_capacity(STEM_MAX + SUFFIX.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => stem.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => {
                let _ = write!(stem, "%{byte:02x}");
            }
        }
    }
    if stem.len() > STEM_MAX {
        stem.truncate(STEM_MAX - 33);
        let _ = write!(stem, "~{:032x}", hash(name.as_bytes()));
    }
    stem.push_str(SUFFIX);
    stem
}

/// FNV-1a, the 128-bit one.
fn hash(bytes: &[u8]) -> u128 {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in bytes {
        hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_plain_name_stays_readable_and_others_are_escaped() {
        assert_eq!(file_name("github"), "github.bucket");
        assert_eq!(file_name("stripe:acct_1"), "stripe%3aacct_1.bucket");
        assert_eq!(file_name("../A b"), "%2e%2e%2f%41%20b.bucket");
    }

    #[test]
    fn c29_no_two_names_share_a_file_even_where_case_is_folded() {
        let long = "x".repeat(255);
        let names = [
            "a", "A", "a/b", "a%2fb", "a:b", "a b", "a.b", ".", "..", "~", "{a}", "Ä", "A\u{308}",
            "日本", "%", "%25",
        ];
        let names = names.map(str::to_owned).into_iter();
        let long = ["a", "A", "b", "é"].map(|last| format!("{long}{last}"));
        let (mut files, mut count) = (HashSet::new(), 0);
        for name in names.chain(long).chain((120..=256).map(|n| "y".repeat(n))) {
            let file = file_name(&name);
            assert!(file.len() <= 143 && file.is_ascii(), "{file}");
            assert_eq!(file, file.to_lowercase(), "{name}");
            files.insert(file);
            count += 1;
        }
        assert_eq!(files.len(), count);
    }
}
