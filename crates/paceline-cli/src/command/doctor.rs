//! `paceline doctor`: what is wrong or risky about the store.

use clap::Args;
use paceline::{Examination, Finding, Severity};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::run::Context;

/// Say what is wrong or risky about the store, and what to do.
///
/// Connects as any command does; makes real decisions on a bucket of its own for a third of a
/// second, and deletes it. Ends with 0 where nothing is worse than a note, with 1 where something is
/// a risk, and where something is wrong with what a call would end with (69, 76, 77; else 1).
#[derive(Debug, Args)]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let found = context.store.builder().examine().await?;
        if context.json {
            output::json(&as_json(&found))?;
        } else {
            output::line(&as_text(&found))?;
        }
        Ok(exit(&found))
    }
}

fn exit(found: &Examination) -> Exit {
    match found.worst() {
        None | Some(Severity::Note) => Exit::DONE,
        Some(Severity::Wrong) => found.error().map_or(Exit::FAILED, Exit::of),
        Some(_) => Exit::FAILED,
    }
}

fn as_json(found: &Examination) -> Value {
    json!({
        "store": found.store,
        "facts": found.facts.iter().map(|fact| json!({
            "server": fact.server,
            "about": fact.about,
            "is": fact.is,
        })).collect::<Vec<_>>(),
        "findings": found.findings.iter().map(|finding| json!({
            "severity": finding.severity.as_str(),
            "server": finding.server,
            "what": finding.what,
            "advice": finding.advice,
        })).collect::<Vec<_>>(),
        "worst": found.worst().map(Severity::as_str),
    })
}

fn as_text(found: &Examination) -> String {
    let mut lines = vec![format!("{:<14} {}", "store", found.store)];
    let mut server = &None;
    for fact in &found.facts {
        if fact.server != *server {
            server = &fact.server;
            lines.push(String::new());
            lines.extend(server.as_ref().map(|server| format!("{:<14} {server}", "server")));
        }
        lines.push(format!("{:<14} {}", fact.about, fact.is));
    }
    lines.push(String::new());
    if found.findings.is_empty() {
        lines.push("nothing is wrong, and no risk was found".to_owned());
    }
    for (finding, servers) in together(&found.findings) {
        let at = if servers.is_empty() { String::new() } else { servers.join(", ") + ": " };
        lines.push(format!("{:<6} {at}{}", finding.severity.as_str().to_uppercase(), finding.what));
        lines.push(format!("       do: {}", finding.advice));
    }
    lines.join("\n")
}

/// What was found of several servers alike, told once with all of them.
fn together(findings: &[Finding]) -> Vec<(&Finding, Vec<&str>)> {
    let mut told: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for finding in findings {
        let is_like = |other: &Finding| {
            (other.severity, &other.what, &other.advice)
                == (finding.severity, &finding.what, &finding.advice)
        };
        match told.iter_mut().find(|(other, _)| is_like(other)) {
            Some((_, servers)) => servers.extend(finding.server.as_deref()),
            None => told.push((finding, finding.server.as_deref().into_iter().collect())),
        }
    }
    told
}
