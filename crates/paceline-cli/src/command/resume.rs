//! `paceline resume`: ends a suspension early.

use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::run::Context;

/// End a bucket's suspension at once, for the whole fleet.
///
/// Where there is none, that is no failure.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The bucket's name
    bucket: String,
}

impl Resume {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let was_suspended = limiter.resume(&self.bucket).await?;
        if context.json {
            output::json(&json!({"bucket": self.bucket, "was_suspended": was_suspended}))?;
        } else {
            let what = if was_suspended { "resumed" } else { "was not suspended" };
            output::say(&format!("bucket {:?}: {what}", self.bucket));
        }
        Ok(Exit::DONE)
    }
}
