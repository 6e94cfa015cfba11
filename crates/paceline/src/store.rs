//! The seam. A store makes one operation atomic and tells the time it was made at; what the
//! operation does is `paceline-core`'s. Three places: [`memory`], [`host`] and [`redis`]; only the
//! last speaks Redis. There is no trait: the three are known, and a call costs no box.

#[cfg(test)]
mod contract;
pub(crate) mod host;
mod local;
pub(crate) mod memory;
pub(crate) mod redis;
pub(crate) mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use paceline_core::{
    Ask, Batch, Booking, Decision, Group, Look, Lowered, Micros, Policy, Probed, Refused,
    Remaining, Suspension,
};

use self::url::StoreUrl;
use crate::clock::Clock;
use crate::error::Error;
use crate::examination::{Examination, Sheet};
use crate::meters::StoreMeters;

/// A decision, and the bucket's policy where it is not the caller's own.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) decision: Decision,
    pub(crate) policy: Option<Arc<Policy>>,
    /// Whether somebody was refused without a time, where the store tells so with its answers.
    pub(crate) doubted: bool,
}

/// The answer to many calls at once, and the bucket's policy where it is not the caller's own.
#[derive(Debug)]
pub(crate) struct Batched {
    pub(crate) batch: Batch,
    pub(crate) policy: Option<Arc<Policy>>,
    /// As of [`Taken`].
    pub(crate) doubted: bool,
}

/// One of the three stores.
#[derive(Debug)]
pub(crate) struct Store {
    place: Place,
    operations: AtomicU64,
    meters: StoreMeters,
}

#[derive(Debug)]
enum Place {
    Memory(memory::Memory),
    Host(host::Host),
    Redis(redis::Redis),
}

impl Store {
    /// Opens the store of a URL. A server that is away is no error here; one that refuses us or is
    /// too old is.
    pub(crate) async fn open(
        url: &StoreUrl,
        clock: Clock,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let place = match url {
            StoreUrl::Memory => Place::Memory(memory::Memory::new(clock)),
            StoreUrl::Host { folder } => {
                Place::Host(host::Host::open(folder.as_deref(), clock, timeout)?)
            }
            StoreUrl::Redis(server) => {
                Place::Redis(redis::Redis::open(server, clock, timeout).await?)
            }
        };
        let meters = StoreMeters::new(match place {
            Place::Memory(_) => "memory",
            Place::Host(_) => "host",
            Place::Redis(_) => "redis",
        });
        Ok(Self { place, operations: AtomicU64::new(0), meters })
    }

    pub(crate) fn meters(&self) -> &StoreMeters {
        &self.meters
    }

    /// Times an operation of a store that takes its time.
    async fn timed<T>(&self, operation: impl Future<Output = T>) -> T {
        let start = Instant::now();
        let result = operation.await;
        self.meters.took(start.elapsed());
        result
    }

    /// Operations asked of the store since it was opened.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Whether an answer may come after its caller has gone: then the caller's layer must see to
    /// what was granted. The other stores decide and answer in one step.
    pub(crate) fn answers_later(&self) -> bool {
        matches!(self.place, Place::Redis(_))
    }

    /// Whether it pays for callers to wait for each other and ask together, although an answer
    /// comes at once: where one costs more than standing in line does.
    pub(crate) fn likes_crowds(&self) -> bool {
        matches!(self.place, Place::Host(_))
    }

    /// Whether it tells of changes that other processes make.
    pub(crate) fn tells(&self) -> bool {
        matches!(self.place, Place::Redis(_))
    }

    /// Subscribes to words of changes, where [`tells`](Self::tells).
    pub(crate) async fn words(&self) -> Result<redis::Words, Error> {
        match &self.place {
            Place::Redis(redis) => redis.words().await,
            Place::Memory(_) | Place::Host(_) => {
                Err(Error::input("this store tells of no changes".to_owned()))
            }
        }
    }

    fn place(&self) -> &Place {
        self.operations.fetch_add(1, Ordering::Relaxed);
        &self.place
    }

    // The futures of Redis are large, and would make every caller's large: they are boxed.

    /// Answers one call. Not cancel safe: dropped before it is done, the call may have been counted.
    pub(crate) async fn take(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        ask: Ask,
    ) -> Result<Taken, Error> {
        match self.place() {
            Place::Memory(memory) => local::take(memory, name, policy, ask).await,
            Place::Host(host) => self.timed(local::take(host, name, policy, ask)).await,
            Place::Redis(redis) => self.timed(Box::pin(redis.take(name, policy, ask))).await,
        }
    }

    /// Answers many calls in one operation; without any it only looks at the bucket's clock. Not
    /// cancel safe, as [`take`](Self::take).
    pub(crate) async fn batch(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        groups: &[Group],
    ) -> Result<Batched, Error> {
        match self.place() {
            Place::Memory(memory) => local::batch(memory, name, policy, groups).await,
            Place::Host(host) => self.timed(local::batch(host, name, policy, groups)).await,
            Place::Redis(redis) => self.timed(Box::pin(redis.batch(name, policy, groups))).await,
        }
    }

