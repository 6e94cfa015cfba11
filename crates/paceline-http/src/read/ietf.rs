//! `RateLimit` and `RateLimit-Policy` of the IETF drafts, in the forms they have had: integers with
//! parameters (`100;w=60`), a dictionary (`limit=100, remaining=50, reset=5`), and structured lists
//! of named items (`"p1";r=0;t=30`).
//!
//! The reader is our own rather than one for structured fields, because half of who sends these
//! writes what a strict one refuses whole: `pk=:user:` is no base64, `"fixed window";"api";q=500`
//! has two names. What a strict one accepts is read the same; a test holds it to that.

use std::borrow::Cow;

use super::limits::{Found, Limits, Policy, Reset};
use super::names::Key;
use crate::number::{Count, Decimal};
use crate::reading::Dimension;
use crate::time::Time;

/// One member of a list: its name or number, and the parameters that matter here.
#[derive(Debug, Default)]
pub(super) struct Member<'a> {
    name: Cow<'a, str>,
    number: Option<Count>,
    quota: Option<Count>,
    remaining: Option<Count>,
    reset: Option<(Decimal, &'a str)>,
    window: Option<Decimal>,
    unit: Option<Cow<'a, str>>,
    partition: Option<Cow<'a, str>>,
    has_parameters: bool,
    /// It is `limit=100`, a member of a dictionary.
    key: &'a str,
}

/// One line of `RateLimit`. A malformed one is left out on its own.
pub(super) fn items<'a>(line: &'a str, limits: &mut Limits<'a>) {
    let Some(members) = List::new(line).read() else { return };
    // Draft 07: one dictionary for one limit.
    if members.iter().any(|member| !member.key.is_empty()) {
        let found = limits.item(Cow::Borrowed(""), None);
        for member in members {
            match member.key {
                "limit" => found.limit = member.number.and_then(Count::as_limit),
                "remaining" => found.remaining = member.number.map(Count::or_none_left),
                "reset" => found.reset = member.reset.map(reset),
                _ => {}
            }
        }
        return;
    }
    for member in members {
        // A bare number is the limit (Zendesk).
        if let Some(number) = member.number {
            let found = limits.entry(Key::default());
            found.limit = found.limit.or(number.as_limit());
            continue;
        }
        let found = limits.item(member.name, member.partition);
        found.remaining = member.remaining.map(Count::or_none_left);
        found.limit = member.quota.and_then(Count::as_limit);
        found.reset = member.reset.map(reset);
        found.window_us = member.window.map(|window| window.times(1_000_000));
    }
}

fn reset<'a>((delta, raw): (Decimal, &'a str)) -> Reset<'a> {
    Reset { time: Time::In(delta.times(1_000_000)), raw, header: "ratelimit" }
}

/// One line of `RateLimit-Policy`.
pub(super) fn policies<'a>(line: &'a str, limits: &mut Limits<'a>) {
    let Some(members) = List::new(line).read() else { return };
    for member in members {
        push_policy(member, limits);
    }
}

fn push_policy<'a>(member: Member<'a>, limits: &mut Limits<'a>) {
    let limit = member.quota.or(member.number).and_then(Count::as_limit);
    let dimension = match member.unit.as_deref() {
        None | Some("requests") => None,
        Some("content-bytes") => Some(Dimension::Bytes),
        Some("concurrent-requests") => Some(Dimension::Concurrency),
        Some(_) => Some(Dimension::Other),
    };
    let window_us = member.window.map(|window| window.times(1_000_000));
    if limit.is_some() || window_us.is_some() {
        let is_named = member.number.is_none();
        let (name, partition) = (member.name, member.partition);
        limits.policies.push(Policy { name, is_named, partition, dimension, limit, window_us });
    }
}

/// A limit with its policies behind it, as the first drafts and Envoy write it:
/// `100, 100;w=60, 10000;w=86400`. Without parameters a list says nothing that can be relied on.
pub(super) fn limit_list<'a>(line: &'a str, limits: &mut Limits<'a>) -> Option<Count> {
    let members = List::new(line).read()?;
    if members.len() > 1 && !members.iter().any(|member| member.has_parameters) {
        return None;
    }
    let first = members.first()?.number?;
    for member in members {
        if member.has_parameters && member.number.is_some() {
            push_policy(member, limits);
        }
    }
    Some(first)
}

/// A reader of one line. Each step takes at least a byte or ends.
struct List<'a> {
    rest: &'a str,
}

impl<'a> List<'a> {
    fn new(line: &'a str) -> Self {
        Self { rest: line.trim_ascii() }
    }

