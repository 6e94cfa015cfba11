//! `paceline set`: another policy for a bucket, which binds every process on its next call.

use clap::Args;
use paceline::Policy;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::run::Context;

/// Set a bucket's policy; it binds every process on its next call.
///
/// What was left is kept and cut to the new burst. The policy is pinned: it outlives the idle
/// bucket, until another is set or the bucket is deleted. Works for a name nobody has called, too, and
/// says so.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The bucket's name
    bucket: String,

    /// The policy, such as '50/s burst 10' or 'strict 100/m'; '0/s' lets nothing pass: whoever
    /// waits is told so and goes; `suspend` holds them
    #[arg(allow_hyphen_values = true)]
    policy: Policy,

    /// Let the policy go with the idle bucket
    #[arg(long)]
    no_pin: bool,
}

impl Set {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let policy = self.policy.to_string();
        let stops = self.policy.quotas().iter().any(|quota| quota.cost_max() == 0);
        let existed = limiter.status(&self.bucket).await?.is_some();
        let changed = if self.no_pin {
            limiter.set_policy(&self.bucket, self.policy).await?
        } else {
            limiter.pin_policy(&self.bucket, self.policy).await?
        };
        if context.json {
            output::json(&json!({
                "bucket": self.bucket,
                "policy": policy,
                "changed": changed,
                "existed": existed,
            }))?;
        } else {
            let what = if changed { "now" } else { "already" };
            output::say(&format!("bucket {:?}: {what} {policy}", self.bucket));
        }
        if stops {
            output::say(&format!(
                "{policy} lets nothing pass: each call and whoever waits is told \"never\" at once \
                 (exit 75); `paceline suspend` holds them until they may go on"
            ));
        }
        if !existed {
            output::say_begun(&self.bucket);
        }
        Ok(Exit::DONE)
    }
}
