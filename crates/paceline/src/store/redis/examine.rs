//! What there is to say of the servers of a store: how they answer, what they tell of themselves
//! ([`info`]), whether they let us do what is needed ([`rights`]), whether the servers there are
//! make the whole that the URL names. Everything is tried as a process that decides would, over its
//! connection, on a bucket that nobody uses.
//!
//! A server may be slow, away, restricted or none that we know, so each step is bounded by the
//! store's timeout and all of them together by [`WHOLE`], and none has to succeed: what could not be
//! seen is left out, and what that means is a finding.

mod info;
mod rights;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use paceline_core::{Ask, Policy};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use self::info::{Info, Replicas};
use self::rights::{Missing, Right};
use super::Redis;
use super::address::Address;
use super::connection::{Connector, Finds, connect, no_connection};
use super::failure::Failure;
use super::sentinel::Sentinels;
use crate::clock::Clock;
use crate::error::Error;
use crate::examination::{
    Examination, PROBE_POLICY, Sheet, per_second, percentile, probe_name, told,
};

/// All steps together, unless two of them alone may take longer.
const WHOLE: Duration = Duration::from_secs(5);
/// Round trips measured, and how long that may take.
const PINGS: usize = 200;
const PINGS_FOR: Duration = Duration::from_secs(1);
/// Decisions under way at a time, and for how long they are measured.
const AT_A_TIME: usize = 64;
/// Fewer where each holds up those behind it until replicas have it.
const AT_A_TIME_REPLICAS: usize = 8;
const RATE_FOR: Duration = Duration::from_millis(300);
const RATE_MAX: u64 = 2_000;
/// Before a replica that seems to lag is looked at again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Looks at the server's clock; the one that took the shortest tells.
const CLOCK_LOOKS: usize = 5;
/// How far apart clocks may be before it is said, and before it is a risk.
const CLOCK_NOTE_US: i64 = 1_000_000;
const CLOCK_RISK_US: i64 = 60_000_000;
/// Names tried for a key that a certain node of a Cluster has. One with a single slot takes some
/// sixteen thousand.
const NAMES_MAX: usize = 200_000;

impl Redis {
    /// Looks at all servers.
    pub(crate) async fn examine(&self, found: &mut Examination) {
        let end = Instant::now() + WHOLE.max(self.timeout * 2);
        let mut whole = Sheet::default();
        whole.fact("timeout", told(whole_micros(self.timeout)));
        self.examine_topology(&mut whole).await;
        let looks = self.route.all().into_iter().map(|server| Probe::new(self, server, end).look());
        let mut probes = join_all(looks).await;
        probes.sort_by(|a, b| a.server.cmp(&b.server));
        if self.route.cluster().is_some() {
            let replicas: u64 =
                probes.iter().filter_map(|it| it.info.number("connected_slaves")).sum();
            whole.fact(
                "topology",
                format!("a Cluster of {} primaries and {replicas} replicas", probes.len()),
            );
        }
        if let (Some(sentinels), [primary]) = (self.route.sentinels(), &probes[..])
            && let Some(at) = primary.connector.address()
        {
            let addresses = primary.info.replica_addresses();
            let addresses = addresses.iter().filter_map(|told| Address::told(told, &at));
            let looks = addresses.map(|address| self.examine_heir(sentinels, address));
            join_all(looks).await.into_iter().for_each(|sheet| found.take_in(sheet));
        }
        found.take_in(whole);
        // One after the other: at once they would measure each other.
        for mut probe in probes {
            probe.measure().await;
            found.take_in(probe.sheet);
        }
    }

