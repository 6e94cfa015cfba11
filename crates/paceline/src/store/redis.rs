//! Buckets in Redis (6.2 or newer, or Valkey), one server. One hash per bucket under
//! `prefix{name}`, one EVALSHA per decision; [`paceline_core::script`] knows arguments, replies
//! and the hash. [`connection`] keeps the one connection, [`failure`] says what an error means.
//!
//! What was sent and not answered is never sent again: it may have been executed, so it counts as
//! spent. Only NOSCRIPT, which proves that nothing was executed, is answered by loading the script
//! and asking once more; any number of calls that meet it wait for one load.
//!
//! A user restricted by ACL needs
//! `~paceline:* +evalsha +script|load +hmget +hget +hset +hdel +hgetall +pexpire +time +unlink +scan`
//! (and `+info` for the check of version and eviction policy, and
//! `&paceline:* +publish +psubscribe` to be told of changes at once).

mod connection;
mod failure;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_core::script::{self, Call};
use paceline_core::{Ask, Booking, Group, Look, Micros, Policy, Suspension};
use redis::{Cmd, Value};

use self::connection::{Connected, Connector};
use self::failure::Failure;
pub(crate) use self::words::Words;
use super::url::RedisUrl;
use super::{Batched, Taken};
use crate::clock::Clock;
use crate::error::Error;

/// Texts of other processes' policies kept parsed.
const POLICIES_KEPT: usize = 256;
/// Keys looked at in one step of a listing.
const SCAN_COUNT: usize = 500;

/// The store.
#[derive(Debug)]
pub(crate) struct Redis {
    clock: Clock,
    prefix: String,
    timeout: Duration,
    /// The script's SHA-1, by which it is called.
    sha: String,
    connector: Connector,
    /// Locked while one call loads the script for all.
    loading: tokio::sync::Mutex<()>,
    /// How often it was loaded.
    loads: AtomicU64,
    policies: Mutex<HashMap<String, Arc<Policy>>>,
}

impl Redis {
    /// Opens the store. A server that is away is no error: the connection is made when it is back.
    pub(crate) async fn open(
        url: &RedisUrl,
        clock: Clock,
        timeout: Duration,
    ) -> Result<Self, Error> {
        Ok(Self {
            clock,
            prefix: url.prefix.clone(),
            timeout,
            sha: redis::Script::new(script::SOURCE).get_hash().to_owned(),
            connector: Connector::open(url, timeout).await?,
            loading: tokio::sync::Mutex::default(),
            loads: AtomicU64::new(0),
            policies: Mutex::default(),
        })
    }

    pub(crate) async fn take(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        ask: Ask,
    ) -> Result<Taken, Error> {
        let reply = match self.call(name, &Call::Take { policy, ask }).await? {
            Value::BulkString(clock) => {
                let clock = String::from_utf8_lossy(&clock);
                let decision = script::usual_grant(&clock, policy, ask.cost).map_err(unreadable)?;
                return Ok(Taken { decision, policy: None });
            }
            other => other,
        };
        let (numbers, text) = parts(reply)?;
        let decision = script::decision(&numbers, ask.cost).map_err(unreadable)?;
        let policy = text.map(|text| self.policy(text)).transpose()?;
        Ok(Taken { decision, policy })
    }

    pub(crate) async fn batch(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        groups: &[Group],
    ) -> Result<Batched, Error> {
        let (numbers, text) = parts(self.call(name, &Call::Batch { policy, groups }).await?)?;
        let batch = script::batch(&numbers).map_err(unreadable)?;
        let policy = text.map(|text| self.policy(text)).transpose()?;
        Ok(Batched { batch, policy })
    }

    pub(crate) async fn give_back(&self, name: &str, booking: Booking) -> Result<bool, Error> {
        flag(self.call(name, &Call::GiveBack(booking)).await?)
    }

    pub(crate) async fn answered(&self, name: &str, booking: Booking) -> Result<bool, Error> {
        flag(self.call(name, &Call::Answered(booking)).await?)
    }

    pub(crate) async fn suspend(
        &self,
        name: &str,
        for_us: Micros,
        why: Suspension,
    ) -> Result<Micros, Error> {
        number(self.call(name, &Call::Suspend { for_us, why: &why }).await?)
    }

    pub(crate) async fn resume(&self, name: &str) -> Result<bool, Error> {
        flag(self.call(name, &Call::Resume).await?)
    }

    pub(crate) async fn set(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        pinned: bool,
    ) -> Result<bool, Error> {
        flag(self.call(name, &Call::Set { policy, pinned }).await?)
    }

