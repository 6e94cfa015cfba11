//! Buckets in Redis (6.2 or newer, or Valkey): one server, a primary behind Sentinels, or a
//! Cluster. One hash per bucket under `prefix{name}`, one EVALSHA per decision;
//! [`paceline_core::script`] knows arguments, replies and the hash. [`route`] finds the server that
//! has a bucket, [`connection`] keeps the one connection to each, [`failure`] says what an error
//! means, [`examine`] what is wrong or risky about the servers.
//!
//! What was sent and not answered is never sent again: it may have been executed, so it counts as
//! spent. Only answers that prove the contrary are followed, such as NOSCRIPT, by loading the
//! script and asking once more; any number of calls that meet it wait for one load.
//!
//! The rights that a user restricted by ACL needs are told in OPERATING.md.

mod access;
mod address;
mod cluster;
mod connection;
mod examine;
mod failure;
mod route;
mod sentinel;
#[cfg(test)]
mod tests;
pub(crate) mod url;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_core::script::{self, Call};
use paceline_core::{
    Ask, Booking, Group, Look, Lowered, Micros, Policy, Probed, Refused, Remaining, Suspension,
};
use redis::Value;

use self::connection::Connector;
use self::failure::Failure;
use self::route::Route;
use self::url::RedisUrl;
pub(crate) use self::words::Words;
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
    /// Who we are to the servers.
    user: String,
    timeout: Duration,
    /// The script's SHA-1, by which it is called.
    sha: String,
    route: Route,
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
            user: url.login.user.clone().unwrap_or_else(|| "default".to_owned()),
            timeout,
            sha: redis::Script::new(script::SOURCE).get_hash().to_owned(),
            route: Route::open(url, timeout).await?,
            policies: Mutex::default(),
        })
    }

    pub(crate) async fn take(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        ask: Ask,
    ) -> Result<Taken, Error> {
        if script::has_units(policy, &ask.cost) {
            let Batched { batch, policy, doubted } =
                self.batch(name, policy, &[Group { ask, calls: 1 }]).await?;
            let decision = batch.first(ask.cost);
            let decision = decision.ok_or_else(|| unreadable("a call was not answered"))?;
            return Ok(Taken { decision, policy, doubted });
        }
        let reply = match self.call(name, &Call::Take { policy, ask }).await? {
            Value::BulkString(clock) => {
                let clock = String::from_utf8_lossy(&clock);
                let decision = script::usual_grant(&clock, policy, ask.cost).map_err(unreadable)?;
                return Ok(Taken { decision, policy: None, doubted: false });
            }
            other => other,
        };
        let (numbers, text) = parts(reply)?;
        let decision = script::decision(&numbers, ask.cost).map_err(unreadable)?;
        let policy = text.map(|text| self.policy(text)).transpose()?;
        Ok(Taken { decision, policy, doubted: false })
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
        Ok(Batched { batch, policy, doubted: false })
    }

    pub(crate) async fn give_back(&self, name: &str, booking: Booking) -> Result<bool, Error> {
        flag(self.call(name, &Call::GiveBack(booking)).await?)
    }

    pub(crate) async fn answered(&self, name: &str, booking: Booking) -> Result<bool, Error> {
        flag(self.call(name, &Call::Answered(booking)).await?)
    }

    pub(crate) async fn lower(
        &self,
        name: &str,
        said: Remaining,
        why: Suspension,
    ) -> Result<Lowered, Error> {
        let (numbers, _) = parts(self.call(name, &Call::Lower { said, why: &why }).await?)?;
        script::lowered(&numbers).map_err(unreadable)
    }

    pub(crate) async fn refused(
        &self,
        name: &str,
        by: u32,
        for_us: Micros,
        patience_us: Micros,
        why: Suspension,
    ) -> Result<Refused, Error> {
        let call = Call::Refused { by, for_us, patience_us, why: &why };
        let (numbers, _) = parts(self.call(name, &call).await?)?;
        script::refused(&numbers).map_err(unreadable)
    }

    pub(crate) async fn passed(&self, name: &str) -> Result<bool, Error> {
        flag(self.call(name, &Call::Passed).await?)
    }

    pub(crate) async fn suspend(
        &self,
        name: &str,
        for_us: Micros,
        patience_us: Micros,
        why: Suspension,
    ) -> Result<Micros, Error> {
        number(self.call(name, &Call::Suspend { for_us, patience_us, why: &why }).await?)
    }

    pub(crate) async fn probe(&self, name: &str, booking: Booking) -> Result<Probed, Error> {
        let (numbers, _) = parts(self.call(name, &Call::Probe(booking)).await?)?;
        script::probed(&numbers).map_err(unreadable)
    }

    pub(crate) async fn probed(&self, name: &str, patience_us: Micros) -> Result<bool, Error> {
        flag(self.call(name, &Call::Probed { patience_us }).await?)
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

    pub(crate) async fn set_if(
        &self,
        name: &str,
        expected: &Policy,
        policy: &Arc<Policy>,
    ) -> Result<bool, Error> {
        flag(self.call(name, &Call::SetIf { expected, policy }).await?)
    }

    pub(crate) async fn look(&self, name: &str) -> Result<Look, Error> {
        let (now, fields) = self.hash(name).await?;
        let bucket = script::bucket(&fields).map_err(unreadable)?;
        Ok(Look { now, bucket })
    }

    /// Looks first: what is not a bucket is not ours to delete.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool, Error> {
        let key = self.key(name);
        if self.hash(name).await?.1.is_empty() {
            return Ok(false);
        }
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(&key);
        let was = self.bounded(&key, self.route.send(&unlink, &key)).await?;
        let was = matches!(was, Value::Int(1..));
        if was {
            // Who waits looks again also where this is not allowed or lost.
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(&key).arg("deleted");
            let _ = self.bounded(&key, self.route.send(&publish, &key)).await;
        }
        Ok(was)
    }

    /// Names by SCAN, which never blocks a server for long, of all servers one after the other; and
    /// what failed where one did not answer. Each step is bounded in time.
    pub(crate) async fn list(&self) -> (Vec<String>, Option<Error>) {
        // Says why where there is no server.
        let mut failed = self.route.any().err();
        let mut names = Vec::new();
        for server in self.route.all() {
            if let Err(error) = self.list_of(&server, &mut names).await {
                failed = Some(error);
            }
        }
        // SCAN may tell a key twice, and two servers while its slot moves.
        names.sort_unstable();
        names.dedup();
        (names, failed)
    }

    async fn list_of(&self, server: &Connector, names: &mut Vec<String>) -> Result<(), Error> {
        let pattern = format!("{}{{*}}", globbed(&self.prefix));
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let step = async {
                let reply = server.send(&scan, false, 0).await;
                reply.map_err(|failure| failure.told(server.server(), &pattern))
            };
            let reply = tokio::time::timeout(self.timeout, step).await;
            let reply = reply.unwrap_or_else(|_| {
                server.suspect();
                Err(self.late(server.server()))
            })?;
            let (next, keys): (u64, Vec<Vec<u8>>) =
                redis::from_redis_value(reply).map_err(|error| unreadable(error.to_string()))?;
            names.extend(keys.iter().filter_map(|key| self.name(key)));
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
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

    /// The server's time and the fields of a bucket, none where there is none. A bucket of a version
    /// that cannot be read is one, too; a key that holds something else is an error.
    async fn hash(&self, name: &str) -> Result<(Micros, HashMap<String, String>), Error> {
        let reply = self.call(name, &Call::Look).await?;
        let (now, fields): (Micros, HashMap<Vec<u8>, Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|error| unreadable(error.to_string()))?;
        let text = |bytes| String::from_utf8(bytes).ok();
        // All that we write is text.
        let fields: Option<HashMap<String, String>> =
            fields.into_iter().map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        match fields.filter(|fields| fields.is_empty() || script::is_bucket(fields)) {
            Some(fields) => Ok((now, fields)),
            None => {
                let key = self.key(name);
                Err(Failure::NotOurs.told(&self.server_of(&key), &key))
            }
        }
    }

    /// Runs the script on a bucket.
    async fn call(&self, name: &str, call: &Call<'_>) -> Result<Value, Error> {
        let key = self.key(name);
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(&self.sha).arg(1).arg(&key);
        for arg in call.args(self.clock.given()) {
            evalsha.arg(&*arg);
        }
        self.bounded(&key, self.route.send(&evalsha, &key)).await
    }

    /// Bounds one operation in time. A late answer is thrown away; what was sent counts as spent.
    async fn bounded<T>(
        &self,
        key: &str,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.timeout, operation).await {
            Ok(result) => result,
            Err(_) => {
                self.route.suspect(key);
                Err(self.late(&self.server_of(key)))
            }
        }
    }

    /// The server that has a key, for messages.
    fn server_of(&self, key: &str) -> String {
        let server = self.route.of(key);
        server.map_or_else(|error| error.to_string(), |server| server.server().to_owned())
    }

    fn late(&self, server: &str) -> Error {
        Error::unavailable(format!(
            "{server} did not answer within {:?}; the call may have been counted (a server far away \
             needs a longer timeout: three times there and back)",
            self.timeout
        ))
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