    /// Whether a replica could take over: it lets us in, and keeps what it is given.
    async fn examine_heir(&self, sentinels: &Sentinels, address: Address) -> Sheet {
        let mut sheet = Sheet::of_server(address.to_string());
        let asking = async {
            let client = sentinels.client(&address)?;
            let cannot = |error| no_connection(&error, &address.to_string());
            let mut connection = connect(&client).await.map_err(cannot)?;
            redis::cmd("INFO").arg("memory").query_async::<String>(&mut connection).await.or_else(
                // Who may not ask is let in all the same.
                |error| {
                    if error.code() == Some("NOPERM") {
                        Ok(String::new())
                    } else {
                        Err(cannot(error))
                    }
                },
            )
        };
        let answer = tokio::time::timeout(self.timeout * 2, asking).await;
        match answer.unwrap_or_else(|_| Err(self.late(&address.to_string()))) {
            Ok(info) => Info::read(&info).judge_memory(&mut sheet),
            Err(error) => sheet.risk(
                format!("a replica that may take over does not let us work: {error}"),
                "see that it is reached from here, and that it has the same password and the same ACL \
                 users as the primary; they are not replicated",
            ),
        }
        sheet
    }

    /// Whether the servers make the whole that the URL names.
    async fn examine_topology(&self, sheet: &mut Sheet) {
        if let Some(cluster) = self.route.cluster() {
            // An unanswered look leaves the map as it was.
            let _ = tokio::time::timeout(self.timeout, cluster.read_anew()).await;
            if cluster.owners().is_empty() {
                if let Err(error) = self.route.any() {
                    sheet.failed(&error);
                }
                return;
            }
            judge_slots(cluster.uncovered(), sheet);
        } else if let Some(sentinels) = self.route.sentinels() {
            sheet.fact("topology", format!("primary {:?} behind sentinels", sentinels.service()));
            judge_sentinels(&sentinels.survey().await, sheet);
        } else {
            sheet.fact("topology", "one server");
        }
    }
}

/// One server while it is looked at.
struct Probe<'a> {
    redis: &'a Redis,
    connector: Connector,
    server: String,
    /// `None` once it was found away, which is then written down.
    connection: Option<MultiplexedConnection>,
    /// Why the store has no connection to it.
    refused: Option<Error>,
    bucket: String,
    key: String,
    end: Instant,
    info: Info,
    missing: Missing,
    /// Whether it sent us on to another node.
    moved: bool,
    sheet: Sheet,
}

impl<'a> Probe<'a> {
    fn new(redis: &'a Redis, connector: Connector, end: Instant) -> Self {
        let server = connector.at();
        // In a Cluster the server must have the bucket that is tried on it.
        let is_here = |name: &String| {
            let owner = redis.route.of(&redis.key(name));
            owner.is_ok_and(|owner| owner.at() == server)
        };
        let mut names = std::iter::repeat_with(probe_name).take(NAMES_MAX);
        let bucket = names.find(is_here).unwrap_or_else(probe_name);
        Self {
            redis,
            connection: None,
            refused: None,
            key: redis.key(&bucket),
            bucket,
            end,
            info: Info::default(),
            missing: Missing::default(),
            moved: false,
            sheet: Sheet::of_server(&server),
            connector,
            server,
        }
    }

    /// All but what is measured.
    async fn look(mut self) -> Self {
        self.refused = self.connect().await;
        self.look_at_info().await;
        self.look_at_clock().await;
        self.look_at_script().await;
        self.look_at_rights().await;
        self.judge_moved();
        self
    }

    /// Takes the store's connection; where there is none says why, and makes one of its own to a
    /// server that answers and may not decide.
    async fn connect(&mut self) -> Option<Error> {
        let got = tokio::time::timeout(self.redis.timeout, self.connector.get()).await;
        let error = match got {
            Ok(Ok(connected)) => {
                self.connection = Some(connected.connection);
                return None;
            }
            Ok(Err(error)) => error,
            Err(_) => self.redis.late(&self.server),
        };
        if let Finds::At(_, client) = self.connector.finds() {
            let own = tokio::time::timeout(self.redis.timeout, connect(client)).await;
            self.connection = own.ok().and_then(Result::ok);
        }
        Some(error)
    }

