//! What a server tells of itself in INFO, judged: version, memory, persistence, clients, replicas.
//! Pure: text in, facts and findings out. A field that a server does not print is not judged, since
//! servers that speak Redis differ in what they print.

use std::collections::HashMap;

use crate::error::Error;
use crate::examination::Sheet;

/// Memory and connections in use from which on it is said, in percent of what there may be.
const FULL_PERCENT: u64 = 80;
/// A replica that was last heard of longer ago than this lags; each tells of itself every second.
const LAG_MAX_S: u64 = 1;

/// The fields of INFO, and of CLUSTER INFO, which has the same form.
#[derive(Debug, Default)]
pub(super) struct Info(HashMap<String, String>);

/// A replica as its primary sees it.
#[derive(Debug, PartialEq, Eq)]
struct Replica {
    at: String,
    is_online: bool,
    behind_bytes: u64,
    silent_s: u64,
}

/// What is expected of a server's replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    /// How many must have a change before it is answered (`?replicas=`).
    pub(super) awaited: u32,
    /// Whether one is to take over when the server fails.
    pub(super) take_over: bool,
}

impl Info {
    pub(super) fn read(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    pub(super) fn is_replica(&self) -> bool {
        self.field("role") == Some("slave")
    }

    /// Whether a replica is behind, as far as this tells.
    pub(super) fn has_laggard(&self) -> bool {
        self.replicas().iter().any(Replica::lags)
    }

    /// Where its replicas are, as they tell it.
    pub(super) fn replica_addresses(&self) -> Vec<String> {
        self.replicas().into_iter().map(|replica| replica.at).collect()
    }

    fn replicas(&self) -> Vec<Replica> {
        let written = self.number("master_repl_offset").unwrap_or(0);
        let replica = |index: usize| {
            let line = self.field(&format!("slave{index}"))?;
            let field = |wanted: &str| {
                line.split(',').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='))
            };
            let number = |wanted| field(wanted).and_then(|it| it.parse::<u64>().ok());
            Some(Replica {
                at: format!("{}:{}", field("ip")?, field("port")?),
                is_online: field("state") == Some("online"),
                behind_bytes: written.saturating_sub(number("offset").unwrap_or(0)),
                silent_s: number("lag").unwrap_or(0),
            })
        };
        (0..).map_while(replica).collect()
    }

    /// Product, version and mode.
    pub(super) fn judge_server(&self, sheet: &mut Sheet) {
        if let Some(version) = product(self) {
            sheet.fact("version", version);
        }
        if let Some(mode) = self.field("redis_mode").or(self.field("server_mode")) {
            sheet.fact("mode", mode);
        }
        if let (Some(clients), Some(max)) =
            (self.number("connected_clients"), self.number("maxclients").filter(|max| *max > 0))
        {
            sheet.fact("clients", format!("{clients} of at most {max}"));
            if clients * 100 >= max * FULL_PERCENT {
                sheet.risk(
                    format!(
                        "{clients} of at most {max} clients are connected: further processes will \
                         not be let in, and find the store away"
                    ),
                    "raise maxclients, or find who keeps so many connections (CLIENT LIST); a \
                     process that uses Paceline has two or three",
                );
            }
        }
    }

    /// Memory, and what is thrown away when there is none left.
    pub(super) fn judge_memory(&self, sheet: &mut Sheet) {
        let max = self.number("maxmemory").filter(|max| *max > 0);
        if let Some(used) = self.number("used_memory") {
            sheet.fact(
                "memory",
                match max {
                    Some(max) => format!("{} of at most {}", bytes(used), bytes(max)),
                    None => format!("{}, without a maxmemory", bytes(used)),
                },
            );
            if let Some(max) = max.filter(|max| used * 100 >= max * FULL_PERCENT) {
                sheet.risk(
                    format!(
                        "{} % of maxmemory ({}) are in use; when it is full, no decision is made, \
                         or buckets are evicted",
                        used * 100 / max,
                        bytes(max)
                    ),
                    "raise maxmemory, or give Paceline a server of its own: a bucket takes a few \
                     hundred bytes",
                );
            }
        }
        let Some(policy) = self.field("maxmemory_policy") else { return };
        sheet.fact("eviction", policy);
        if policy != "noeviction" {
            let now =
                if max.is_none() { " (none is set now, so nothing is evicted yet)" } else { "" };
            sheet.risk(
                format!(
                    "maxmemory-policy {policy}: when maxmemory is reached{now} the server may evict \
                     buckets; an evicted bucket counts as full and its suspension as lifted"
                ),
                "CONFIG SET maxmemory-policy noeviction (and in redis.conf), or a server of its own",
            );
        }
    }

    /// What outlives a restart. `save` is the setting of that name, where we may read it.
    pub(super) fn judge_persistence(&self, save: Option<&str>, sheet: &mut Sheet) {
        let Some(aof) = self.field("aof_enabled") else { return };
        let aof = aof == "1";
        sheet.fact(
            "persistence",
            match (aof, save) {
                (true, Some("")) => "append-only file".to_owned(),
                (true, _) => "append-only file and snapshots".to_owned(),
                (false, Some("")) => "none".to_owned(),
                (false, Some(save)) => format!("snapshots ({save})"),
                (false, None) => "no append-only file; save points are not ours to read".to_owned(),
            },
        );
        if !aof && save == Some("") {
            sheet.note(
                "nothing is kept on disk: a restart of the server forgets all buckets, which then \
                 count as full, their suspensions as lifted and pinned policies as never set",
                "where that matters, CONFIG SET appendonly yes (and in redis.conf)",
            );
        }
        for (field, what) in [
            ("rdb_last_bgsave_status", "the last snapshot failed"),
            ("aof_last_write_status", "the last write to the append-only file failed"),
        ] {
            if self.field(field).is_some_and(|status| status != "ok") {
                sheet.risk(
                    format!(
                        "{what} ({field}): the server may refuse all writes (MISCONF), and then no \
                         decision is made"
                    ),
                    "see the server's log; most often its disk is full or its folder cannot be \
                     written",
                );
            }
        }
    }

    /// The replicas that a primary has, and how far behind they are.
    pub(super) fn judge_replicas(&self, expected: Replicas, sheet: &mut Sheet) {
        let Some(connected) = self.number("connected_slaves") else { return };
        let replicas = self.replicas();
        sheet.fact("replicas", connected.to_string());
        for replica in &replicas {
            let Replica { at, is_online, behind_bytes, silent_s } = replica;
            let state = if *is_online { "online" } else { "not online yet" };
            sheet.fact(
                "replica",
                format!("{at}, {state}, {behind_bytes} bytes behind, heard of {silent_s}s ago"),
            );
            if replica.lags() {
                sheet.risk(
                    format!(
                        "replica {at} lags ({state}, {behind_bytes} bytes behind, last heard of \
                         {silent_s}s ago): if it takes over now, what it has not heard is forgotten, \
                         and those calls are let through again"
                    ),
                    "see to that replica and to the network between the two; ?replicas=1 in the URL \
                     grants a call only when a replica has it",
                );
            }
        }
        if connected == 0 && expected.take_over {
            sheet.risk(
                "it has no replica: when it fails nothing takes over, and no decision is made until \
                 it is back",
                "add a replica",
            );
        }
        let online = replicas.iter().filter(|replica| replica.is_online).count();
        if (online as u64) < u64::from(expected.awaited) {
            let what = format!(
                "?replicas={} asks for more replicas than there are ({online} online): every call \
                 fails, and is counted all the same",
                expected.awaited
            );
            let error = Error::unavailable(what.clone());
            sheet.wrong(what, "add replicas, or lower ?replicas= in the URL", Some(error));
        }
    }
}

impl Replica {
    fn lags(&self) -> bool {
        !self.is_online || self.silent_s > LAG_MAX_S
    }
}

/// What the server is. Servers that took over from Redis print the version they are like as
/// `redis_version`, and their own beside it.
fn product(info: &Info) -> Option<String> {
    let like = info.field("redis_version");
    if let Some(own) = info.field("valkey_version") {
        return Some(match like {
            Some(like) => format!("Valkey {own} (works as Redis {like})"),
            None => format!("Valkey {own}"),
        });
    }
    match (info.field("server_name"), like) {
        (Some(name), Some(like)) if !name.eq_ignore_ascii_case("redis") => {
            Some(format!("{name} (works as Redis {like})"))
        }
        (_, Some(like)) => Some(format!("Redis {like}")),
        (Some(name), None) => Some(name.to_owned()),
        (None, None) => None,
    }
}

/// Bytes as a person reads them.
fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} bytes"),
        1_024..1_048_576 => format!("{} KiB", count / 1_024),
        1_048_576..1_073_741_824 => format!("{} MiB", count / 1_048_576),
        _ => format!("{}.{} GiB", count >> 30, ((count % (1 << 30)) * 10) >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examination::Severity;

    const EXPECTED: Replicas = Replicas { awaited: 0, take_over: false };

    fn judged(text: &str, save: Option<&str>, expected: Replicas) -> Sheet {
        let (info, mut sheet) = (Info::read(text), Sheet::default());
        info.judge_server(&mut sheet);
        info.judge_memory(&mut sheet);
        info.judge_persistence(save, &mut sheet);
        info.judge_replicas(expected, &mut sheet);
        sheet
    }

    #[track_caller]
    fn finds(text: &str, expected: Replicas, wanted: &[(Severity, &str)]) {
        let sheet = judged(text, Some(""), expected);
        let found: Vec<_> =
            sheet.findings().iter().map(|it| (it.severity, it.what.as_str())).collect();
        assert_eq!(found.len(), wanted.len(), "{text}: {found:?}");
        for ((severity, what), (wanted, word)) in found.iter().zip(wanted) {
            assert!(severity == wanted && what.contains(word), "{text}: {what}");
        }
    }

    #[test]
    fn each_setting_that_costs_buckets_is_found() {
        use Severity::{Note, Risk, Wrong};
        let of_three = Replicas { awaited: 1, take_over: true };
        for (text, expected, wanted) in [
            ("redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n", EXPECTED, &[][..]),
            ("maxmemory_policy:volatile-lru\r\nmaxmemory:0", EXPECTED, &[(Risk, "volatile-lru")]),
            ("used_memory:79\nmaxmemory:100", EXPECTED, &[]),
            ("used_memory:80\nmaxmemory:100", EXPECTED, &[(Risk, "80 %")]),
            ("connected_clients:79\nmaxclients:100", EXPECTED, &[]),
            ("connected_clients:80\nmaxclients:100", EXPECTED, &[(Risk, "80 of at most 100")]),
            ("aof_enabled:0", EXPECTED, &[(Note, "a restart")]),
            ("aof_enabled:1\naof_last_write_status:ok", EXPECTED, &[]),
            ("aof_enabled:1\naof_last_write_status:err", EXPECTED, &[(Risk, "MISCONF")]),
            ("aof_enabled:1\nrdb_last_bgsave_status:err", EXPECTED, &[(Risk, "snapshot failed")]),
            ("connected_slaves:0", EXPECTED, &[]),
            (
                "connected_slaves:0",
                of_three,
                &[(Risk, "no replica"), (Wrong, "?replicas=1 asks for more")],
            ),
            (
                "connected_slaves:1\nmaster_repl_offset:90\n\
                 slave0:ip=::1,port=7,state=online,offset=50,lag=1",
                of_three,
                &[],
            ),
            (
                "connected_slaves:2\nmaster_repl_offset:90\n\
                 slave0:ip=a,port=7,state=online,offset=50,lag=2\n\
                 slave1:ip=b,port=8,state=wait_bgsave,offset=0,lag=0",
                of_three,
                &[
                    (Risk, "replica a:7 lags (online, 40 bytes behind, last heard of 2s ago)"),
                    (Risk, "replica b:8 lags (not online yet"),
                ],
            ),
            ("", of_three, &[]),
            ("odd\n:\nslave0:x\nmaxclients:0\nconnected_clients:5", of_three, &[]),
        ] {
            finds(text, expected, wanted);
        }
    }

    #[test]
    fn a_setting_that_may_not_be_read_is_no_finding() {
        assert!(judged("aof_enabled:0", None, EXPECTED).findings().is_empty());
        let sheet = judged("aof_enabled:0", Some("3600 1"), EXPECTED);
        assert!(sheet.findings().is_empty());
        assert_eq!(sheet.facts()[0].is, "snapshots (3600 1)");
    }

    #[test]
    fn a_product_is_named_by_its_own_version() {
        for (text, wanted) in [
            ("redis_version:7.0.15", Some("Redis 7.0.15")),
            (
                "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1",
                Some("Valkey 8.0.1 (works as Redis 7.2.4)"),
            ),
            ("redis_version:7.2.4\nserver_name:other", Some("other (works as Redis 7.2.4)")),
            ("valkey_version:9.0.0", Some("Valkey 9.0.0")),
            ("server_name:other", Some("other")),
            ("", None),
        ] {
            assert_eq!(product(&Info::read(text)).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn bytes_are_told_in_a_unit_that_fits() {
        for (count, wanted) in [
            (1_023, "1023 bytes"),
            (916_760, "895 KiB"),
            (4 << 20, "4 MiB"),
            ((1 << 30) + (1 << 29), "1.5 GiB"),
        ] {
            assert_eq!(bytes(count), wanted);
        }
    }
}
