//! `paceline profiles`: what is known of providers, and where it is from.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{Table, presets};
use paceline_http::{BucketRule, HeaderRule, Profile, RefusalRule, Unit};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::run::Context;

/// Show what is known of providers: documented quotas with source and date, headers, refusals.
///
/// Without a name, one line for each provider, with the quota that most of its calls are under.
/// Quotas age quickly: each has its date, and a grade that says how sure it is (documented, source,
/// clients, measured, hearsay). Needs no store.
#[derive(Debug, Args)]
pub(crate) struct Profiles {
    /// The provider to show in full, such as github
    name: Option<String>,

    /// A file of your own profiles, which add to these or replace them by name
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl Profiles {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let profiles = self.profiles()?;
        let Some(name) = &self.name else {
            if context.json {
                output::json(&profiles.iter().map(as_json).collect::<Vec<_>>())?;
            } else {
                output::line(&as_table(&profiles))?;
            }
            return Ok(Exit::DONE);
        };
        let profile = profiles.get(name).ok_or_else(|| {
            let names: Vec<&str> = profiles.iter().map(Profile::name).collect();
            let words = format!("there is no profile {name:?}; there are {}", names.join(", "));
            Failure::new(Exit::NO_INPUT, words)
        })?;
        if context.json {
            output::json(&as_json(profile))?;
        } else {
            output::line(&as_text(profile))?;
        }
        Ok(Exit::DONE)
    }

    fn profiles(&self) -> Result<paceline_http::Profiles, Failure> {
        let builtin = paceline_http::Profiles::builtin().clone();
        let Some(path) = &self.file else { return Ok(builtin) };
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let exit = match error.kind() {
                ErrorKind::NotFound => Exit::NO_INPUT,
                _ => Exit::IO,
            };
            Failure::new(exit, format!("--file {file}: {error}"))
        })?;
        builtin.with(&text, &file).map_err(|error| Failure::new(Exit::USAGE, error.to_string()))
    }
}

fn as_table(profiles: &paceline_http::Profiles) -> String {
    let mut table = Table::new();
    *table.style_mut() = presets::NOTHING;
    table.set_header(["NAME", "PROVIDER", "QUOTA", "GRADE", "HOST"]);
    for profile in profiles.iter() {
        let Some(main) = main_bucket(profile) else { continue };
        let others = profile.buckets().len() - 1;
        let quota = match others {
            0 => main.policy_text.clone(),
            others => format!("{} (+{others})", main.policy_text),
        };
        let mut hosts = profile.hosts();
        let host = match (hosts.next(), hosts.count()) {
            (None, _) => "-".to_owned(),
            (Some(host), 0) => host.to_owned(),
            (Some(host), others) => format!("{host} (+{others})"),
        };
        table.add_row([profile.name(), profile.title(), &quota, main.grade.name(), &host]);
    }
    table.trim_fmt()
}

/// The quota of calls that are nothing special, with an account where that makes a difference.
fn main_bucket(profile: &Profile) -> Option<&BucketRule> {
    let is_main = |bucket: &&BucketRule| {
        bucket.path().is_none() && bucket.methods().is_empty() && bucket.is_signed() != Some(false)
    };
    profile.buckets().iter().find(is_main)
}

