//! The form of `profiles.toml`: every field, its type and what is allowed. What passes here is valid
//! for good; nothing is checked again when answers are read.

use http::Method;
use paceline_core::{Micros, Policy, SPAN_MAX_US, duration};
use toml::Table;

use super::toml::Fields;
use super::{
    AccountFrom, BodyMeans, BodyRule, BucketRule, Grade, HeaderMeans, HeaderRule, Host, LimitRule,
    Path, Profile, RefusalRule, WAIT_MAX_DEFAULT_US, bucket, length_bit,
};
use crate::reading::{Dimension, Refusal};
use crate::time::Unit;

/// Why a file of profiles was refused: file, profile, field, value, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(pub(super) String);

const SPAN: &str = "a span of time such as 30s or 500ms, from 0us to 3650d";
const NAME: &str = "a name of letters a-z, digits and hyphens";
const HOST: &str = "a host in lower case such as api.example.com or *.example.com, perhaps with a \
                    path such as /graphql or /admin/**";
const PATH: &str = "a path such as /v1/** or /v0/{base}/**; * is one part, ** at the end any rest";
const ACCOUNT: &str = "header:NAME (in lower case), query:NAME, host, or path:N (1 to 9)";
const TEXT: &str = "a text that is not empty";

/// All profiles of a text.
pub(crate) fn profiles(text: &str, file: &str) -> Result<Vec<Profile>, ProfileError> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let message = error.to_string();
        ProfileError(format!("{file}: no TOML: {}", message.trim_end()))
    })?;
    let mut fields = Fields::new(file.to_owned(), table);
    let tables = fields.tables("profile")?;
    fields.end()?;
    let mut all: Vec<Profile> = Vec::with_capacity(tables.len());
    for table in tables {
        all.push(profile(table, file, &all)?);
    }
    Ok(all)
}

fn profile(mut fields: Fields, file: &str, before: &[Profile]) -> Result<Profile, ProfileError> {
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let name = fields.text("name", NAME)?;
    if !name.bytes().all(is_letter) {
        return Err(fields.refuse("name", format!("{name:?}"), NAME));
    }
    let mut fields = fields.at(format!("{file}: profile {name:?}"));
    if before.iter().any(|it| it.name == name) {
        let allowed = "each profile of a file has its own name";
        return Err(fields.refuse("name", format!("{name:?}"), allowed));
    }
    let title = fields.text("title", TEXT)?;
    let hosts = fields.list("hosts", HOST, Host::parse)?;
    let counts = fields.text("counts", "a sentence on how the provider counts")?;
    let penalty = fields.text_or_none("penalty", TEXT)?;
    let note = fields.text_or_none("note", TEXT)?;
    let accounts = fields.list("account", ACCOUNT, AccountFrom::parse)?;
    let wait_max_us = fields.parsed("wait_max", SPAN, span)?.unwrap_or(WAIT_MAX_DEFAULT_US);
    let adapts = fields.flag("adapts")?.unwrap_or(true);
    let tables = fields.tables("bucket")?;
    let buckets: Vec<BucketRule> =
        tables.into_iter().map(|table| bucket_rule(table, &accounts)).collect::<Result<_, _>>()?;
    let is_for_all = |rule: &BucketRule| {
        rule.methods.is_empty()
            && rule.path.is_none()
            && rule.is_signed.is_none()
            && rule.resource.as_deref() != Some("*")
    };
    if !buckets.last().is_some_and(is_for_all) {
        let given = format!("{} of them", buckets.len());
        let allowed = "the last [[profile.bucket]] is for every call: without methods, path, signed \
                       and resource = \"*\"";
        return Err(fields.refuse("bucket", given, allowed));
    }
    let headers: Vec<HeaderRule> =
        fields.tables("header")?.into_iter().map(header_rule).collect::<Result<_, _>>()?;
    let limits = fields.tables("limit")?.into_iter().map(limit_rule).collect::<Result<_, _>>()?;
    let refusals = fields.tables("refusal")?;
    let refusals = refusals.into_iter().map(refusal_rule).collect::<Result<_, _>>()?;
    let bodies = fields.tables("body")?.into_iter().map(body_rule).collect::<Result<_, _>>()?;
    fields.end()?;
    let header_lengths = headers.iter().fold(0, |bits, rule| bits | length_bit(&rule.name));
    Ok(Profile {
        name,
        title,
        hosts,
        counts,
        penalty,
        note,
        accounts,
        buckets,
        headers,
        header_lengths,
        limits,
        refusals,
        bodies,
        wait_max_us,
        adapts,
    })
}

