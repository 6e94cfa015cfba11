//! Which store, and how it is used: the flags that all commands share.

use std::time::Duration;

use clap::Args;
use paceline::{Error, Limiter, LimiterBuilder, STORE_DEFAULT, WhenAway, duration};

use crate::output;

/// Below this no store answers, and the library would take it for this.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// The flags.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Where the buckets are: host: (this machine), host:/path, memory: (this process),
    /// redis://[user:password@]host[:port][/db], redis+sentinel://host[,host…]/service,
    /// redis-cluster://host[,host…], with rediss… for TLS, and ?prefix= and more (OPERATING.md)
    #[arg(long, global = true, value_name = "URL", env = paceline::STORE_VARIABLE, default_value = STORE_DEFAULT, hide_env_values = true)]
    pub(crate) store: String,

    /// What a call gets while the store is away: refuse, allow, or local/N (this process's share
    /// of the policy where N processes share it)
    #[arg(long, global = true, value_name = "WHAT", env = paceline::WHEN_AWAY_VARIABLE, default_value_t = WhenAway::Refuse)]
    when_away: WhenAway,

    /// How long one operation on the store may take
    #[arg(long, global = true, value_name = "SPAN", default_value = "250ms", allow_hyphen_values = true, value_parser = span_from(TIMEOUT_MIN))]
    pub(crate) timeout: Duration,
}

impl StoreArgs {
    pub(crate) fn builder(&self) -> LimiterBuilder {
        // An empty variable is one that is not set.
        let url = if self.store.is_empty() { STORE_DEFAULT } else { &self.store };
        Limiter::builder(url).when_away(self.when_away).timeout(self.timeout)
    }

    pub(crate) async fn open(&self) -> Result<Limiter, Error> {
        self.builder().open().await
    }

    /// For a command that runs for one call: those of one machine are refused as one.
    /// What it suspends ends with one call that goes first, for whose answer the others wait so long.
    pub(crate) async fn open_for_one_call(
        &self,
        patience: Option<Duration>,
    ) -> Result<Limiter, Error> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let builder = self.builder().one_of(host);
        let builder = match patience {
            Some(patience) => builder.probe(patience),
            None => builder,
        };
        builder.open().await
    }
}

/// A span of time on the command line: `250ms`, `30s`, `15m`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let us = duration::parse(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_micros(u64::try_from(us).unwrap_or(0)))
}

/// As [`span`], of at least `least`.
pub(crate) fn span_from(least: Duration) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| match span(text)? {
        span if span >= least => Ok(span),
        _ => Err(format!("too short: write a span from {} to 3650d", output::span(least))),
    }
}
