//! Stores by URL: `memory:`, `host:` or `host:/path`, and Redis's. Read once, at the edge.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::redis::url::{FORMS, RedisUrl, shown};
use crate::error::Error;

/// Where the buckets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    Memory,
    /// `None`: the user's default folder.
    Host {
        folder: Option<PathBuf>,
    },
    Redis(Box<RedisUrl>),
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = |what: String| {
            Error::input(format!(
                "store {}: {what}; a store is memory:, host:, host:/path, {FORMS}",
                shown(text)
            ))
        };
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(refused("no scheme".to_owned()));
        };
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(Error::input(format!(
                "store {text:?}: memory: takes nothing behind it; every memory store is its own"
            ))),
            "host" => host(text, rest),
            _ if RedisUrl::has_scheme(scheme) => {
                RedisUrl::parse(text).map(|url| Self::Redis(Box::new(url)))
            }
            _ => Err(refused(format!("unknown scheme {scheme:?}"))),
        }
    }
}

/// For messages: never a password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Host { folder } => {
                let folder = folder.as_deref().unwrap_or(Path::new(""));
                write!(f, "host:{}", folder.display())
            }
            Self::Redis(url) => url.fmt(f),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_is_named_by_its_scheme() {
        assert_eq!("memory:".parse::<StoreUrl>().unwrap(), StoreUrl::Memory);
        assert_eq!("host:".parse::<StoreUrl>().unwrap(), StoreUrl::Host { folder: None });
        assert_eq!(StoreUrl::Memory.to_string(), "memory:");
        assert_eq!(StoreUrl::Host { folder: None }.to_string(), "host:");
        let folder = Some(PathBuf::from("/a/b"));
        assert_eq!(StoreUrl::Host { folder: folder.clone() }.to_string(), "host:/a/b");
        assert_eq!(
            "host:/a/b".parse::<StoreUrl>().unwrap(),
            StoreUrl::Host { folder: folder.clone() }
        );
        assert_eq!("host:///a/b".parse::<StoreUrl>().unwrap(), StoreUrl::Host { folder });
        for redis in ["redis://h", "rediss://h", "redis+sentinel://h/main", "redis-cluster://h"] {
            assert!(matches!(redis.parse(), Ok(StoreUrl::Redis(_))), "{redis}");
        }
    }

    #[test]
    fn a_bad_url_is_refused_with_what_is_allowed_and_without_its_password() {
        for text in [
            "",
            "nonsense",
            "memory:x",
            "host:relative",
            "http://x",
            "postgres://u:hush@h",
            "u:hush@h",
            "redis://u:hush@h:port",
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            let message = error.to_string();
            assert!(error.is_input() && !message.contains("hush"), "{text}: {message}");
            let allowed = ["host:", "memory:", "redis://"];
            assert!(allowed.iter().any(|it| message.contains(it)), "{text}: {message}");
        }
    }
}