    async fn look_at_info(&mut self) {
        let is_cluster = self.redis.route.cluster().is_some();
        if let Some(answer) = self.attempt(rights::INFO).await {
            self.info = Info::read(&text(&answer).unwrap_or_default());
        }
        if self.info.has_laggard() {
            // Replicas tell of themselves once a second, and one that was late once is none.
            tokio::time::sleep(AGAIN_AFTER).await;
            if let Some(answer) = self.attempt(rights::INFO).await {
                self.info = Info::read(&text(&answer).unwrap_or_default());
            }
        }
        self.info.judge_server(&mut self.sheet);
        let role = match self.attempt(rights::ROLE).await {
            Some(Value::Array(role)) => role.first().and_then(text),
            _ => None,
        };
        let is_replica = self.info.is_replica() || role.as_deref() == Some("slave");
        if let Some(role) = role.as_deref().or(self.info.field("role")) {
            let role = match role {
                "master" => "primary",
                "slave" => "replica",
                other => other,
            };
            self.sheet.fact("role", role);
        }
        if is_replica {
            self.judge_replica();
        } else if let Some(error) = &self.refused {
            self.sheet.failed(error);
        }
        self.info.judge_memory(&mut self.sheet);
        let save = self.save_points().await;
        self.info.judge_persistence(save.as_deref(), &mut self.sheet);
        if !is_replica {
            let expected = Replicas {
                awaited: self.redis.route.replicas(),
                take_over: is_cluster || self.redis.route.sentinels().is_some(),
            };
            self.info.judge_replicas(expected, &mut self.sheet);
        }
        if is_cluster {
            self.look_at_cluster().await;
        }
    }

    fn judge_replica(&mut self) {
        let of = match (self.info.field("master_host"), self.info.field("master_port")) {
            (Some(host), Some(port)) => format!(" of {host}:{port}"),
            _ => String::new(),
        };
        let what = format!("it is a replica{of}, and only a primary can decide: every call fails");
        let advice = "name the primary, or what follows it: redis+sentinel:// with the sentinels, \
                      redis-cluster:// with the nodes";
        let error = self.refused.clone().unwrap_or_else(|| Error::unavailable(what.clone()));
        self.sheet.wrong(what, advice, Some(error));
    }

    /// The setting `save`, which a user needs more rights for than decisions do.
    async fn save_points(&mut self) -> Option<String> {
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("save");
        match self.ask(&config).await?.ok()? {
            Value::Array(pair) => pair.get(1).and_then(text),
            Value::Map(pairs) => pairs.first().and_then(|(_, value)| text(value)),
            _ => None,
        }
    }

    /// What the node thinks of its Cluster. Not needed, so a right that is missing is no finding.
    async fn look_at_cluster(&mut self) {
        self.attempt(rights::CLUSTER_SLOTS).await;
        let mut cluster = redis::cmd("CLUSTER");
        cluster.arg("INFO");
        let Some(Ok(answer)) = self.ask(&cluster).await else { return };
        let cluster = Info::read(&text(&answer).unwrap_or_default());
        let Some(state) = cluster.field("cluster_state") else { return };
        self.sheet.fact("cluster state", state);
        if state != "ok" {
            let what = format!("this node takes its Cluster for down (cluster_state:{state})");
            let error = Error::unavailable(what.clone());
            let advice = "see which nodes and slots are missing there: CLUSTER NODES, redis-cli \
                          --cluster check";
            self.sheet.wrong(what, advice, Some(error));
        }
    }

    /// The server's clock against this machine's.
    async fn look_at_clock(&mut self) {
        // Whatever clock the store was given: the system's is the machine's.
        let machine = Clock::System;
        let mut nearest: Option<(i64, i64)> = None;
        for _ in 0..CLOCK_LOOKS {
            let before = machine.now();
            let Some(answer) = self.attempt(rights::TIME).await else { break };
            let after = machine.now();
            let Some(server) = time(&answer) else { break };
            let took = (after - before).max(0);
            if nearest.is_none_or(|(best, _)| took < best) {
                nearest = Some((took, server - (before + took / 2)));
            }
        }
        if let Some((took, ahead)) = nearest {
            judge_clock(ahead, took, &mut self.sheet);
        }
    }

