//! `paceline suspend`: stops a bucket for the whole fleet.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::{self, micros};
use crate::run::Context;
use crate::store::span_from;

/// Stop all calls through a bucket, in every process, for a span from now.
///
/// A suspension that ends later stays as it is; `resume` ends it early. Works for a name nobody
/// has called, too, and says so.
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    /// The bucket's name
    bucket: String,

    /// For how long from now, such as 30s or 2h
    #[arg(long = "for", value_name = "SPAN", allow_hyphen_values = true, value_parser = span_from(Duration::from_micros(1)))]
    span: Duration,

    /// Why, for whoever looks: up to 256 bytes
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

impl Suspend {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let existed = limiter.status(&self.bucket).await?.is_some();
        let left = limiter.suspend(&self.bucket, self.span, &self.reason).await?;
        if context.json {
            output::json(&json!({
                "bucket": self.bucket,
                "left_us": micros(left),
                "existed": existed,
            }))?;
        } else {
            let left = output::span(left);
            output::say(&format!("bucket {:?}: suspended for {left}", self.bucket));
        }
        if !existed {
            output::say_begun(&self.bucket);
        }
        Ok(Exit::DONE)
    }
}
