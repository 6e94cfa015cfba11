//! Buckets in this process, for tests and single processes. A sharded table of plain mutexes: an
//! operation holds one for well under a microsecond and never across an await.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use paceline_core::{Bucket, Micros};

use super::local::{Change, Local};
use crate::clock::Clock;
use crate::error::Error;

/// Shards, a power of two: enough that threads on different buckets rarely meet.
const SHARDS: usize = 64;
/// Entries a shard looks at, for evaporated ones, each time a new bucket is put in it. Two for
/// each that comes, so the table shrinks faster than it grows, and no call pays for a sweep.
const SWEPT_PER_INSERT: usize = 4;

/// The store.
#[derive(Debug)]
pub(crate) struct Memory {
    clock: Clock,
    shards: Vec<Mutex<Shard>>,
}

#[derive(Debug, Default)]
struct Shard {
    buckets: HashMap<Box<str>, Kept>,
    /// Names in the order in which they are looked at by the sweep.
    round: std::collections::VecDeque<Box<str>>,
}

#[derive(Debug)]
struct Kept {
    slot: Option<Bucket>,
    /// The last use, which the expiry counts from.
    touched: Micros,
}

impl Kept {
    fn has_evaporated(&self, now: Micros) -> bool {
        match &self.slot {
            None => true,
            // The lifetime is never shorter than keep_us, and costs a little to compute.
            Some(bucket) => {
                now - self.touched >= bucket.keep_us
                    && now - self.touched >= bucket.lifetime_us(self.touched)
            }
        }
    }
}

impl Memory {
    pub(crate) fn new(clock: Clock) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { clock, shards }
    }

    /// Names of the buckets that have not evaporated.
    pub(crate) fn list(&self) -> Vec<String> {
        let now = self.clock.now();
        let alive = |shard: &Mutex<Shard>| {
            let shard = locked(shard);
            let kept = shard.buckets.iter().filter(|(_, kept)| !kept.has_evaporated(now));
            kept.map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(alive).collect()
    }

    /// Entries held, evaporated ones not yet swept included.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.shards.iter().map(|shard| locked(shard).buckets.len()).sum()
    }

    fn shard(&self, name: &str) -> MutexGuard<'_, Shard> {
        locked(&self.shards[shard_of(name)])
    }
}

/// Which shard a name is in. A few multiplications: the shard's own table hashes the name with
/// care, and somebody who makes up names to meet in one shard gains no more than to wait in line.
fn shard_of(name: &str) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = name.as_bytes().as_chunks::<8>();
    let last = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).chain([last]);
    let sum = words.fold(0, |sum: u64, word| (sum ^ word).wrapping_mul(ODD).rotate_left(29));
    // The high bits depend on all others.
    usize::try_from(sum.wrapping_mul(ODD) >> 32).unwrap_or(0) % SHARDS
}

impl Local for Memory {
    async fn update<R: Send>(
        &self,
        name: &str,
        operation: impl FnOnce(&mut Option<Bucket>, Micros) -> (R, Change) + Send,
    ) -> Result<R, Error> {
        let mut shard = self.shard(name);
        // Inside the lock, so that the bucket sees the moments in order.
        let now = self.clock.now();
        if let Some(kept) = shard.buckets.get_mut(name) {
            if kept.has_evaporated(now) {
                kept.slot = None;
            }
            let (result, _) = operation(&mut kept.slot, now);
            kept.touched = now.max(kept.touched);
            if kept.slot.as_ref().is_some_and(|bucket| bucket.state.clock.seen == now) {
                // Written at `now`, also where the clock stepped back.
                kept.touched = now;
            }
            return Ok(result);
        }
        let mut slot = None;
        let (result, _) = operation(&mut slot, now);
        if slot.is_some() {
            shard.sweep(now);
            shard.buckets.insert(name.into(), Kept { slot, touched: now });
            shard.round.push_back(name.into());
        }
        Ok(result)
    }
}

impl Shard {
    fn sweep(&mut self, now: Micros) {
        for _ in 0..SWEPT_PER_INSERT {
            let Some(name) = self.round.pop_front() else { return };
            match self.buckets.get(&name) {
                Some(kept) if kept.has_evaporated(now) => {
                    self.buckets.remove(&name);
                }
                Some(_) => self.round.push_back(name),
                None => {}
            }
        }
    }
}

/// A poisoned shard is as whole as any: the decision changes a bucket only at its end, in plain
/// assignments that cannot panic.
fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::local;
    use super::*;
    use crate::clock::ManualClock;
    use crate::store::Store;
    use crate::store::contract::{START, Tested, contract};
    use crate::store::url::StoreUrl;

    async fn store() -> Tested {
        let clock = ManualClock::at(START);
        let own = Clock::Manual(clock.clone());
        let store = Store::open(&StoreUrl::Memory, own, Duration::ZERO).await.unwrap();
        Tested { store: Arc::new(store), clock, _keeps: Box::new(()) }
    }

    contract!();

    #[test]
    fn names_are_spread_over_all_shards() {
        let mut held = [0; SHARDS];
        for number in 0..6_400 {
            held[shard_of(&format!("tenant {number}"))] += 1;
        }
        assert!(held.iter().all(|held| (50..200).contains(held)), "{held:?}");
    }

    #[tokio::test]
    async fn a_thousand_idle_buckets_cost_no_later_call_a_sweep_and_are_gone_all_the_same() {
        let clock = ManualClock::at(1_790_000_000_000_000);
        let memory = Memory::new(Clock::Manual(clock.clone()));
        let policy = Arc::new("1/s".parse().unwrap());
        let ask = paceline_core::Ask { cost: 1.into(), wait_max_us: 0 };
        for number in 0..1_000 {
            local::take(&memory, &format!("idle {number}"), &policy, ask).await.unwrap();
        }
        assert_eq!((memory.held(), memory.list().len()), (1_000, 1_000));
        clock.advance(Duration::from_secs(60));
        assert_eq!((memory.held(), memory.list().len()), (1_000, 0));
        for number in 0..1_000 {
            local::take(&memory, &format!("new {number}"), &policy, ask).await.unwrap();
        }
        assert_eq!(memory.list().len(), 1_000);
        assert!(memory.held() < 1_100, "{} held", memory.held());
    }
}