fn bucket_rule(mut fields: Fields, accounts: &[AccountFrom]) -> Result<BucketRule, ProfileError> {
    let path = fields.parsed("path", PATH, Path::parse)?;
    let allowed = "a bucket's name with {account}, {host}, {method}, {resource} or a name that its \
                   own path has in braces; {account} where the profile says where accounts stand";
    let name = fields.text("name", allowed)?;
    let is_known = |it: &str| match it {
        "account" => !accounts.is_empty(),
        "host" | "method" | "resource" => true,
        it => path.as_ref().is_some_and(|path| path.has(it)),
    };
    let has_all = bucket::names_in(&name).is_some_and(|names| names.into_iter().all(is_known));
    if !has_all {
        return Err(fields.refuse("name", format!("{name:?}"), allowed));
    }
    let policy_text = fields.text("policy", "a policy such as strict 100/m")?;
    let policy = policy_text.parse::<Policy>().map_err(|error| {
        let allowed = error.to_string();
        fields.refuse("policy", format!("{policy_text:?}"), &allowed)
    })?;
    let date = fields.text("date", "a date such as 2026-12-01")?;
    if crate::time::rfc3339(&format!("{date}T00:00")).is_none() {
        return Err(fields.refuse("date", format!("{date:?}"), "a date such as 2026-12-01"));
    }
    let allowed = "where it is documented: an address that begins with https://";
    let source = fields.text("source", allowed)?;
    if !source.starts_with("https://") {
        return Err(fields.refuse("source", format!("{source:?}"), allowed));
    }
    let method = |text: &str| Method::from_bytes(text.as_bytes()).ok();
    let rule = BucketRule {
        name,
        policy,
        policy_text,
        date,
        source,
        grade: fields.word_needed("grade", &Grade::NAMES)?,
        note: fields.text_or_none("note", TEXT)?,
        methods: fields.list("methods", "a list of methods such as [\"GET\", \"HEAD\"]", method)?,
        path,
        is_signed: fields.flag("signed")?,
        resource: fields.text_or_none("resource", TEXT)?,
    };
    fields.end()?;
    Ok(rule)
}

fn header_rule(mut fields: Fields) -> Result<HeaderRule, ProfileError> {
    let name = header_name(&mut fields, "name")?;
    let rule = HeaderRule {
        name,
        means: fields.word_needed("means", &HeaderMeans::NAMES)?,
        unit: fields.word("unit", &Unit::NAMES)?.unwrap_or_default(),
        limit: fields.text_or_none("limit", TEXT)?.unwrap_or_default(),
        dimension: fields.word("dimension", &Dimension::NAMES)?,
        window_us: fields.parsed("window", SPAN, span)?,
    };
    fields.end()?;
    // A Retry-After is a span unless it is said to be something else.
    let is_plain = rule.means == HeaderMeans::RetryAfter && rule.unit == Unit::BySize;
    Ok(HeaderRule { unit: if is_plain { Unit::Delta } else { rule.unit }, ..rule })
}

fn header_name(fields: &mut Fields, field: &'static str) -> Result<String, ProfileError> {
    let allowed = "a header's name in lower case";
    let name = fields.text(field, allowed)?;
    match http::HeaderName::from_lowercase(name.as_bytes()) {
        Ok(_) => Ok(name),
        Err(_) => Err(fields.refuse(field, format!("{name:?}"), allowed)),
    }
}

fn limit_rule(mut fields: Fields) -> Result<LimitRule, ProfileError> {
    let rule = LimitRule {
        name: fields.text("name", "a limit's name as answers tell it, or * for all others")?,
        window_us: fields.parsed("window", SPAN, span)?,
        dimension: fields.word("dimension", &Dimension::NAMES)?,
    };
    fields.end()?;
    Ok(rule)
}

fn refusal_rule(mut fields: Fields) -> Result<RefusalRule, ProfileError> {
    let status = fields.numbers("status", "a list of whole numbers from 100 to 599", 100..=599)?;
    let lower = |text: &str| {
        let is_lower = !text.is_empty() && !text.bytes().any(|byte| byte.is_ascii_uppercase());
        is_lower.then(|| text.to_owned())
    };
    let words = "a list of words in lower case (they are found in any case)";
    let header = fields.parsed("header", "NAME: WORDS, both in lower case", |text| {
        let (name, words) = text.split_once(':')?;
        http::HeaderName::from_lowercase(name.as_bytes()).ok()?;
        Some((name.to_owned(), lower(words.trim())?))
    })?;
    let body = fields.list("body", words, lower)?;
    let means: Vec<(&str, Option<Refusal>)> = Refusal::NAMES
        .iter()
        .map(|(name, it)| (*name, Some(*it)))
        .chain([("none", None)])
        .collect();
    let rule = RefusalRule {
        means: fields.word_needed("means", &means)?,
        wait: fields.parsed("wait", SPAN, |text| Some((span(text)?, text.to_owned())))?,
        grows: fields.flag("grows")?.unwrap_or(false),
        status,
        header,
        body,
    };
    if rule.status.is_empty() && rule.header.is_none() && rule.body.is_empty() {
        return Err(fields.refuse("status", "none", "a refusal has a status, a header or a body"));
    }
    fields.end()?;
    Ok(rule)
}

fn body_rule(mut fields: Fields) -> Result<BodyRule, ProfileError> {
    let key = fields.text_or_none("key", "a key of JSON")?;
    let after =
        fields.parsed("after", "words in lower case that stand before the value", |text| {
            (!text.bytes().any(|byte| byte.is_ascii_uppercase())).then(|| text.to_owned())
        })?;
    if key.is_some() == after.is_some() {
        return Err(fields.refuse("key", "none or both", "a body rule has either key or after"));
    }
    let rule = BodyRule {
        key,
        after,
        means: fields.word_needed("means", &BodyMeans::NAMES)?,
        unit: fields.word("unit", &Unit::NAMES)?.unwrap_or_default(),
        limit: fields.text_or_none("limit", TEXT)?.unwrap_or_default(),
        dimension: fields.word("dimension", &Dimension::NAMES)?,
    };
    fields.end()?;
    Ok(rule)
}

fn span(text: &str) -> Option<Micros> {
    duration::parse(text).ok().filter(|us| *us <= SPAN_MAX_US)
}