/// One profile in full: a word for what a line is about, then the line.
fn as_text(profile: &Profile) -> String {
    let mut lines = vec![format!("{} ({})", profile.title(), profile.name())];
    let mut say = |about: &str, words: &str| lines.push(format!("{about:<10} {words}"));
    let hosts: Vec<&str> = profile.hosts().collect();
    let none = "none is known; it is chosen by name";
    let hosts = if hosts.is_empty() { none.to_owned() } else { hosts.join(", ") };
    say("hosts", &hosts);
    say("counts", profile.counts());
    if let Some(penalty) = profile.penalty() {
        say("penalty", penalty);
    }
    if let Some(note) = profile.note() {
        say("note", note);
    }
    for bucket in profile.buckets() {
        say("", "");
        say("quota", &bucket.policy_text);
        say("bucket", &bucket.name);
        say("for", &calls(bucket));
        say("source", &format!("{}, {}, {}", bucket.grade.name(), bucket.date, bucket.source));
        if let Some(note) = &bucket.note {
            say("note", note);
        }
    }
    let headers = profile.headers().iter().map(|rule| ("header", header(rule)));
    let refusals = profile.refusals().iter().map(|rule| ("refusal", refusal(rule)));
    let rules: Vec<_> = headers.chain(refusals).collect();
    if !rules.is_empty() {
        say("", "");
    }
    for (about, words) in rules {
        say(about, &words);
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// Which calls a bucket is for.
fn calls(bucket: &BucketRule) -> String {
    let mut words: Vec<String> = Vec::new();
    if !bucket.methods().is_empty() {
        let methods: Vec<&str> = bucket.methods().iter().map(|it| it.as_str()).collect();
        words.push(methods.join(", "));
    }
    words.extend(bucket.path().map(str::to_owned));
    words.extend(bucket.is_signed().map(|is_signed| {
        if is_signed { "calls with an account" } else { "calls without an account" }.to_owned()
    }));
    if let Some(resource) = bucket.resource() {
        let named = if resource == "*" { "any name".to_owned() } else { format!("{resource:?}") };
        words.push(format!("answers that name it: {named}"));
    }
    if words.is_empty() { "all other calls".to_owned() } else { words.join("; ") }
}

fn header(rule: &HeaderRule) -> String {
    let mut words = format!("{}: {}", rule.name, rule.means.name());
    if rule.unit != Unit::BySize {
        words.push_str(&format!(", {}", rule.unit.name()));
    }
    if !rule.limit.is_empty() {
        words.push_str(&format!(", of {:?}", rule.limit));
    }
    words
}

fn refusal(rule: &RefusalRule) -> String {
    let status: Vec<String> = rule.status.iter().map(u16::to_string).collect();
    let mut words = if status.is_empty() { "any".to_owned() } else { status.join(", ") };
    if let Some((name, value)) = &rule.header {
        words.push_str(&format!(" with {name}: …{value}…"));
    }
    if !rule.body.is_empty() {
        words.push_str(&format!(" with a body of {}", rule.body.join(" or ")));
    }
    words.push_str(&format!(": {}", rule.means.map_or("none", |means| means.name())));
    if let Some((_, wait)) = &rule.wait {
        words.push_str(&format!(", stop for {wait}"));
        words.push_str(if rule.grows { " and longer each time" } else { "" });
    }
    words
}

fn as_json(profile: &Profile) -> Value {
    json!({
        "name": profile.name(),
        "title": profile.title(),
        "hosts": profile.hosts().collect::<Vec<_>>(),
        "counts": profile.counts(),
        "penalty": profile.penalty(),
        "note": profile.note(),
        "wait_max_us": profile.wait_max_us(),
        "adapts": profile.adapts(),
        "buckets": profile.buckets().iter().map(|bucket| json!({
            "name": bucket.name,
            "policy": bucket.policy_text,
            "methods": bucket.methods().iter().map(|it| it.as_str()).collect::<Vec<_>>(),
            "path": bucket.path(),
            "signed": bucket.is_signed(),
            "resource": bucket.resource(),
            "date": bucket.date,
            "source": bucket.source,
            "grade": bucket.grade.name(),
            "note": bucket.note,
        })).collect::<Vec<_>>(),
        "headers": profile.headers().iter().map(|rule| json!({
            "name": rule.name,
            "means": rule.means.name(),
            "unit": rule.unit.name(),
            "limit": rule.limit,
            "window_us": rule.window_us,
        })).collect::<Vec<_>>(),
        "refusals": profile.refusals().iter().map(|rule| json!({
            "status": rule.status,
            "header": rule.header.as_ref().map(|(name, value)| format!("{name}: {value}")),
            "body": rule.body,
            "means": rule.means.map_or("none", |means| means.name()),
            "wait_us": rule.wait.as_ref().map(|(us, _)| us),
            "grows": rule.grows,
        })).collect::<Vec<_>>(),
    })
}
