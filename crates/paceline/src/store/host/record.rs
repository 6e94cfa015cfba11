//! One bucket as bytes. Little-endian and compact: a bucket with one quota takes about 130 bytes,
//! a full window of 64 entries about 300 more.
//!
//! What is read back was written by this code and guarded by a checksum, but never trusted
//! further: whatever does not fit is `None`, and the caller says so with words.

use std::collections::VecDeque;
use std::sync::Arc;

use paceline_core::{Bare, Bucket, Clock, Level, Micros, Policy, Shape, State, Suspension, Window};

const HAS_POLICY: u8 = 1;
const HAS_SUSPENSION: u8 = 2;
/// One call goes first, from the moment that follows.
const HAS_PROBE: u8 = 4;
/// Refusals without a time.
const HAS_BARE: u8 = 8;
const HAS_AGED: u8 = 16;
const CREDIT: u8 = 0;
const WINDOW: u8 = 1;

/// A bucket, whose it is and when it was last used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) touched: Micros,
    pub(super) bucket: Bucket,
}

/// Appends the record to `out`.
pub(super) fn encode(out: &mut Vec<u8>, name: &str, touched: Micros, bucket: &Bucket) {
    let Bucket { policy, keep_us, state } = bucket;
    let State { clock, at, made, suspension, levels, bare, aged } = state;
    let Clock { seen, paused, since, until, probe } = clock;
    for number in [touched, *keep_us, *seen, *paused, *since, *until, *at, *made] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let has_probe = flag(*probe != 0, HAS_PROBE);
    let has_suspension = flag(suspension.is_some(), HAS_SUSPENSION);
    let has_bare = flag(*bare != Bare::default(), HAS_BARE);
    let has_aged = flag(*aged != 0, HAS_AGED);
    out.push(flag(policy.is_some(), HAS_POLICY) | has_suspension | has_probe | has_bare | has_aged);
    if *aged != 0 {
        out.extend_from_slice(&aged.to_le_bytes());
    }
    if *probe != 0 {
        out.extend_from_slice(&probe.to_le_bytes());
    }
    text(out, name);
    if let Some(policy) = policy {
        text(out, policy.as_str());
    }
    if let Some(Suspension { reason, by }) = suspension {
        text(out, reason);
        text(out, by);
    }
    if *bare != Bare::default() {
        out.extend_from_slice(&bare.at.to_le_bytes());
        varint(out, bare.by.len() as u64);
        for by in &bare.by {
            varint(out, u64::from(*by));
        }
    }
    for level in levels {
        match level {
            Level::Credit(credit) => {
                out.push(CREDIT);
                out.extend_from_slice(&credit.to_le_bytes());
            }
            Level::Window(window) => {
                out.push(WINDOW);
                varint(out, window.entries.len() as u64);
                // Moments follow each other closely: their distances are short.
                let mut before = *at;
                for (time, tokens) in &window.entries {
                    varint(out, zigzag(time.wrapping_sub(before)));
                    varint(out, zigzag(*tokens));
                    before = *time;
                }
            }
        }
    }
}

/// Reads a record. `known` spares parsing the policy where the text is the same.
pub(super) fn decode(bytes: &[u8], known: Option<&Arc<Policy>>) -> Option<Record> {
    let mut reader = Reader(bytes);
    let mut numbers = [0_i64; 8];
    for number in &mut numbers {
        *number = reader.number()?;
    }
    let [touched, keep_us, seen, paused, since, until, at, made] = numbers;
    let [flags] = reader.take::<1>()?;
    let aged = if flags & HAS_AGED != 0 { reader.number()? } else { 0 };
    let probe = if flags & HAS_PROBE != 0 { reader.number()? } else { 0 };
    let name = reader.text()?.to_owned();
    let policy = if flags & HAS_POLICY != 0 {
        let text = reader.text()?;
        match known.filter(|known| known.as_str() == text) {
            Some(known) => Some(Arc::clone(known)),
            None => Some(Arc::new(text.parse::<Policy>().ok()?)),
        }
    } else {
        None
    };
    let suspension = if flags & HAS_SUSPENSION != 0 {
        Some(Suspension { reason: reader.text()?.to_owned(), by: reader.text()?.to_owned() })
    } else {
        None
    };
    let bare = if flags & HAS_BARE != 0 { reader.bare()? } else { Bare::default() };
    let quotas = policy.as_deref().map(Policy::quotas).unwrap_or_default();
    let mut levels = Vec::with_capacity(quotas.len());
    for quota in quotas {
        let level = match (reader.take::<1>()?, quota.shape()) {
            ([CREDIT], Shape::TokenBucket { .. }) => Level::Credit(reader.number()?),
            ([WINDOW], Shape::Window) => Level::Window(reader.window(at)?),
            _ => return None,
        };
        levels.push(level);
    }
    if !reader.0.is_empty() {
        return None;
    }
    let clock = Clock { seen, paused, since, until, probe };
    let state = State { clock, at, made, suspension, levels, bare, aged };
    Some(Record { name, touched, bucket: Bucket { policy, keep_us, state } })
}

