//! Which bucket a call belongs to: hosts, paths with names in braces, methods, and the account.
//!
//! A bucket's name must be the same in every process and must tell nothing that is secret. So an
//! account is taken from a header or a query and only twelve hexadecimal digits of its SHA-1 go into
//! the name: enough to keep a fleet's accounts apart, and nothing to log in with.

use std::fmt::Write;

use http::{HeaderMap, Method, Uri};
use paceline_core::Policy;

use super::{BucketRule, Profile};

/// Longest part of a name that comes from outside: an id, not a text.
const PART_MAX: usize = 64;

/// Where a call belongs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Placed<'a> {
    /// The bucket's name.
    pub bucket: String,
    /// The quota it begins with, where it does not exist yet.
    pub policy: &'a Policy,
    /// The rule that placed it, with the quota's source.
    pub rule: &'a BucketRule,
}

/// A host, `*.` before it for all below it, and perhaps a path: `*.example.com/admin/**`.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    text: String,
    domain: String,
    is_below: bool,
    path: Option<Path>,
}

impl Host {
    /// A host of letters, digits, dots and hyphens; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, path) = match text.find('/') {
            Some(at) => (&text[..at], Some(Path::parse(&text[at..])?)),
            None => (text, None),
        };
        let (domain, is_below) = match host.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (host, false),
        };
        let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-');
        let is_host = !domain.is_empty() && domain.bytes().all(is_letter);
        let domain = domain.to_owned();
        is_host.then(|| Self { text: text.to_owned(), domain, is_below, path })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// How well it fits: longer is better, a path best. `None` where it does not.
    ///
    /// Asked of every host of every profile for each call, so lengths are compared first.
    pub(crate) fn fit(&self, host: &str, path: &str) -> Option<usize> {
        let (host, domain) = (host.as_bytes(), self.domain.as_bytes());
        let start = host.len().checked_sub(domain.len())?;
        let is_place =
            if self.is_below { start > 1 && host[start - 1] == b'.' } else { start == 0 };
        if !is_place || !host[start..].eq_ignore_ascii_case(domain) {
            return None;
        }
        let by_path = match &self.path {
            None => 0,
            Some(pattern) if pattern.fits(path) => 1_000 + pattern.text.len(),
            Some(_) => return None,
        };
        Some(domain.len() * 2 + usize::from(!self.is_below) + by_path)
    }
}

/// A pattern of paths: `/v0/{base}/**`. `*` is one part, `**` at the end is any rest or none, a name
/// in braces is one part that bucket names may use.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    text: String,
    parts: Vec<Part>,
    is_open: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Is(String),
    Any,
    Named(String),
}

impl Path {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('/')?;
        let (inner, is_open) = match inner.strip_suffix("**") {
            Some(head) => (head.strip_suffix('/').unwrap_or(head), true),
            None => (inner, false),
        };
        if inner.contains("**") {
            return None;
        }
        let part = |part: &str| match part.strip_prefix('{') {
            Some(named) => named.strip_suffix('}').map(|name| Part::Named(name.to_owned())),
            None if part == "*" => Some(Part::Any),
            None if part.contains(['*', '{', '}']) => None,
            None => Some(Part::Is(part.to_owned())),
        };
        let parts = match inner {
            "" => Vec::new(),
            inner => inner.split('/').map(part).collect::<Option<_>>()?,
        };
        Some(Self { text: text.to_owned(), parts, is_open })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Named(it) if it == name))
    }

    /// Whether a path fits.
    fn fits(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path).trim_end_matches('/');
        let mut given = path.split('/');
        if path.is_empty() {
            // Splitting nothing gives an empty part.
            given.next();
        }
        let has_parts = self.parts.iter().all(|part| match (part, given.next()) {
            (_, None) => false,
            (Part::Is(text), Some(given)) => text == given,
            (Part::Any | Part::Named(_), Some(_)) => true,
        });
        has_parts && (self.is_open || given.next().is_none())
    }

    /// What stands for one of its names in a path that fits.
    fn named<'a>(&self, name: &str, path: &'a str) -> Option<&'a str> {
        let at =
            self.parts.iter().position(|part| matches!(part, Part::Named(it) if it == name))?;
        path.strip_prefix('/').unwrap_or(path).split('/').nth(at)
    }
}

/// Where the account stands in a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AccountFrom {
    /// In this header; of `Bearer abc` the part behind the scheme.
    Header(String),
    /// In this parameter of the query.
    Query(String),
    /// In the host: whatever stands below the profile's domain.
    Host,
    /// In this part of the path, 1 for the first.
    Path(usize),
}

impl AccountFrom {
    /// `header:NAME`, `query:NAME`, `host`, `path:N`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "host" {
            return Some(Self::Host);
        }
        let (kind, name) = text.split_once(':')?;
        match kind {
            "header" => http::HeaderName::from_lowercase(name.as_bytes())
                .ok()
                .map(|name| Self::Header(name.as_str().to_owned())),
            "query" if !name.is_empty() => Some(Self::Query(name.to_owned())),
            "path" => name.parse().ok().filter(|at| (1..=9).contains(at)).map(Self::Path),
            _ => None,
        }
    }

    /// The account as a name may hold it.
    fn of(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        match self {
            Self::Header(name) => {
                let value = headers.get(name.as_str())?.as_bytes().trim_ascii();
                // `Bearer abc` and `token abc` are one account.
                let behind = value.iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
                Some(&value[behind..]).filter(|secret| !secret.is_empty()).map(hash)
            }
            Self::Query(name) => {
                let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
                let value = pairs.into_iter().find(|(key, _)| key == name)?.1;
                Some(hash(value.as_bytes())).filter(|_| !value.is_empty())
            }
            Self::Host => Some(part(&uri.host()?.to_ascii_lowercase())),
            Self::Path(at) => {
                let given = uri.path().split('/').nth(*at)?;
                Some(part(given)).filter(|part| !part.is_empty())
            }
        }
    }
}

