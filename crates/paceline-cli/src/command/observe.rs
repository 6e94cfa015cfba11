//! `paceline observe`: tells the fleet what a provider's answer said, for scripts that made the call
//! themselves.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use paceline::Status;
use paceline::http::{Observed, Profiles, Response};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::number::whole;
use crate::output::{self, micros};
use crate::run::Context;

/// Tell the fleet what an answer said: a stated time suspends the bucket, and less that is left than
/// was reckoned counts for everybody.
///
///   paceline observe github --status 429 --header 'Retry-After: 30'
///   curl -sD headers … ; paceline observe github --status 403 --headers-from headers --profile github
///
/// Says what became of the bucket: a suspension, another policy, and each quota of which less is left
/// than before (which calls made at the same moment take from, too).
///
/// Ends with 75 where the call was refused and no time was stated: the caller should back off, and the
/// fleet goes on.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Observe {
    /// The bucket's name
    bucket: String,

    /// The answer's status
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole(100..=999_u16))]
    status: u16,

    /// A header of the answer; may be given many times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,

    /// A file with the answer's headers, as `curl -D` writes it; `-` is stdin
    #[arg(long, value_name = "FILE")]
    headers_from: Option<PathBuf>,

    /// A file with the answer's body, in which some profiles find words; `-` is stdin
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,

    /// The provider's profile; `paceline profiles` lists them
    #[arg(long, value_name = "NAME", default_value = "generic")]
    profile: String,

    /// Let all calls go at once at the end of the suspension, instead of one first and the others
    /// when that was not refused, or seconds later
    #[arg(long)]
    no_probe: bool,

    /// What was called, such as its path
    #[arg(long, value_name = "TEXT", default_value = "")]
    target: String,

    /// Let limits that the answer states become the bucket's policy, unless that is pinned
    #[arg(long)]
    adapt: bool,
}

impl Observe {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let profile = Profiles::builtin().get(&self.profile).ok_or_else(|| {
            let name = &self.profile;
            Failure::new(
                Exit::NO_INPUT,
                format!("no profile {name:?}; `paceline profiles` lists them"),
            )
        })?;
        let is_stdin = |path: &Option<PathBuf>| path.as_deref().is_some_and(is_stdin);
        if is_stdin(&self.headers_from) && is_stdin(&self.body) {
            return Err(Failure::new(
                Exit::USAGE,
                "--headers-from - and --body -: only one of them can be read from stdin",
            ));
        }
        let mut headers = HeaderMap::new();
        if let Some(path) = &self.headers_from {
            let text = read(path)?;
            // A redirect's or a proxy's headers come before; the last answer counts.
            let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
            let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
            for line in last.lines().filter(|line| !line.starts_with("HTTP/")) {
                let (name, value) = header(line).map_err(|what| {
                    Failure::new(Exit::USAGE, format!("{}: {what}", path.display()))
                })?;
                headers.append(name, value);
            }
        }
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        let body = self.body.as_deref().map(read).transpose()?;
        let patience = if self.no_probe { Some(Duration::ZERO) } else { None };
        let limiter = context.store.open_for_one_call(patience).await?;
        // It suspends a bucket that nobody has called yet, too, and makes none.
        let before = limiter.status(&self.bucket).await?;
        let policy = before.as_ref().and_then(|status| status.policy.as_deref());
        let bucket = limiter.bucket(&self.bucket, policy.unwrap_or("1/s"))?;
        let bucket = if self.adapt { bucket.adaptive() } else { bucket };
        let response = Response {
            status: self.status,
            headers: &headers,
            body: body.as_deref(),
            target: &self.target,
        };
        let observed = bucket.observe(response, profile).await?;
        limiter.settled().await;
        let changed = match limiter.status(&self.bucket).await {
            Ok(after) => Changed::between(before.as_ref(), after.as_ref()),
            // The fleet has been told all the same.
            Err(error) => {
                output::say(&format!("what became of the bucket is not known: {error}"));
                Changed::default()
            }
        };
        let name = &self.bucket;
        let (mut json, words, exit) = match observed {
            Observed::Suspended { left, guessed, clamped_from } => (
                json!({
                    "observed": "suspended",
                    "left_us": micros(left),
                    "guessed": guessed,
                    "clamped_from_us": clamped_from.map(micros),
                }),
                format!(
                    "bucket {name:?}: suspended for {}{}{}",
                    output::span(left),
                    if guessed { ", a guess: no time was stated" } else { "" },
                    clamped_from
                        .map(|asked| format!(", cut from {}", output::span(asked)))
                        .unwrap_or_default()
                ),
                Exit::DONE,
            ),
            Observed::BackOff(pause) => (
                json!({ "observed": "back off", "pause_us": micros(pause) }),
                format!(
                    "bucket {name:?}: refused without a time; the fleet goes on, rest for {} or more \
                     before this call is made again",
                    output::span(pause)
                ),
                Exit::REFUSED,
            ),
            _ => (json!({ "observed": "nothing" }), String::new(), Exit::DONE),
        };
        if context.json {
            changed.add_to(&mut json);
            output::json(&json)?;
            return Ok(exit);
        }
        let words = Some(words).filter(|words| !words.is_empty());
        for words in words.into_iter().chain(changed.told(name)) {
            output::say(&words);
        }
        Ok(exit)
    }
}