    /// Whether the script is loaded; one that is not is loaded by the first call.
    async fn look_at_script(&mut self) {
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(&self.redis.sha).arg(1).arg(&self.key).arg("look");
        let Some(answer) = self.ask(&evalsha).await else { return };
        let is_loaded = match answer {
            Ok(_) => true,
            Err(error) if self.missing.noted(rights::EVALSHA, &error) => return,
            Err(error) => error.code() != Some("NOSCRIPT"),
        };
        let is = if is_loaded { "loaded" } else { "not loaded; the first call loads it" };
        self.sheet.fact("script", is);
    }

    async fn look_at_rights(&mut self) {
        use self::rights::*;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(paceline_core::script::SOURCE);
        self.attempt_with(SCRIPT_LOAD, &load).await;
        let all = [HGET, HMGET, HGETALL, HSET, HDEL, PEXPIRE, PING, UNLINK, SCAN, PUBLISH];
        for right in all {
            self.attempt(right).await;
        }
        if self.redis.route.replicas() > 0 {
            self.attempt(WAIT).await;
        }
        self.try_to_listen().await;
        if self.connection.is_some() {
            let (user, prefix) = (&self.redis.user, &self.redis.prefix);
            self.missing.judge(user, prefix, &self.server, &mut self.sheet);
        }
    }

    /// Subscribes over a connection of its own, as who waits does.
    async fn try_to_listen(&mut self) {
        if self.connection.is_none() {
            return;
        }
        let listening = async {
            let (client, _) = self.connector.client().await.ok()?;
            let subscribing = async {
                let mut subscribed = client.get_async_pubsub().await?;
                subscribed.psubscribe(self.redis.words_pattern()).await
            };
            Some(subscribing.await)
        };
        if let Ok(Some(Err(error))) = tokio::time::timeout(self.redis.timeout, listening).await {
            self.missing.noted(rights::PSUBSCRIBE, &error);
        }
    }

    /// A node of a Cluster that is named as if it were alone.
    fn judge_moved(&mut self) {
        let is_node = self.info.field("redis_mode") == Some("cluster") || self.moved;
        if !is_node || self.redis.route.cluster().is_some() {
            return;
        }
        let what = "it is a node of a Cluster, and the URL names it as if it were alone: calls for \
                    buckets that other nodes have fail";
        let error = Error::unavailable(format!("{}: {what}", self.server));
        let advice =
            format!("spell the store redis-cluster://{} (rediss-cluster:// with TLS)", self.server);
        self.sheet.wrong(what, advice, Some(error));
    }

    /// Latency and decisions a second.
    async fn measure(&mut self) {
        self.measure_latency().await;
        // Where something is wrong already there is nothing to measure, and why is told.
        if self.refused.is_none() && self.connection.is_some() && !self.sheet.is_wrong() {
            self.measure_rate().await;
        }
    }

    async fn measure_latency(&mut self) {
        let ping = if self.missing.lacks(rights::PING) { "TIME" } else { "PING" };
        let ping = redis::cmd(ping);
        let mut took = Vec::with_capacity(PINGS);
        let start = Instant::now();
        while took.len() < PINGS && start.elapsed() < PINGS_FOR && Instant::now() < self.end {
            let sent = Instant::now();
            let Some(Ok(_)) = self.ask(&ping).await else { break };
            took.push(whole_micros(sent.elapsed()));
        }
        if took.is_empty() {
            return;
        }
        took.sort_unstable();
        let (p50, p99) = (percentile(&took, 50), percentile(&took, 99));
        self.sheet.fact(
            "latency",
            format!("p50 {}, p99 {} ({} round trips)", told(p50), told(p99), took.len()),
        );
        judge_latency(p99, self.redis.timeout, &mut self.sheet);
    }