    pub(crate) async fn look(&self, name: &str) -> Result<Look, Error> {
        let reply = self.call(name, &Call::Look).await?;
        let (now, fields): (i64, HashMap<String, String>) =
            redis::from_redis_value(reply).map_err(|error| unreadable(error.to_string()))?;
        let bucket = script::bucket(&fields).map_err(unreadable)?;
        Ok(Look { now, bucket })
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<bool, Error> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(self.key(name));
        let was = matches!(self.bounded(self.send(&unlink)).await?, Value::Int(1..));
        if was {
            // Who waits looks again also where this is not allowed or lost.
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.key(name)).arg("deleted");
            let _ = self.bounded(self.send(&publish)).await;
        }
        Ok(was)
    }

    /// Names by SCAN, which never blocks the server for long. Each step is bounded in time.
    pub(crate) async fn list(&self) -> Result<Vec<String>, Error> {
        let pattern = format!("{}{{*}}", globbed(&self.prefix));
        let (mut cursor, mut names) = (0_u64, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let reply = self.bounded(self.send(&scan)).await?;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                redis::from_redis_value(reply).map_err(|error| unreadable(error.to_string()))?;
            names.extend(keys.iter().filter_map(|key| self.name(key)));
            if next == 0 {
                break;
            }
            cursor = next;
        }
        // SCAN may tell a key twice.
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Hash-tagged, so that the bucket can live in a Cluster.
    fn key(&self, name: &str) -> String {
        format!("{}{{{name}}}", self.prefix)
    }

    /// The name in a key of ours.
    fn name(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        key.strip_prefix(&self.prefix)?.strip_prefix('{')?.strip_suffix('}').map(str::to_owned)
    }

    /// Runs the script, loading it where the server does not have it.
    async fn call(&self, name: &str, call: &Call<'_>) -> Result<Value, Error> {
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(&self.sha).arg(1).arg(self.key(name));
        for arg in call.args(self.clock.given()) {
            evalsha.arg(&*arg);
        }
        self.bounded(async {
            let loads = match self.try_send(&evalsha).await {
                Ok(value) => return Ok(value),
                Err((Failure::NoScript, loads)) => loads,
                Err((failure, _)) => return Err(self.told(failure, name)),
            };
            self.load(loads).await?;
            self.try_send(&evalsha).await.map_err(|(failure, _)| self.told(failure, name))
        })
        .await
    }

    /// Sends once. A failure comes with the number of loads before it was sent.
    async fn try_send(&self, command: &Cmd) -> Result<Value, (Failure, u64)> {
        let loads = self.loads.load(Ordering::Acquire);
        let connected =
            self.connector.get().await.map_err(|error| (Failure::Told(error), loads))?;
        let Connected { mut connection, generation } = connected;
        connection.send_packed_command(command).await.and_then(Value::extract_error).map_err(
            |error| {
                let failure = Failure::of(&error, self.connector.server());
                if failure.ends_connection() {
                    self.connector.lost(generation);
                }
                (failure, loads)
            },
        )
    }

    async fn send(&self, command: &Cmd) -> Result<Value, Error> {
        self.try_send(command).await.map_err(|(failure, _)| self.told(failure, ""))
    }

    /// Loads the script, unless another call has loaded it since `seen` loads.
    async fn load(&self, seen: u64) -> Result<(), Error> {
        let _loading = self.loading.lock().await;
        if self.loads.load(Ordering::Acquire) > seen {
            return Ok(());
        }
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(script::SOURCE);
        self.send(&load).await?;
        self.loads.fetch_add(1, Ordering::Release);
        tracing::debug!(server = self.connector.server(), "script loaded");
        Ok(())
    }

    /// Bounds one operation in time. A late answer is thrown away; what was sent counts as spent.
    async fn bounded<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.timeout, operation).await {
            Ok(result) => result,
            Err(_) => {
                self.connector.suspect();
                Err(Error::unavailable(format!(
                    "{} did not answer within {:?}; the call may have been counted",
                    self.connector.server(),
                    self.timeout
                )))
            }
        }
    }

    fn told(&self, failure: Failure, name: &str) -> Error {
        match failure {
            Failure::Told(error) | Failure::Away(error) => error,
            Failure::NoScript => Error::unavailable(format!(
                "{} forgets the script as soon as it is loaded",
                self.connector.server()
            )),
            Failure::WrongType => Error::incompatible(format!(
                "key {:?} in {} holds something that is not a bucket; delete or rename it, or choose \
                 another ?prefix=",
                self.key(name),
                self.connector.server()
            )),
        }
    }

    /// Another process's policy; the same text is parsed once.
    fn policy(&self, text: String) -> Result<Arc<Policy>, Error> {
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(policy) = policies.get(&text) {
            return Ok(Arc::clone(policy));
        }
        let policy: Policy = text.parse().map_err(|error| unreadable(format!("{error}")))?;
        let policy = Arc::new(policy);
        if policies.len() >= POLICIES_KEPT {
            policies.clear();
        }
        policies.insert(text, Arc::clone(&policy));
        Ok(policy)
    }
}

/// The numbers of a reply, and the text behind them where there is one.
fn parts(reply: Value) -> Result<(Vec<i64>, Option<String>), Error> {
    let Value::Array(items) = reply else { return Err(unreadable(format!("{reply:?}"))) };
    let mut numbers = Vec::with_capacity(items.len());
    let mut text = None;
    for item in items {
        match item {
            Value::Int(number) if text.is_none() => numbers.push(number),
            Value::BulkString(bytes) if text.is_none() => {
                text =
                    Some(String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?);
            }
            other => return Err(unreadable(format!("{other:?}"))),
        }
    }
    Ok((numbers, text))
}

fn number(reply: Value) -> Result<i64, Error> {
    match parts(reply)?.0[..] {
        [number] => Ok(number),
        ref other => Err(unreadable(format!("{other:?}"))),
    }
}

fn flag(reply: Value) -> Result<bool, Error> {
    match number(reply)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(unreadable(other.to_string())),
    }
}

/// An answer that is not our script's. It is never taken for a grant.
fn unreadable(found: impl std::fmt::Display) -> Error {
    Error::incompatible(format!("the store answered what Paceline's script does not: {found}"))
}

/// A text as a glob pattern that matches just itself.
fn globbed(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