/// What became of a bucket besides a suspension.
#[derive(Debug, Default)]
struct Changed {
    /// The policy, where it is another, and the one before.
    policy: Option<(String, Option<String>)>,
    lower: Vec<Lower>,
}

/// A quota of which less is left than before.
#[derive(Debug)]
struct Lower {
    /// Counted from 1.
    number: usize,
    quota: String,
    left: u64,
    was: u64,
}

impl Changed {
    fn between(before: Option<&Status>, after: Option<&Status>) -> Self {
        let Some(after) = after else { return Self::default() };
        let was = before.and_then(|status| status.policy.clone());
        let policy = after.policy.clone().filter(|policy| Some(policy) != was.as_ref());
        let quotas = before.map_or(&[][..], |status| &status.quotas);
        let lower = after.quotas.iter().zip(quotas).enumerate();
        let lower = lower.filter(|(_, (after, before))| after.remaining < before.remaining);
        let lower = lower.map(|(index, (after, before))| Lower {
            number: index + 1,
            quota: after.quota.clone(),
            left: after.remaining,
            was: before.remaining,
        });
        Self { policy: policy.map(|policy| (policy, was)), lower: lower.collect() }
    }

    fn told(&self, name: &str) -> Vec<String> {
        let policy = self.policy.iter().map(|(policy, was)| match was {
            Some(was) => format!("bucket {name:?}: policy is now {policy}, was {was}"),
            None => format!("bucket {name:?}: policy is now {policy}"),
        });
        let lower = self.lower.iter().map(|Lower { number, quota, left, was }| {
            format!("bucket {name:?}: quota {number} ({quota}): {left} left, was {was}")
        });
        policy.chain(lower).collect()
    }

    fn add_to(&self, json: &mut Value) {
        if let Some((policy, _)) = &self.policy {
            json["policy"] = json!(policy);
        }
        if !self.lower.is_empty() {
            let lower = self.lower.iter().map(|Lower { number, quota, left, was }| {
                json!({ "number": number, "quota": quota, "remaining": left, "was": was })
            });
            json["remaining"] = lower.collect();
        }
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let allowed = || format!("{text:?} is no header: NAME: VALUE, such as 'Retry-After: 30'");
    let (name, value) = text.split_once(':').ok_or_else(allowed)?;
    let name = name.trim().parse::<HeaderName>().map_err(|_| allowed())?;
    let value = value.trim().parse::<HeaderValue>().map_err(|_| allowed())?;
    Ok((name, value))
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if is_stdin(path) {
        let mut bytes = Vec::new();
        return match std::io::stdin().lock().read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Failure::new(Exit::IO, format!("cannot read stdin: {error}"))),
        };
    }
    std::fs::read(path).map_err(|error| {
        Failure::new(Exit::NO_INPUT, format!("cannot read {}: {error}", path.display()))
    })
}