    /// Real decisions on a bucket of this server's. What is left of it evaporates by itself should
    /// this be dropped half way.
    async fn measure_rate(&mut self) {
        let Ok(policy) = PROBE_POLICY.parse::<Policy>() else { return };
        let (redis, policy) = (self.redis, Arc::new(policy));
        let take = || redis.take(&self.bucket, &policy, Ask { cost: 1.into(), wait_max_us: 0 });
        if Instant::now() >= self.end {
            self.sheet.fact("decisions", "not measured: no time was left");
            return;
        }
        let at_a_time = match redis.route.replicas() {
            0 => AT_A_TIME,
            _ => AT_A_TIME_REPLICAS,
        };
        // The first loads the script where need be, which far away takes longer than a call may.
        let mut result = take().await.map(|_| ());
        if result.as_ref().is_err_and(Error::is_unavailable) {
            result = take().await.map(|_| ());
        }
        let start = Instant::now();
        let (count, overloaded) = (AtomicU64::new(0), Mutex::new(None));
        if result.is_ok() {
            let callers = (0..at_a_time).map(|_| async {
                // Few enough that whoever looks every minute does not fill an AOF.
                while start.elapsed() < RATE_FOR && count.load(Ordering::Relaxed) < RATE_MAX {
                    match take().await {
                        Ok(_) => count.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            *overloaded.lock().unwrap_or_else(PoisonError::into_inner) =
                                Some(error);
                            return;
                        }
                    };
                }
            });
            join_all(callers).await;
        }
        let (span, count) = (start.elapsed(), count.into_inner());
        let overloaded = overloaded.into_inner().unwrap_or_else(PoisonError::into_inner);
        // One that may not delete, or whose server is away by now, leaves it to its expiry.
        let _ = redis.delete(&self.bucket).await;
        match (result, overloaded) {
            (Ok(()), None) => {
                let rate = per_second(count, span);
                self.sheet.fact("decisions", format!("{rate}, {at_a_time} at a time"));
            }
            (Ok(()), Some(error)) if error.is_unavailable() => self.sheet.risk(
                format!("answers one call, and not {at_a_time} at a time: {error}"),
                "see what keeps the server or this machine busy; where the server is far away, a \
                 longer timeout",
            ),
            (Ok(()), Some(error)) | (Err(error), _) => self.sheet.failed(&error),
        }
    }

    /// Tries a right the harmless way; what was answered where it is there.
    async fn attempt(&mut self, right: Right) -> Option<Value> {
        let command = rights::harmless(right, &self.key);
        self.attempt_with(right, &command).await
    }

    async fn attempt_with(&mut self, right: Right, command: &Cmd) -> Option<Value> {
        match self.ask(command).await? {
            Ok(value) => Some(value),
            Err(error) => {
                self.missing.noted(right, &error);
                None
            }
        }
    }

    /// Sends one command; `None` where the server is away, which is written down once.
    async fn ask(&mut self, command: &Cmd) -> Option<Result<Value, RedisError>> {
        let connection = self.connection.as_mut()?;
        let left = self.end.saturating_duration_since(Instant::now());
        let asking = connection.send_packed_command(command);
        let answer = tokio::time::timeout(self.redis.timeout.min(left), asking).await;
        let away = match answer {
            Ok(answer) => match answer.and_then(Value::extract_error) {
                Err(error) => match Failure::of(&error, &self.server) {
                    Failure::Away(error) => error,
                    failure => {
                        self.moved |= matches!(failure, Failure::Moved { .. });
                        return Some(Err(error));
                    }
                },
                answer => return Some(answer),
            },
            Err(_) => {
                // So that the store's own connection is looked after, as when a call is late.
                self.connector.suspect();
                self.redis.late(&self.server)
            }
        };
        self.connection = None;
        if self.refused.is_none() {
            self.sheet.failed(&away);
        }
        None
    }
}

