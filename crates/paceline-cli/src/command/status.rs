//! `paceline status`: what there is to see of a bucket.

use std::time::{Duration, SystemTime};

use clap::Args;
use paceline::{ProbeStatus, Status as Seen};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output::{self, micros, span};
use crate::run::Context;

/// Show buckets: policy, what is left of each quota, suspension, expiry.
///
/// Ends with 66 where there is no such bucket: idle ones evaporate.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The buckets' names
    #[arg(required = true, value_name = "BUCKET")]
    buckets: Vec<String>,
}

impl Status {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let mut missing = Vec::new();
        for (index, name) in self.buckets.iter().enumerate() {
            match limiter.status(name).await? {
                Some(status) if context.json => output::json(&as_json(&status))?,
                Some(status) => {
                    if index > missing.len() {
                        output::line("")?;
                    }
                    output::line(&as_text(&status))?;
                }
                None => missing.push(format!("{name:?}")),
            }
        }
        if missing.is_empty() {
            return Ok(Exit::DONE);
        }
        Err(Failure::new(
            Exit::NO_INPUT,
            format!(
                "no bucket {}: idle ones evaporate; `paceline list` tells which there are",
                missing.join(", ")
            ),
        ))
    }
}

/// A bucket as JSON; also what `list --long --json` prints.
pub(super) fn as_json(status: &Seen) -> Value {
    json!({
        "bucket": status.name,
        "policy": status.policy,
        "pinned": status.pinned,
        "quotas": status.quotas.iter().map(|quota| json!({
            "quota": quota.quota,
            "remaining": quota.remaining,
            "capacity": quota.capacity,
        })).collect::<Vec<_>>(),
        "booked_ahead_us": micros(status.booked_ahead),
        "suspension": status.suspension.as_ref().map(|suspension| json!({
            "left_us": micros(suspension.left),
            "probe": suspension.probe.map(|probe| match probe {
                ProbeStatus::Ahead => "ahead",
                ProbeStatus::Awaited => "awaited",
                _ => "under way",
            }),
            "since_us": micros(suspension.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
            "reason": suspension.reason,
            "by": suspension.by,
        })),
        "expires_in_us": micros(status.expires_in),
    })
}

fn as_text(status: &Seen) -> String {
    let policy = status.policy.as_deref().unwrap_or("none yet: the first call brings its own");
    let pinned = if status.pinned { "  (pinned)" } else { "" };
    let mut lines =
        vec![format!("bucket     {}", status.name), format!("policy     {policy}{pinned}")];
    for (index, quota) in status.quotas.iter().enumerate() {
        lines.push(format!(
            "quota {}    {} of {} left  ({})",
            index + 1,
            quota.remaining,
            quota.capacity,
            quota.quota
        ));
    }
    if status.booked_ahead > Duration::ZERO {
        lines.push(format!("booked     {} ahead", span(status.booked_ahead)));
    }
    if let Some(suspension) = &status.suspension {
        let since = suspension.since.elapsed().unwrap_or_default();
        lines.push(format!(
            "suspended  for {}{}, since {} ago, by {}",
            match suspension.probe {
                None | Some(ProbeStatus::Ahead) => format!("{} more", span(suspension.left)),
                Some(_) => format!("at most {} more", span(suspension.left)),
            },
            match suspension.probe {
                None => "",
                Some(ProbeStatus::Ahead) => ", then one call goes first",
                Some(ProbeStatus::Awaited) => ", one call may go first",
                Some(_) => ", one call has gone first",
            },
            span(since),
            suspension.by
        ));
        if !suspension.reason.is_empty() {
            lines.push(format!("reason     {}", suspension.reason));
        }
    }
    lines.push(if status.pinned {
        "expires    never while pinned".to_owned()
    } else {
        format!("expires    in {} unless used", span(status.expires_in))
    });
    lines.join("\n")
}