/// Twelve digits of a secret's hash.
fn hash(secret: &[u8]) -> String {
    let mut text = String::with_capacity(12);
    for byte in &sha1_smol::Sha1::from(secret).digest().bytes()[..6] {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A part of a name that comes from outside: whatever is not plain becomes a hyphen, and what is
/// long becomes a hash.
fn part(text: &str) -> String {
    if text.len() > PART_MAX {
        return hash(text.as_bytes());
    }
    let plain = |c: char| {
        let is_plain = c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '~');
        if is_plain { c } else { '-' }
    };
    text.chars().map(plain).collect()
}

/// Finds the bucket of a call; `resource` is what the answer called it.
pub(super) fn place<'a>(
    profile: &'a Profile,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    account: Option<&str>,
    resource: Option<&str>,
) -> Placed<'a> {
    let account = account
        .map(part)
        .or_else(|| profile.accounts.iter().find_map(|from| from.of(uri, headers)));
    let is_for = |rule: &&BucketRule| {
        (rule.methods.is_empty() || rule.methods.contains(method))
            && rule.is_signed.is_none_or(|is_signed| is_signed == account.is_some())
            && rule.path.as_ref().is_none_or(|path| path.fits(uri.path()))
    };
    let is_named = |rule: &&BucketRule| {
        let it = rule.resource.as_deref();
        it.is_some()
            && (it == resource || (it == Some("*") && is_for(rule)))
            && rule.is_signed.is_none_or(|is_signed| is_signed == account.is_some())
    };
    let by_answer = resource.and_then(|_| profile.buckets.iter().find(is_named));
    // What only the answer can name does not serve a call that has none yet.
    let by_call = || {
        let mut rules = profile.buckets.iter().filter(|rule| rule.resource.as_deref() != Some("*"));
        rules.find(is_for)
    };
    // The schema asks for a last rule that fits every call.
    let rule = by_answer.or_else(by_call).unwrap_or(&profile.buckets[profile.buckets.len() - 1]);
    let bucket = named(&rule.name, |name| match name {
        "account" => account.clone().unwrap_or_else(|| "anonymous".to_owned()),
        "host" => part(&host_of(uri, headers).unwrap_or("unknown").to_ascii_lowercase()),
        "method" => part(method.as_str()),
        "resource" => part(resource.unwrap_or("unknown")),
        name => {
            let given = rule.path.as_ref().and_then(|path| path.named(name, uri.path()));
            part(given.unwrap_or("unknown"))
        }
    });
    Placed { bucket, policy: &rule.policy, rule }
}

/// A call that is only a path has its host in a header.
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    uri.host().or_else(|| headers.get(http::header::HOST)?.to_str().ok())
}

/// Fills in the names in braces.
fn named(template: &str, text: impl Fn(&str) -> String) -> String {
    let mut name = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some((head, tail)) = rest.split_once('{') {
        name.push_str(head);
        let (inside, tail) = tail.split_once('}').unwrap_or((tail, ""));
        name.push_str(&text(inside));
        rest = tail;
    }
    name.push_str(rest);
    name
}

/// The names that stand in braces in a template; `None` where a brace has no partner.
pub(super) fn names_in(template: &str) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut rest = template;
    while let Some((head, tail)) = rest.split_once('{') {
        let (inside, tail) = tail.split_once('}')?;
        if head.contains('}') {
            return None;
        }
        names.push(inside);
        rest = tail;
    }
    (!rest.contains('}')).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fit_part_by_part() {
        for (pattern, path, fits) in [
            ("/v0/{base}/**", "/v0/app1/table", true),
            ("/v0/{base}/**", "/v0/app1", true),
            ("/v0/{base}/**", "/v0", false),
            ("/graphql", "/graphql/", true),
            ("/graphql", "/graphql/x", false),
            ("/**", "/", true),
            ("/a/*/c", "/a/b/c", true),
            ("/", "/", true),
        ] {
            let path_of = Path::parse(pattern).unwrap();
            assert_eq!(path_of.fits(path), fits, "{pattern} {path}");
        }
        for pattern in ["v0", "/a**b/c", "/{a", "/x*"] {
            assert!(Path::parse(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn hosts_fit_by_their_end_and_the_longer_wins() {
        let fit = |host: &str, uri: &str| {
            let uri: Uri = uri.parse().unwrap();
            Host::parse(host).unwrap().fit(uri.host()?, uri.path())
        };
        assert!(fit("*.example.com", "https://shop.example.com/x").is_some());
        assert!(fit("*.example.com", "https://example.com/x").is_none());
        assert!(fit("*.example.com", "https://badexample.com/x").is_none());
        assert!(fit("example.com", "https://EXAMPLE.com:8443/x").is_some());
        assert!(
            fit("example.com/a/**", "https://example.com/a/b")
                > fit("example.com", "https://example.com/a/b")
        );
        assert!(fit("example.com", "/relative").is_none());
        assert!(Host::parse("Example.com").is_none() && Host::parse("a b").is_none());
    }

    #[test]
    fn a_part_from_outside_is_plain_and_short() {
        assert_eq!(part("a:b c\n{d}"), "a-b-c--d-");
        assert_eq!(part(&"x".repeat(100)).len(), 12);
    }
}