fn judge_slots(uncovered: usize, sheet: &mut Sheet) {
    if uncovered == 0 {
        sheet.fact("slots", "all 16384 have a node");
        return;
    }
    let what = format!("{uncovered} of 16384 slots have no node: calls for their buckets fail");
    let error = Error::unavailable(what.clone());
    let advice = "give them to nodes: redis-cli --cluster fix";
    sheet.wrong(what, advice, Some(error));
}

/// What each sentinel answered: who is the primary, that it knows no such service, or nothing.
fn judge_sentinels(answers: &[(Address, Result<Option<Address>, Error>)], sheet: &mut Sheet) {
    let mut named: Vec<&Address> = Vec::new();
    let (mut answering, mut unknowing, mut silent, mut forbidden) =
        (0, Vec::new(), Vec::new(), false);
    for (sentinel, answer) in answers {
        match answer {
            Ok(Some(primary)) => {
                answering += 1;
                if !named.contains(&primary) {
                    named.push(primary);
                }
            }
            Ok(None) => unknowing.push(sentinel.to_string()),
            Err(error) => {
                forbidden |= error.is_forbidden();
                silent.push(format!("{sentinel} ({error})"));
            }
        }
    }
    let names: Vec<String> = named.iter().map(|it| it.to_string()).collect();
    let all = answers.len();
    sheet.fact(
        "sentinels",
        match &names[..] {
            [] => format!("{answering} of {all} name a primary"),
            names => format!("{answering} of {all} name a primary: {}", names.join(", ")),
        },
    );
    if names.len() > 1 {
        sheet.risk(
            format!("the sentinels do not agree on the primary: {}", names.join(", ")),
            "just after a failover this passes; where it stays, see which sentinel is cut off from \
             the others (SENTINEL CKQUORUM)",
        );
    }
    if !unknowing.is_empty() {
        sheet.risk(
            format!("these sentinels do not know the service: {}", unknowing.join(", ")),
            "have them watch it (SENTINEL MONITOR), or take them out of the URL",
        );
    }
    if !silent.is_empty() {
        let advice = if forbidden {
            "give the right ?sentinel_user= and ?sentinel_password=; that user needs \
             +sentinel|get-master-addr-by-name"
        } else {
            "start them, or take those that are gone out of the URL: when too few are left, no \
             replica takes over"
        };
        let count = silent.len();
        sheet.risk(
            format!("{count} of {all} sentinels do not answer: {}", silent.join("; ")),
            advice,
        );
    }
    if all == 1 {
        sheet.note(
            "the URL names one sentinel alone: while that one is down, a process that starts does \
             not find the primary",
            "name all of them, separated by commas",
        );
    }
}

/// `ahead` of this machine's clock, by a look that took `took`, both in microseconds.
fn judge_clock(ahead: i64, took: i64, sheet: &mut Sheet) {
    let apart = told(ahead.unsigned_abs());
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let sure = told(took.unsigned_abs() / 2);
    sheet.fact("clock", format!("{apart} {side} this machine's, give or take {sure}"));
    let what = || {
        format!(
            "the server's clock is {apart} {side} this machine's. Decisions use the server's clock \
             alone, so processes with wrong clocks do no harm; but a failover to a server whose \
             clock is ahead of the one before gives every bucket that time at once, as if it had \
             passed, and ends suspensions that much earlier (one that is behind costs nothing)"
        )
    };
    let advice = "have both machines set their clocks by NTP";
    if ahead.abs() > CLOCK_RISK_US {
        sheet.risk(what(), advice);
    } else if ahead.abs() > CLOCK_NOTE_US {
        sheet.note(what(), advice);
    }
}

