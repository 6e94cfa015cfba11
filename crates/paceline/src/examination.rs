//! What [`Limiter::examine`](crate::Limiter::examine) tells of a store: facts, and findings that
//! say what is wrong or risky and what to do about it, in words for a person. Only the stores know
//! what to look at; here is the form it is told in.

use std::fmt;

use crate::error::{Error, Kind};

/// A store as it was found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Examination {
    /// The store's URL, without user and password.
    pub store: String,
    /// What was seen, in reading order, server by server.
    pub facts: Vec<Fact>,
    /// What is wrong, risky or worth knowing, the worst first.
    pub findings: Vec<Finding>,
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// The server it is of (`host:port`); `None` where it is of the store as a whole.
    pub server: Option<String>,
    /// What it is about: one or two words, such as `version`.
    pub about: &'static str,
    /// What was seen, units included.
    pub is: String,
}

/// Something that is wrong, risky or worth knowing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The server it is of (`host:port`); `None` where it is of the store as a whole.
    pub server: Option<String>,
    /// What was found and what it means.
    pub what: String,
    /// What to do about it.
    pub advice: String,
    /// The error that calls end with because of it, where it is known.
    pub error: Option<Error>,
}

/// How bad a finding is, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing; it may be meant so.
    Note,
    /// Works now, and may cost calls or the pace later.
    Risk,
    /// Calls fail, all or some.
    Wrong,
}

impl Examination {
    pub(crate) fn of(store: impl Into<String>) -> Self {
        Self { store: store.into(), facts: Vec::new(), findings: Vec::new() }
    }

    /// The worst that was found; `None` where nothing was.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// The error that calls end with because of what is [`Wrong`](Severity::Wrong), where it is
    /// known; `None` where nothing is.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        let wrong = self.findings.iter().filter(|finding| finding.severity == Severity::Wrong);
        wrong.filter_map(|finding| finding.error.as_ref()).next()
    }

    pub(crate) fn take_in(&mut self, sheet: Sheet) {
        self.facts.extend(sheet.facts);
        self.findings.extend(sheet.findings);
        // Stable: findings of one severity stay in the order they were made.
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

impl Severity {
    /// `note`, `risk` or `wrong`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Risk => "risk",
            Self::Wrong => "wrong",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is written down of one server, or of the store as a whole.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    server: Option<String>,
    facts: Vec<Fact>,
    findings: Vec<Finding>,
}

impl Sheet {
    pub(crate) fn of_server(server: impl Into<String>) -> Self {
        Self { server: Some(server.into()), ..Self::default() }
    }

    pub(crate) fn fact(&mut self, about: &'static str, is: impl Into<String>) {
        self.facts.push(Fact { server: self.server.clone(), about, is: is.into() });
    }

    pub(crate) fn note(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.find(Severity::Note, what, advice, None);
    }

    pub(crate) fn risk(&mut self, what: impl Into<String>, advice: impl Into<String>) {
        self.find(Severity::Risk, what, advice, None);
    }

    pub(crate) fn wrong(
        &mut self,
        what: impl Into<String>,
        advice: impl Into<String>,
        error: Option<Error>,
    ) {
        self.find(Severity::Wrong, what, advice, error);
    }

    /// What a call fails with, in its own words.
    pub(crate) fn failed(&mut self, error: &Error) {
        let advice = if error.kind() == Kind::Unable {
            "mend what the server says of itself; until then calls get what --when-away (WhenAway) says"
        } else if error.is_unavailable() {
            "see that the server runs and that host, port and network of the URL lead to it; until \
             then calls get what --when-away (WhenAway) says"
        } else if error.is_forbidden() {
            "mend user, password and database in the URL, or the rights of that user or file"
        } else if error.is_incompatible() {
            "use Redis 6.2 or newer, or Valkey, under the scheme that fits, and the same version of \
             Paceline in all processes"
        } else {
            "mend what the message names"
        };
        self.wrong(error.to_string(), advice, Some(error.clone()));
    }

    pub(crate) fn find(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        advice: impl Into<String>,
        error: Option<Error>,
    ) {
        let (server, what, advice) = (self.server.clone(), what.into(), advice.into());
        self.findings.push(Finding { severity, server, what, advice, error });
    }

    /// Whether something on it is wrong.
    pub(crate) fn is_wrong(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Wrong)
    }

    #[cfg(test)]
    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    #[cfg(test)]
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }
}

/// A rate as measured, for a fact.
pub(crate) fn per_second(count: u64, span: std::time::Duration) -> String {
    let micros = span.as_micros().max(1);
    let rate = u128::from(count) * 1_000_000 / micros;
    format!("{rate} decisions a second")
}

/// A span as a person reads it: `3.2ms`, `140us`, `2s`.
pub(crate) fn told(micros: u64) -> String {
    let tenths = |unit: u64| match micros % unit * 10 / unit {
        0 => (micros / unit).to_string(),
        tenths => format!("{}.{tenths}", micros / unit),
    };
    match micros {
        0..1_000 => format!("{micros}us"),
        1_000..1_000_000 => tenths(1_000) + "ms",
        _ => tenths(1_000_000) + "s",
    }
}

/// The value below or at which this share (in percent) of sorted values is; 0 of none.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// A name for a bucket to try things on, which nobody else uses.
pub(crate) fn probe_name() -> String {
    format!("doctor probe {}-{:016x}", std::process::id(), fastrand::u64(..))
}

/// What the probe is asked for: never refused, and forgotten seconds after its last use.
pub(crate) const PROBE_POLICY: &str = "1000000/s";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_worst_first_and_say_what_a_call_fails_with() {
        let mut sheet = Sheet::of_server("h:1");
        sheet.note("a", "b");
        sheet.risk("c", "d");
        let mut found = Examination::of("memory:");
        assert_eq!(found.worst(), None);
        found.take_in(sheet);
        assert_eq!(found.worst(), Some(Severity::Risk));
        assert!(found.error().is_none());
        let mut sheet = Sheet::default();
        sheet.wrong("e", "f", None);
        sheet.failed(&Error::forbidden("no"));
        assert!(sheet.is_wrong());
        found.take_in(sheet);
        let order: Vec<&str> = found.findings.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(order, ["e", "no", "c", "a"]);
        assert!(found.error().unwrap().is_forbidden());
        assert_eq!(found.findings[2].server.as_deref(), Some("h:1"));
        assert!(Severity::Note < Severity::Risk && Severity::Risk < Severity::Wrong);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        assert_eq!(percentile(&[], 99), 0);
        assert_eq!(percentile(&[7], 50), 7);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (50, 99));
        assert_eq!(percentile(&[1, 2], 99), 2);
    }

    #[test]
    fn measures_are_told_with_their_units() {
        for (micros, text) in [
            (0, "0us"),
            (999, "999us"),
            (1_250, "1.2ms"),
            (999_999, "999.9ms"),
            (2_500_000, "2.5s"),
            (250_000, "250ms"),
        ] {
            assert_eq!(told(micros), text);
        }
        let span = std::time::Duration::from_millis(300);
        assert_eq!(per_second(3_000, span), "10000 decisions a second");
        assert_eq!(per_second(5, std::time::Duration::ZERO), "5000000 decisions a second");
    }

    #[test]
    fn the_probe_is_a_bucket_like_any() {
        assert!(crate::name::check(&probe_name()).is_ok());
        let policy: crate::Policy = PROBE_POLICY.parse().unwrap();
        assert!(policy.idle() <= std::time::Duration::from_secs(3));
    }
}