    /// Gives an unused booking back.
    pub(crate) async fn give_back(&self, name: &str, booking: Booking) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::give_back(memory, name, booking).await,
            Place::Host(host) => self.timed(local::give_back(host, name, booking)).await,
            Place::Redis(redis) => self.timed(Box::pin(redis.give_back(name, booking))).await,
        }
    }

    /// The answer to a booking's call has come; whether that changed anything.
    pub(crate) async fn answered(&self, name: &str, booking: Booking) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::answered(memory, name, booking).await,
            Place::Host(host) => self.timed(local::answered(host, name, booking)).await,
            Place::Redis(redis) => self.timed(Box::pin(redis.answered(name, booking))).await,
        }
    }

    /// A provider said what is left of a quota.
    pub(crate) async fn lower(
        &self,
        name: &str,
        said: Remaining,
        why: Suspension,
    ) -> Result<Lowered, Error> {
        match self.place() {
            Place::Memory(memory) => local::lower(memory, name, said, why).await,
            Place::Host(host) => self.timed(local::lower(host, name, said, why)).await,
            Place::Redis(redis) => self.timed(Box::pin(redis.lower(name, said, why))).await,
        }
    }

    /// A provider refused `by` without a time; where others were, too, the bucket is suspended.
    pub(crate) async fn refused(
        &self,
        name: &str,
        by: u32,
        for_us: Micros,
        patience_us: Micros,
        why: Suspension,
    ) -> Result<Refused, Error> {
        match self.place() {
            Place::Memory(memory) => {
                local::refused(memory, name, by, for_us, patience_us, why).await
            }
            Place::Host(host) => local::refused(host, name, by, for_us, patience_us, why).await,
            Place::Redis(redis) => redis.refused(name, by, for_us, patience_us, why).await,
        }
    }

    /// Somebody passed; whether refusals without a time were forgotten by that.
    pub(crate) async fn passed(&self, name: &str) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::passed(memory, name).await,
            Place::Host(host) => local::passed(host, name).await,
            Place::Redis(redis) => redis.passed(name).await,
        }
    }

    /// Suspends; what is left of the suspension in microseconds. With some patience one call goes
    /// first at the end, and the others wait so long at most for what comes of it.
    pub(crate) async fn suspend(
        &self,
        name: &str,
        for_us: Micros,
        patience_us: Micros,
        why: Suspension,
    ) -> Result<Micros, Error> {
        match self.place() {
            Place::Memory(memory) => local::suspend(memory, name, for_us, patience_us, why).await,
            Place::Host(host) => local::suspend(host, name, for_us, patience_us, why).await,
            Place::Redis(redis) => redis.suspend(name, for_us, patience_us, why).await,
        }
    }

    /// Asks whether the call with this place may go first in a suspension. Not cancel safe, as
    /// [`take`](Self::take).
    pub(crate) async fn probe(&self, name: &str, booking: Booking) -> Result<Probed, Error> {
        match self.place() {
            Place::Memory(memory) => local::probe(memory, name, booking).await,
            Place::Host(host) => self.timed(local::probe(host, name, booking)).await,
            Place::Redis(redis) => self.timed(Box::pin(redis.probe(name, booking))).await,
        }
    }

    /// The call that went first has passed, or with some patience was not made, and another may go
    /// first; whether that changed anything.
    pub(crate) async fn probed(&self, name: &str, patience_us: Micros) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::probed(memory, name, patience_us).await,
            Place::Host(host) => local::probed(host, name, patience_us).await,
            Place::Redis(redis) => redis.probed(name, patience_us).await,
        }
    }

    /// Resumes; whether there was a suspension.
    pub(crate) async fn resume(&self, name: &str) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::resume(memory, name).await,
            Place::Host(host) => local::resume(host, name).await,
            Place::Redis(redis) => redis.resume(name).await,
        }
    }

    /// Sets the policy; whether anything changed.
    pub(crate) async fn set(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        pinned: bool,
    ) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::set(memory, name, policy, pinned).await,
            Place::Host(host) => local::set(host, name, policy, pinned).await,
            Place::Redis(redis) => redis.set(name, policy, pinned).await,
        }
    }

    /// Sets the policy where the bucket's still is `expected`, and not pinned; whether it did.
    pub(crate) async fn set_if(
        &self,
        name: &str,
        expected: &Policy,
        policy: &Arc<Policy>,
    ) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::set_if(memory, name, expected, policy).await,
            Place::Host(host) => local::set_if(host, name, expected, policy).await,
            Place::Redis(redis) => redis.set_if(name, expected, policy).await,
        }
    }

    /// Reads the whole bucket.
    pub(crate) async fn look(&self, name: &str) -> Result<Look, Error> {
        match self.place() {
            Place::Memory(memory) => local::look(memory, name).await,
            Place::Host(host) => local::look(host, name).await,
            Place::Redis(redis) => redis.look(name).await,
        }
    }

    /// Forgets the bucket; whether there was one.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool, Error> {
        match self.place() {
            Place::Memory(memory) => local::delete(memory, name).await,
            Place::Host(host) => local::delete(host, name).await,
            Place::Redis(redis) => redis.delete(name).await,
        }
    }

    /// Looks for what is wrong or risky.
    pub(crate) async fn examine(&self, found: &mut Examination) {
        match &self.place {
            Place::Memory(_) => {
                let mut sheet = Sheet::default();
                sheet.fact("kind", "in the memory of this process");
                sheet.note(
                    "buckets are this process's alone: no other process keeps the pace with it, and \
                     they end with it",
                    "host: shares them among the processes of this machine, redis:// among machines",
                );
                found.take_in(sheet);
            }
            Place::Host(host) => host.examine(found).await,
            Place::Redis(redis) => redis.examine(found).await,
        }
    }

    /// The names of all buckets, sorted, and what failed where one of several servers did not
    /// answer. Not a snapshot: what comes and goes meanwhile may be missing or there.
    pub(crate) async fn list(&self) -> Result<(Vec<String>, Option<Error>), Error> {
        let (mut names, failed) = match self.place() {
            Place::Memory(memory) => (memory.list(), None),
            Place::Host(host) => (host.list()?, None),
            Place::Redis(redis) => redis.list().await,
        };
        names.sort_unstable();
        Ok((names, failed))
    }
}