fn judge_latency(p99_us: u64, timeout: Duration, sheet: &mut Sheet) {
    if Duration::from_micros(p99_us) * 2 > timeout {
        sheet.risk(
            format!(
                "one round trip in a hundred takes {} or longer, more than half of the timeout \
                 ({}): calls will find the store away although it is there",
                told(p99_us),
                told(whole_micros(timeout))
            ),
            "raise --timeout (LimiterBuilder::timeout), or bring the server nearer",
        );
    }
}

/// The answer to TIME in microseconds.
fn time(answer: &Value) -> Option<i64> {
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let number = |value: &Value| text(value)?.parse::<i64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn whole_micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examination::Severity;

    #[track_caller]
    fn finds(sheet: &Sheet, wanted: &[(Severity, &str)]) {
        let found: Vec<_> =
            sheet.findings().iter().map(|it| (it.severity, it.what.as_str())).collect();
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        for ((severity, what), (wanted, word)) in found.iter().zip(wanted) {
            assert!(severity == wanted && what.contains(word), "{what}");
        }
    }

    #[test]
    fn clocks_that_differ_are_told_by_how_much() {
        use Severity::{Note, Risk};
        for (ahead, wanted) in [
            (0, None),
            (1_000_000, None),
            (1_000_001, Some((Note, "1s ahead of"))),
            (-3_200_000, Some((Note, "3.2s behind"))),
            (60_000_000, Some((Note, "60s ahead of"))),
            (-60_000_001, Some((Risk, "60s behind"))),
            (i64::MIN + 1, Some((Risk, "behind"))),
        ] {
            let mut sheet = Sheet::default();
            judge_clock(ahead, 400, &mut sheet);
            finds(&sheet, &wanted.into_iter().collect::<Vec<_>>());
            assert!(sheet.facts()[0].is.ends_with("give or take 200us"), "{:?}", sheet.facts());
        }
    }

    #[test]
    fn a_slow_server_is_a_risk_when_calls_may_be_late() {
        let timeout = Duration::from_millis(250);
        for (p99, wanted) in
            [(125_000, &[][..]), (125_001, &[(Severity::Risk, "more than half of the timeout")])]
        {
            let mut sheet = Sheet::default();
            judge_latency(p99, timeout, &mut sheet);
            finds(&sheet, wanted);
        }
    }

    #[test]
    fn sentinels_are_counted_and_compared() {
        use Severity::{Note, Risk};
        let at = |port| Address { host: "h".to_owned(), port };
        let yes = |port, primary| (at(port), Ok(Some(at(primary))));
        let no = |port| (at(port), Err(Error::unavailable("away")));
        for (answers, wanted) in [
            (vec![yes(1, 9), yes(2, 9), yes(3, 9)], &[][..]),
            (vec![yes(1, 9)], &[(Note, "one sentinel alone")]),
            (vec![yes(1, 9), no(2), yes(3, 9)], &[(Risk, "1 of 3 sentinels do not answer: h:2")]),
            (vec![yes(1, 9), yes(2, 8)], &[(Risk, "do not agree on the primary: h:9, h:8")]),
            (vec![yes(1, 9), (at(2), Ok(None))], &[(Risk, "do not know the service: h:2")]),
        ] {
            let mut sheet = Sheet::default();
            judge_sentinels(&answers, &mut sheet);
            finds(&sheet, wanted);
        }
    }

    #[test]
    fn slots_without_a_node_are_wrong() {
        let mut sheet = Sheet::default();
        judge_slots(0, &mut sheet);
        finds(&sheet, &[]);
        judge_slots(5_461, &mut sheet);
        finds(&sheet, &[(Severity::Wrong, "5461 of 16384")]);
    }

    #[test]
    fn an_odd_time_is_none() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(time(&Value::Array(vec![bulk("7"), bulk("5")])), Some(7_000_005));
        for odd in [
            Value::Okay,
            Value::Array(vec![bulk("7")]),
            Value::Array(vec![bulk("x"), bulk("5")]),
            Value::Array(vec![bulk("9223372036854775807"), bulk("5")]),
        ] {
            assert_eq!(time(&odd), None);
        }
    }
}