fn text(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Seven bits a byte, the lowest first; the high bit says that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
}

/// Small numbers of either sign as small numbers.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn bare(&mut self) -> Option<Bare> {
        let at = self.number()?;
        // A broken count ends with the bytes.
        let count = self.varint()?;
        let by = (0..count).map(|_| u32::try_from(self.varint()?).ok()).collect::<Option<_>>()?;
        Some(Bare { at, by })
    }

    fn window(&mut self, at: Micros) -> Option<Window> {
        let count = usize::try_from(self.varint()?).ok()?;
        // An entry takes at least two bytes; a broken count must not reserve the memory.
        let mut entries = VecDeque::with_capacity(count.min(self.0.len() / 2));
        let (mut before, mut used) = (at, 0_i64);
        for _ in 0..count {
            let time = before.wrapping_add(unzigzag(self.varint()?));
            let tokens = unzigzag(self.varint()?);
            used = used.checked_add(tokens)?;
            entries.push_back((time, tokens));
            before = time;
        }
        Some(Window { used, entries })
    }
}

#[cfg(test)]
mod tests {
    use paceline_core::{Ask, decide};

    use super::*;

    fn used(policy: &str) -> Bucket {
        let policy: Arc<Policy> = Arc::new(policy.parse().unwrap());
        let (mut slot, mut now) = (None, 1_790_000_000_000_000);
        for _ in 0..70 {
            decide::take(&mut slot, &policy, Ask { cost: 1.into(), wait_max_us: 10_000_000 }, now);
            now += 90_000;
        }
        let why = Suspension { reason: "käse".to_owned(), by: String::new() };
        decide::suspend(&mut slot, 5_000_000, 7_000_000, why, now);
        slot.unwrap()
    }

    fn bytes(bucket: &Bucket) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, "a/b", 77, bucket);
        bytes
    }

    #[test]
    fn what_was_written_is_read_back_whole() {
        let mut buckets: Vec<Bucket> = [
            "5/s",
            "window 100/m",
            "7/s burst 3, window 1000000000/d, 9/h, idle 5m",
            "9/s, 7/s of tokens",
        ]
        .map(used)
        .into();
        buckets.push(Bucket::drained(Arc::new("window 5/s".parse().unwrap()), -5));
        let mut refused = Some(used("2/s, 7/m"));
        for by in [7, u32::MAX] {
            decide::refused(&mut refused, by, 9, 0, Suspension::default(), 1_790_000_007_000_000);
        }
        buckets.extend(refused);
        let mut nameless = None;
        decide::suspend(&mut nameless, 5, 0, Suspension::default(), i64::MAX / 4);
        buckets.push(nameless.unwrap());
        for bucket in buckets {
            let wanted = Record { name: "a/b".to_owned(), touched: 77, bucket };
            let bytes = bytes(&wanted.bucket);
            assert_eq!(decode(&bytes, None).as_ref(), Some(&wanted));
            let known = wanted.bucket.policy.clone();
            assert_eq!(decode(&bytes, known.as_ref()), Some(wanted));
        }
    }

    #[test]
    fn a_known_policy_is_not_parsed_again() {
        let bucket = used("5/s");
        let known = bucket.policy.clone().unwrap();
        let read = decode(&bytes(&bucket), Some(&known)).unwrap();
        assert!(Arc::ptr_eq(&read.bucket.policy.unwrap(), &known));
        let other = Arc::new("6/s".parse().unwrap());
        let read = decode(&bytes(&bucket), Some(&other)).unwrap();
        assert_eq!(read.bucket.policy.unwrap(), known);
    }

    #[test]
    fn cut_or_garbled_bytes_are_never_a_panic() {
        let bytes = bytes(&used("7/s burst 3, window 100/m"));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], None), None, "cut at {end}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut garbled = bytes.clone();
            let at = random.usize(..garbled.len());
            garbled[at] = random.u8(..);
            let _ = decode(&garbled, None);
        }
    }

    #[test]
    fn numbers_of_any_size_and_sign_are_kept() {
        for value in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN, 1 << 53] {
            let mut bytes = Vec::new();
            varint(&mut bytes, zigzag(value));
            assert_eq!(Reader(&bytes).varint().map(unzigzag), Some(value));
        }
    }
}
