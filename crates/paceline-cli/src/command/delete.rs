//! `paceline delete`: forgets buckets.

use clap::Args;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::run::Context;

/// Forget buckets with all they hold: the next call starts with a full one.
///
/// Ends with 66 where there is no such bucket. A key of Redis that is none is left alone.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The buckets' names
    #[arg(required = true, value_name = "BUCKET")]
    buckets: Vec<String>,
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let mut missing = Vec::new();
        for name in &self.buckets {
            let existed = limiter.delete(name).await?;
            if context.json {
                output::json(&json!({"bucket": name, "existed": existed}))?;
            }
            if !existed {
                missing.push(format!("{name:?}"));
            }
        }
        if missing.is_empty() {
            return Ok(Exit::DONE);
        }
        Err(Failure::new(Exit::NO_INPUT, format!("no bucket {}", missing.join(", "))))
    }
}
