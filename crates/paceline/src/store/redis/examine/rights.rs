//! The rights a user needs, and how one that is missing is read from what a server answers. Each is
//! tried on a key that nobody uses, with arguments that change nothing: a server asks for the right
//! before it looks at them.

use redis::{Cmd, RedisError};

use super::super::globbed;
use crate::error::Error;
use crate::examination::{Severity, Sheet};

/// A right in ACL syntax, and what is lost without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) acl: &'static str,
    pub(super) severity: Severity,
    lost: &'static str,
}

const DECISIONS: &str = "no decision can be made";
const CHANGES: &str = "who waits notices a suspension, a resume or a new policy within 90 ms rather \
                       than at once";

/// One right of those without which nothing can be decided.
const fn needed(acl: &'static str) -> Right {
    Right { acl, severity: Severity::Wrong, lost: DECISIONS }
}

const fn wanted(acl: &'static str, severity: Severity, lost: &'static str) -> Right {
    Right { acl, severity, lost }
}

pub(super) const EVALSHA: Right = needed("+evalsha");
pub(super) const SCRIPT_LOAD: Right = needed("+script|load");
pub(super) const HGET: Right = needed("+hget");
pub(super) const HMGET: Right = needed("+hmget");
pub(super) const HGETALL: Right = needed("+hgetall");
pub(super) const HSET: Right = needed("+hset");
pub(super) const HDEL: Right = needed("+hdel");
pub(super) const PEXPIRE: Right = needed("+pexpire");
pub(super) const TIME: Right = needed("+time");
/// With `?replicas=` alone.
pub(super) const WAIT: Right = needed("+wait");
/// In a Cluster alone.
pub(super) const CLUSTER_SLOTS: Right = needed("+cluster|slots");
pub(super) const PING: Right = wanted(
    "+ping",
    Severity::Risk,
    "a connection that was late once is taken for dead and made anew",
);
pub(super) const ROLE: Right = wanted(
    "+role",
    Severity::Note,
    "a replica is taken for a primary until it refuses the first call",
);
pub(super) const INFO: Right = wanted(
    "+info",
    Severity::Note,
    "version, memory, persistence and replicas cannot be seen, neither here nor by a process that \
     connects",
);
pub(super) const UNLINK: Right = wanted("+unlink", Severity::Note, "buckets cannot be deleted");
pub(super) const SCAN: Right = wanted("+scan", Severity::Note, "buckets cannot be listed");
pub(super) const PUBLISH: Right = wanted("+publish", Severity::Note, CHANGES);
pub(super) const PSUBSCRIBE: Right = wanted("+psubscribe", Severity::Note, CHANGES);

/// Those that are asked for with a key.
const ON_KEYS: [Right; 8] = [EVALSHA, HGET, HMGET, HGETALL, HSET, HDEL, PEXPIRE, UNLINK];

/// What a user lacks on one server.
#[derive(Debug, Default)]
pub(super) struct Missing {
    rights: Vec<Right>,
    keys: bool,
    channels: bool,
    /// The server's words for the first.
    said: Option<String>,
}

/// What a server said no to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Command,
    Key,
    Channel,
}

impl Missing {
    /// Writes down that trying `right` was answered with this error, where it says that a right is
    /// missing; whether it does.
    pub(super) fn noted(&mut self, right: Right, error: &RedisError) -> bool {
        let Some(refused) = refused(error) else { return false };
        match refused {
            Refused::Command => self.rights.push(right),
            Refused::Key => self.keys = true,
            Refused::Channel => self.channels = true,
        }
        let words = || error.detail().unwrap_or_default().trim().to_owned();
        self.said.get_or_insert_with(words);
        true
    }

    pub(super) fn lacks(&self, right: Right) -> bool {
        self.rights.contains(&right)
    }

    /// One finding that names all of them and how to grant them.
    pub(super) fn judge(&self, user: &str, prefix: &str, server: &str, sheet: &mut Sheet) {
        let mut acl: Vec<String> = self.rights.iter().map(|it| it.acl.to_owned()).collect();
        let mut lost: Vec<(Severity, &str)> =
            self.rights.iter().map(|it| (it.severity, it.lost)).collect();
        let pattern = globbed(prefix);
        if self.keys {
            acl.push(format!("~{pattern}*"));
            lost.push((Severity::Wrong, DECISIONS));
        }
        if self.channels {
            acl.push(format!("&{pattern}*"));
            lost.push((Severity::Note, CHANGES));
        }
        let Some(worst) = lost.iter().map(|(severity, _)| *severity).max() else {
            sheet.fact("rights", "all that are needed");
            return;
        };
        sheet.fact("rights", format!("missing: {}", acl.join(" ")));
        // The worst loss first, and each once.
        lost.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
        let mut losses: Vec<&str> = Vec::new();
        for (_, lost) in lost {
            if !losses.contains(&lost) {
                losses.push(lost);
            }
        }
        let list = acl.join(" ");
        let words: Vec<String> = acl.iter().map(|word| quoted(word)).collect();
        let mut advice = format!("ACL SETUSER {} {}", quoted(user), words.join(" "));
        // Who may not run a command is not told whether the keys or channels would be allowed.
        let hides_keys = !self.keys && ON_KEYS.iter().all(|right| self.lacks(*right));
        if hides_keys || (self.lacks(PUBLISH) && self.lacks(PSUBSCRIBE) && !self.channels) {
            advice += ", then look again: what may be missing besides is hidden by these";
        }
        let error = (worst == Severity::Wrong).then(|| {
            let said = self.said.as_deref().unwrap_or_default();
            Error::forbidden(format!("{server} does not let us in: {said}"))
        });
        let what = format!("user {user:?} lacks {list}: {}", losses.join("; "));
        sheet.find(worst, what, advice, error);
    }
}

