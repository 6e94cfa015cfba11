//! Stores by URL: `memory:`, `host:` or `host:/path`,
//! `redis://[user:password@]host[:port][/db][?prefix=]` and `rediss://`. Read once, at the edge.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use url::Url;

use crate::error::Error;

/// The default for keys in Redis: `paceline:{name}`.
const PREFIX_DEFAULT: &str = "paceline:";
const PORT_DEFAULT: u16 = 6379;

/// Where the buckets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    Memory,
    /// `None`: the user's default folder.
    Host {
        folder: Option<PathBuf>,
    },
    Redis(RedisUrl),
}

/// One Redis server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) db: i64,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) prefix: String,
}

const ALLOWED: &str = "a store is memory:, host:, host:/path, \
                       redis://[user:password@]host[:port][/db][?prefix=] or rediss://";

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(Error::input(format!("store {:?}: {ALLOWED}", shown(text))));
        };
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(Error::input(format!(
                "store {text:?}: memory: takes nothing behind it; every memory store is its own"
            ))),
            "host" => host(text, rest),
            "redis" | "rediss" => redis(text).map(Self::Redis),
            "redis+sentinel" | "rediss+sentinel" | "redis-sentinel" | "redis-cluster"
            | "rediss-cluster" => Err(Error::input(format!(
                "store {scheme}://…: Sentinel and Cluster are not supported yet; {ALLOWED}"
            ))),
            _ => Err(Error::input(format!(
                "store {:?}: unknown scheme {scheme:?}; {ALLOWED}",
                shown(text)
            ))),
        }
    }
}

fn host(text: &str, rest: &str) -> Result<StoreUrl, Error> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Ok(StoreUrl::Host { folder: None });
    }
    if !path.starts_with('/') {
        return Err(Error::input(format!(
            "store {text:?}: a host folder is an absolute path, such as host:/var/lib/paceline"
        )));
    }
    Ok(StoreUrl::Host { folder: Some(PathBuf::from(path)) })
}

fn redis(text: &str) -> Result<RedisUrl, Error> {
    let refused = |what: String| Error::input(format!("store {}: {what}; {ALLOWED}", shown(text)));
    let url = Url::parse(text).map_err(|error| refused(error.to_string()))?;
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| refused("no host".to_owned()))?;
    let db = match url.path().trim_matches('/') {
        "" => 0,
        db => match db.parse() {
            Ok(number @ 0..=65_535) => number,
            _ => return Err(refused(format!("{db:?} is no database number (0 to 65535)"))),
        },
    };
    let mut prefix = PREFIX_DEFAULT.to_owned();
    for (key, value) in url.query_pairs() {
        match &*key {
            "prefix" => prefix = value.into_owned(),
            _ => return Err(refused(format!("unknown parameter {key:?}; there is ?prefix="))),
        }
    }
    if prefix.len() > 128 || prefix.chars().any(|c| c.is_control() || c == '{' || c == '}') {
        return Err(refused(format!(
            "prefix {prefix:?}: up to 128 bytes without braces and control characters"
        )));
    }
    let secret = |text: &str| (!text.is_empty()).then(|| unescaped(text));
    Ok(RedisUrl {
        tls: url.scheme() == "rediss",
        host: host.trim_matches(['[', ']']).to_owned(),
        port: url.port().unwrap_or(PORT_DEFAULT),
        db,
        user: secret(url.username()),
        password: url.password().and_then(secret),
        prefix,
    })
}

/// A text that may hold a password, for a message: what stands before the last `@` is left out.
fn shown(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}://…{}", &text[..scheme], &text[at..])
        }
        (None, Some(at)) => format!("…{}", &text[at..]),
        _ => text.to_owned(),
    }
}

/// Percent-decodes user or password; what is not UTF-8 afterwards stays readable enough to fail
/// at the server.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or(0) * 16 + hex(*low).unwrap_or(0));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// For messages and logs: never a password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        write!(f, "{scheme}://{}:{}/{}", self.host, self.port, self.db)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn server(text: &str) -> RedisUrl {
        match text.parse() {
            Ok(StoreUrl::Redis(server)) => server,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_store_is_named_by_its_scheme() {
        assert_eq!("memory:".parse::<StoreUrl>().unwrap(), StoreUrl::Memory);
        assert_eq!("host:".parse::<StoreUrl>().unwrap(), StoreUrl::Host { folder: None });
        let folder = Some(PathBuf::from("/a/b"));
        assert_eq!(
            "host:/a/b".parse::<StoreUrl>().unwrap(),
            StoreUrl::Host { folder: folder.clone() }
        );
        assert_eq!("host:///a/b".parse::<StoreUrl>().unwrap(), StoreUrl::Host { folder });
    }

    #[test]
    fn a_redis_url_names_server_database_and_prefix() {
        let plain = server("redis://localhost");
        assert_eq!(
            (plain.port, plain.db, plain.tls, plain.prefix.as_str()),
            (6379, 0, false, "paceline:")
        );
        let full = server("rediss://us%40er:p%2Fw%3A@[::1]:7000/3?prefix=team%3A");
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("us@er"), Some("p/w:")));
        assert_eq!((full.host.as_str(), full.port, full.db, full.tls), ("::1", 7000, 3, true));
        assert_eq!(full.prefix, "team:");
        assert_eq!(server("redis://:secret@h").password.as_deref(), Some("secret"));
    }

    #[test]
    fn a_bad_url_is_refused_with_what_is_allowed_and_without_its_password() {
        for text in [
            "",
            "nonsense",
            "memory:x",
            "host:relative",
            "http://x",
            "redis://",
            "redis://h/x",
            "redis://h/0?x=1",
            "redis://h?prefix={a}",
            "redis+sentinel://u:hush@h/s",
            "redis-cluster://h",
            "redis://u:hush@h/99999999",
            "rediss://u:hush@h?nope",
            "postgres://u:hush@h",
            "u:hush@h",
            "redis://u:hush@h:port",
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            let message = error.to_string();
            assert!(error.is_input() && !message.contains("hush"), "{text}: {message}");
            assert!(message.contains("host:") || message.contains("memory:"), "{text}: {message}");
        }
    }
}
