//! A permit for a command, waited for as its flags say: the one place here that waits.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use paceline::{Answer, Bucket, Cost, Error, Limiter, Permit, Policy, Refusal, RefusedBy};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output;
use crate::store::span;

/// A wait longer than this is told to a person.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// The flags of commands that take permits.
#[derive(Debug, Args)]
pub(crate) struct PermitArgs {
    /// The bucket's name: free text, up to 256 bytes
    pub(crate) bucket: String,

    /// The policy that creates the bucket, such as '50/s burst 10, window 1000/m guard 50ms' or
    /// 'strict 100/m'; where there is a bucket, its own policy binds
    #[arg(long, short, value_name = "POLICY", allow_hyphen_values = true)]
    pub(crate) quota: Policy,

    /// What each call takes: requests, and of other units where the policy counts them, such as
    /// 'tokens=4000' (and one request) or '2,tokens=4000'
    #[arg(long, value_name = "N|UNIT=N", default_value = "1", allow_hyphen_values = true)]
    pub(crate) cost: Cost,

    /// Refuse at once when it would take longer than this [default: wait as long as it takes]
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true, value_parser = span)]
    pub(crate) max_wait: Option<Duration>,
}

impl PermitArgs {
    pub(crate) fn bucket(&self, limiter: &Limiter) -> Result<Bucket, Error> {
        limiter.bucket(&self.bucket, self.quota.clone())
    }
}

/// Waits for one permit, up to `max_wait` where there is one.
pub(crate) async fn wait(
    bucket: &Bucket,
    cost: Cost,
    max_wait: Option<Duration>,
) -> Result<Answer, Error> {
    let call = bucket.cost(cost);
    let waiting = async {
        match max_wait {
            None => call.acquire().await.map(Answer::Granted),
            Some(Duration::ZERO) => call.try_acquire().await,
            Some(max_wait) => call.acquire_within(max_wait).await,
        }
    };
    tokio::pin!(waiting);
    tokio::select! {
        biased;
        answer = &mut waiting => return answer,
        () = tokio::time::sleep(TOLD_AFTER) => {}
    }
    if std::io::stderr().is_terminal() {
        output::say(&format!("waiting for bucket {:?} …", bucket.name()));
    }
    waiting.await
}

/// As [`wait`], where a refusal ends the run.
pub(crate) async fn wait_or_fail(
    bucket: &Bucket,
    cost: Cost,
    max_wait: Option<Duration>,
) -> Result<Permit, Failure> {
    Ok(wait(bucket, cost, max_wait).await?.permit()?)
}

/// Prints a refusal of the so-manieth permit as JSON, alike for all commands that do. One that nobody
/// reads is a refusal all the same: the exit code must not become that of a reader who has gone.
pub(crate) fn print_refused(number: u64, refusal: &Refusal) {
    let _ = output::json(&refused(number, refusal));
}

fn refused(number: u64, refusal: &Refusal) -> Value {
    let cause = match refusal.cause() {
        RefusedBy::Quota { number, .. } => format!("quota {number}"),
        _ => "suspended".to_owned(),
    };
    json!({
        "granted": false,
        "number": number,
        "retry_after_us": output::micros(refusal.retry_after()),
        "cause": cause,
    })
}