/// What an error says no to; `None` where it is another error. Redis tells it in different words
/// from one version to the next, and inside a script in still others.
fn refused(error: &RedisError) -> Option<Refused> {
    let detail = error.detail().unwrap_or_default();
    if error.code() != Some("NOPERM") {
        return None;
    }
    // "no permissions to run the 'x' command", "… to access one of the keys used as arguments".
    // The user's name, which stands before it in newer versions, may be any word.
    let behind = detail.rsplit_once("ermissions to ").map_or(detail, |(_, behind)| behind);
    Some(if behind.starts_with("run") {
        Refused::Command
    } else if behind.contains("channel") {
        Refused::Channel
    } else if behind.contains("key") {
        Refused::Key
    } else {
        Refused::Command
    })
}

/// A command that needs this right on a key, and changes nothing.
pub(super) fn harmless(right: Right, key: &str) -> Cmd {
    let command = |words: &[&str]| {
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command
    };
    match right {
        HGET => command(&["HGET", key, "made"]),
        HMGET => command(&["HMGET", key, "made"]),
        HGETALL => command(&["HGETALL", key]),
        // A field without a value: an error once the right was asked for.
        HSET => command(&["HSET", key, "field", "value", "field"]),
        HDEL => command(&["HDEL", key, "none"]),
        PEXPIRE => command(&["PEXPIRE", key, "1"]),
        UNLINK => command(&["UNLINK", key]),
        SCAN => command(&["SCAN", "0", "MATCH", key, "COUNT", "1"]),
        PUBLISH => command(&["PUBLISH", key, "doctor"]),
        WAIT => command(&["WAIT", "0", "1"]),
        CLUSTER_SLOTS => command(&["CLUSTER", "SLOTS"]),
        TIME => command(&["TIME"]),
        ROLE => command(&["ROLE"]),
        INFO => command(&["INFO"]),
        _ => command(&["PING"]),
    }
}

/// A word as `redis-cli` takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "+~&|:*-_.@/?[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use redis::{Value, parse_redis_value};

    use super::*;

    fn error(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes());
        value.and_then(Value::extract_error).unwrap_err()
    }

    #[test]
    fn what_is_missing_is_read_from_every_versions_words() {
        for (line, wanted) in [
            (
                "NOPERM this user has no permissions to run the 'hset' command",
                Some(Refused::Command),
            ),
            (
                "NOPERM User channel has no permissions to run the 'script|load' command",
                Some(Refused::Command),
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                Some(Refused::Key),
            ),
            ("NOPERM No permissions to access a key", Some(Refused::Key)),
            ("NOPERM User channel has no permissions to access the 'a' key", Some(Refused::Key)),
            (
                "NOPERM this user has no permissions to access one of the channels used as \
                 arguments",
                Some(Refused::Channel),
            ),
            ("NOPERM No permissions to access a channel", Some(Refused::Channel)),
            ("NOPERM no", Some(Refused::Command)),
            ("ERR wrong number of arguments for 'hset' command", None),
            ("NOSCRIPT No matching script.", None),
            ("READONLY no permissions to run", None),
        ] {
            assert_eq!(refused(&error(line)), wanted, "{line}");
        }
    }

    #[test]
    fn all_that_is_missing_is_one_finding_with_the_line_to_add() {
        let command = error("NOPERM this user has no permissions to run the 'x' command");
        let key = error("NOPERM No permissions to access a key");
        let channel = error("NOPERM No permissions to access a channel");
        let mut missing = Missing::default();
        assert!(!missing.noted(HGET, &error("ERR no")));
        assert!(missing.noted(PUBLISH, &command));
        assert!(missing.noted(PSUBSCRIBE, &channel));
        let mut sheet = Sheet::of_server("h:1");
        missing.judge("wor ker", "a*:", "h:1", &mut sheet);
        let [finding] = sheet.findings() else { panic!("{sheet:?}") };
        assert_eq!(finding.severity, Severity::Note);
        assert!(finding.error.is_none());
        assert_eq!(finding.advice, r#"ACL SETUSER "wor ker" +publish "&a\\*:*""#);
        assert_eq!(finding.what.matches(CHANGES).count(), 1, "{}", finding.what);

        assert!(missing.noted(HGET, &key));
        assert!(missing.noted(SCRIPT_LOAD, &command));
        assert!(missing.lacks(SCRIPT_LOAD) && !missing.lacks(HGET));
        let mut sheet = Sheet::of_server("h:1");
        missing.judge("default", "paceline:", "h:1", &mut sheet);
        let [finding] = sheet.findings() else { panic!("{sheet:?}") };
        assert_eq!(finding.severity, Severity::Wrong);
        assert_eq!(
            finding.advice,
            "ACL SETUSER default +publish +script|load ~paceline:* &paceline:*"
        );
        assert!(finding.what.contains(DECISIONS), "{}", finding.what);
        assert!(finding.error.as_ref().is_some_and(Error::is_forbidden));
    }

    #[test]
    fn nothing_missing_is_a_fact() {
        let mut sheet = Sheet::default();
        Missing::default().judge("default", "paceline:", "h:1", &mut sheet);
        assert!(sheet.findings().is_empty());
        assert_eq!(sheet.facts()[0].is, "all that are needed");
    }
}