    /// All members, or nothing where the line is malformed.
    fn read(mut self) -> Option<Vec<Member<'a>>> {
        let mut members = Vec::with_capacity(2);
        loop {
            members.push(self.member()?);
            self.space();
            if self.rest.is_empty() {
                return Some(members);
            }
            self.rest = self.rest.strip_prefix(',')?;
            self.space();
        }
    }

    fn member(&mut self) -> Option<Member<'a>> {
        let mut member = Member::default();
        match self.rest.as_bytes().first()? {
            b'"' => member.name = self.string()?,
            b'-' | b'0'..=b'9' => {
                let text = self.number()?;
                member.number = Some(Count::parse(text).unwrap_or(Count::Of(0)));
            }
            _ => {
                let token = self.token()?;
                if let Some(rest) = self.rest.strip_prefix('=') {
                    self.rest = rest;
                    let text = self.number()?;
                    member.key = token;
                    member.number = Count::parse(text);
                    member.reset = Decimal::parse(text).map(|number| (number, text));
                } else {
                    member.name = Cow::Borrowed(token);
                }
            }
        }
        while let Some(rest) = self.rest.trim_ascii_start().strip_prefix(';') {
            self.rest = rest;
            self.space();
            self.parameter(&mut member)?;
        }
        Some(member)
    }

    fn parameter(&mut self, member: &mut Member<'a>) -> Option<()> {
        if self.rest.starts_with('"') {
            // A second name; the one before the parameters is the one that items use.
            member.name = self.string()?;
            return Some(());
        }
        let key = self.token()?;
        let Some(rest) = self.rest.strip_prefix('=') else { return Some(()) };
        self.rest = rest;
        member.has_parameters = true;
        match key {
            // These are numbers or the member is malformed.
            "q" => member.quota = Count::parse(self.number()?),
            "r" => member.remaining = Count::parse(self.number()?),
            "t" => {
                let text = self.number()?;
                member.reset = Decimal::parse(text).map(|number| (number, text));
            }
            "w" | "window" => member.window = Decimal::parse(self.number()?),
            "qu" => member.unit = Some(self.text()?),
            "pk" => member.partition = Some(self.text()?),
            "name" => member.name = self.text()?,
            _ => {
                self.text()?;
            }
        }
        Some(())
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Any value, as text: a string, bytes between colons (decoded by nobody, so that what is no
    /// base64 is as good as what is), a number or a token.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        match self.rest.as_bytes().first()? {
            b'"' => self.string(),
            b':' => {
                let end = self.rest[1..].find(':')? + 1;
                let (text, rest) = (&self.rest[1..end], &self.rest[end + 1..]);
                self.rest = rest;
                Some(Cow::Borrowed(text))
            }
            _ => self.token().map(Cow::Borrowed),
        }
    }

    fn number(&mut self) -> Option<&'a str> {
        let digits = self.rest.strip_prefix('-').unwrap_or(self.rest);
        let (_, rest) = Decimal::leading(digits)?;
        let (text, rest) = self.rest.split_at(self.rest.len() - rest.len());
        // `10x` is neither a number nor a token.
        if rest.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return None;
        }
        self.rest = rest;
        Some(text)
    }

    fn token(&mut self) -> Option<&'a str> {
        let ends = |c: char| matches!(c, ';' | ',' | '=' | '"' | ' ' | '\t');
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        let inner = self.rest.strip_prefix('"')?;
        let mut escaped: Option<String> = None;
        let mut letters = inner.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &inner[at + 1..];
                    return Some(match escaped {
                        Some(text) => Cow::Owned(text),
                        None => Cow::Borrowed(&inner[..at]),
                    });
                }
                '\\' => {
                    let text = escaped.get_or_insert_with(|| inner[..at].to_owned());
                    text.push(letters.next()?.1);
                }
                letter => {
                    if let Some(text) = &mut escaped {
                        text.push(letter);
                    }
                }
            }
        }
        // No closing quote.
        None
    }
}

/// Gives policies to the limits they belong to; the rest are limits of their own.
pub(super) fn join<'a>(limits: &mut Limits<'a>) {
    let policies = std::mem::take(&mut limits.policies);
    let is_sole = policies.len() == 1;
    let items = limits.found.iter().filter(|found| found.is_item).count();
    for policy in policies {
        let is_same = |found: &Found<'_>| {
            found.is_item
                && policy.is_named
                && found.name == policy.name
                && (found.partition == policy.partition
                    || found.partition.is_none()
                    || policy.partition.is_none())
        };
        let has_its_limit =
            |found: &Found<'_>| found.limit == policy.limit && found.window_us.is_none();
        let found = limits.found.iter();
        let at = found
            .clone()
            .position(is_same)
            .or_else(|| found.clone().position(|it| is_sole && items == 1 && it.is_item))
            .or_else(|| found.clone().position(|it| !policy.is_named && has_its_limit(it)));
        match at.and_then(|at| limits.found.get_mut(at)) {
            Some(found) => {
                found.limit = found.limit.or(policy.limit);
                found.window_us = found.window_us.or(policy.window_us);
                found.dimension = found.dimension.or(policy.dimension);
                if found.name.is_empty() {
                    found.name = policy.name;
                }
                found.partition = found.partition.take().or(policy.partition);
            }
            None => limits.found.push(Found {
                name: policy.name,
                partition: policy.partition,
                dimension: policy.dimension,
                limit: policy.limit,
                window_us: policy.window_us,
                is_item: true,
                ..Found::default()
            }),
        }
    }
}
