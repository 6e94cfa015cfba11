//! Redis by URL: one server, a primary behind Sentinels, or a Cluster; how to get in, and what the
//! query may say. Holds secrets and prints none.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::form_urlencoded;

use super::address::Address;
use crate::error::Error;

/// The default for keys: `paceline:{name}`.
const PREFIX_DEFAULT: &str = "paceline:";
const PORT_DEFAULT: u16 = 6379;
const SENTINEL_PORT_DEFAULT: u16 = 26_379;
/// More replicas than anybody has.
const REPLICAS_MAX: u32 = 100;

/// How such a URL is spelled.
pub(crate) const FORMS: &str = "redis://[user:password@]host[:port][/db], \
     redis+sentinel://[user:password@]host[:port][,host[:port]…]/service[/db] or \
     redis-cluster://[user:password@]host[:port][,host[:port]…]; rediss… for TLS; then \
     ?prefix=, replicas=, ca=, cert=, key=, and for sentinels sentinel_user=, sentinel_password=";

/// Where the servers are and how they let us in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl {
    pub(crate) servers: Servers,
    /// To the servers, and to the sentinels.
    pub(crate) tls: Option<Tls>,
    pub(crate) db: i64,
    pub(crate) login: Login,
    pub(crate) prefix: String,
    /// Replicas that must have a change before it is answered.
    pub(crate) replicas: u32,
}

/// Which server has the buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Servers {
    /// This one.
    One(Address),
    /// The one that these sentinels say is the primary of a service.
    Sentinel { sentinels: Vec<Address>, service: String, login: Login },
    /// The nodes of a Cluster that these are some of.
    Cluster(Vec<Address>),
}

/// User and password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// Files in PEM form; without `ca` the system's authorities are trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

impl RedisUrl {
    /// Whether a scheme is one of ours.
    pub(crate) fn has_scheme(scheme: &str) -> bool {
        Kind::of(scheme).is_some()
    }

    /// Reads a URL whose scheme is one of ours.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        Self::parts(text).map_err(|what| {
            Error::input(format!("store {}: {what}; a Redis store is {FORMS}", shown(text)))
        })
    }

    fn parts(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("no // behind the scheme")?;
        let (kind, tls) = Kind::of(scheme).ok_or_else(|| format!("unknown scheme {scheme:?}"))?;
        if let Some((_, behind)) = rest.split_once(['/', '?'])
            && behind.contains('@')
        {
            return Err("an @ behind / or ?; in a user or a password /, ? and @ are spelled %2F, \
                        %3F and %40"
                .to_owned());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::parse(login), hosts),
            None => (Login::default(), authority),
        };
        let port_default = match kind {
            Kind::Sentinel => SENTINEL_PORT_DEFAULT,
            Kind::One | Kind::Cluster => PORT_DEFAULT,
        };
        let mut addresses = Vec::new();
        for host in hosts.split(',') {
            addresses.push(Address::parse(host, port_default)?);
        }
        let mut query = Query::parse(query)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let (servers, db) = match kind {
            Kind::One => match &addresses[..] {
                [address] => (Servers::One(address.clone()), path),
                _ => {
                    return Err("more than one host; Sentinels are named by redis+sentinel://, a \
                                Cluster by redis-cluster://"
                        .to_owned());
                }
            },
            Kind::Sentinel => {
                let (service, db) = path.split_once('/').unwrap_or((path, ""));
                let service = percent_decode_str(service).decode_utf8_lossy().into_owned();
                if service.is_empty() {
                    return Err("no service; it stands behind the hosts, as in …/mymaster".into());
                }
                let login = std::mem::take(&mut query.sentinel);
                (Servers::Sentinel { sentinels: addresses, service, login }, db)
            }
            Kind::Cluster if matches!(path, "" | "0") => (Servers::Cluster(addresses), ""),
            Kind::Cluster => return Err(format!("/{path}: a Cluster has database 0 alone")),
        };
        let db = match db {
            "" => 0,
            db => match db.parse() {
                Ok(number @ 0..=65_535) => number,
                _ => return Err(format!("{db:?} is no database number (0 to 65535)")),
            },
        };
        if query.sentinel != Login::default() {
            return Err("sentinel_user and sentinel_password go with redis+sentinel://".into());
        }
        if !tls && query.tls != Tls::default() {
            return Err("ca, cert and key go with TLS: spell the scheme rediss…".into());
        }
        let tls = tls.then_some(query.tls);
        Ok(Self { servers, tls, db, login, prefix: query.prefix, replicas: query.replicas })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Sentinel,
    Cluster,
}

impl Kind {
    /// With whether TLS is spoken.
    fn of(scheme: &str) -> Option<(Self, bool)> {
        Some(match scheme {
            "redis" => (Self::One, false),
            "rediss" => (Self::One, true),
            "redis+sentinel" | "redis-sentinel" => (Self::Sentinel, false),
            "rediss+sentinel" | "rediss-sentinel" => (Self::Sentinel, true),
            "redis-cluster" | "redis+cluster" => (Self::Cluster, false),
            "rediss-cluster" | "rediss+cluster" => (Self::Cluster, true),
            _ => return None,
        })
    }
}

impl Login {
    /// `user:password`, percent-encoded, either of which may be missing.
    fn parse(text: &str) -> Self {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |text: &str| {
            (!text.is_empty()).then(|| percent_decode_str(text).decode_utf8_lossy().into_owned())
        };
        Self { user: decoded(user), password: decoded(password) }
    }
}

/// What stands behind the question mark.
#[derive(Default)]
struct Query {
    prefix: String,
    replicas: u32,
    tls: Tls,
    sentinel: Login,
}

impl Query {
    fn parse(text: &str) -> Result<Self, String> {
        let mut query = Self { prefix: PREFIX_DEFAULT.to_owned(), ..Self::default() };
        let (mut cert, mut key_file) = (None, None);
        let mut seen = Vec::new();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            if seen.contains(&key) {
                return Err(format!("{key}= is said twice"));
            }
            let value = value.into_owned();
            match &*key {
                "prefix" => query.prefix = value,
                "replicas" => match value.parse() {
                    Ok(number @ 0..=REPLICAS_MAX) => query.replicas = number,
                    _ => return Err(format!("replicas={value}: a number up to {REPLICAS_MAX}")),
                },
                "ca" => query.tls.ca = Some(value.into()),
                "cert" => cert = Some(PathBuf::from(value)),
                "key" => key_file = Some(PathBuf::from(value)),
                "sentinel_user" => query.sentinel.user = Some(value),
                "sentinel_password" => query.sentinel.password = Some(value),
                _ => return Err(format!("unknown parameter {key:?}")),
            }
            seen.push(key);
        }
        query.tls.client = match (cert, key_file) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("cert= and key= go together".to_owned()),
        };
        let bad = |c: char| c.is_control() || c == '{' || c == '}';
        let prefix = &query.prefix;
        if prefix.is_empty() {
            // A listing would take every key in braces for a bucket, whoever made it.
            return Err(
                "prefix \"\": it tells our keys from all others, so it is 1 to 128 bytes; \
                        without ?prefix= it is paceline:"
                    .to_owned(),
            );
        }
        if prefix.len() > 128 || prefix.chars().any(bad) {
            return Err(format!(
                "prefix {prefix:?}: 1 to 128 bytes without braces and control characters"
            ));
        }
        Ok(query)
    }
}

/// A text that may hold passwords, for a message: what stands before its last `@` is left out, and
/// parameters where one of them may be a password.
pub(crate) fn shown(text: &str) -> String {
    let scheme = text.find("://").map_or("", |end| &text[..end + 3]);
    let (behind, hidden) = match text.rfind('@') {
        Some(at) => (&text[at..], "…"),
        None => (text.strip_prefix(scheme).unwrap_or(text), ""),
    };
    match behind.split_once('?') {
        Some((before, query)) if query.to_lowercase().contains("password") => {
            format!("{scheme}{hidden}{before}?…")
        }
        _ => format!("{scheme}{hidden}{behind}"),
    }
}

/// For messages and logs: never a password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls.is_some() { "rediss" } else { "redis" })?;
        let list = |addresses: &[Address]| {
            addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
        };
        match &self.servers {
            Servers::One(address) => write!(f, "://{address}/{}", self.db),
            Servers::Sentinel { sentinels, service, .. } => {
                write!(f, "+sentinel://{}/{service}/{}", list(sentinels), self.db)
            }
            Servers::Cluster(seeds) => write!(f, "-cluster://{}", list(seeds)),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.user.as_deref().unwrap_or("default"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn url(text: &str) -> RedisUrl {
        RedisUrl::parse(text).unwrap()
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn one_server_with_its_database_and_prefix() {
        let plain = url("redis://localhost");
        assert_eq!(plain.servers, Servers::One(address("localhost", 6379)));
        assert_eq!((plain.db, plain.tls, plain.prefix.as_str()), (0, None, "paceline:"));
        let full = url("rediss://us%40er:p%2Fw%3A@[::1]:7000/3?prefix=team%3A&replicas=2");
        assert_eq!(full.servers, Servers::One(address("::1", 7000)));
        assert_eq!(full.login.user.as_deref(), Some("us@er"));
        assert_eq!(full.login.password.as_deref(), Some("p/w:"));
        assert_eq!((full.db, full.replicas, full.prefix.as_str()), (3, 2, "team:"));
        assert_eq!(full.to_string(), "rediss://[::1]:7000/3");
        assert_eq!(url("redis://:secret@h").login.password.as_deref(), Some("secret"));
    }

    #[test]
    fn sentinels_name_a_service_and_have_a_login_of_their_own() {
        let it =
            url("redis+sentinel://:a@s1,s2:7,[::1]/main/4?sentinel_user=u&sentinel_password=p");
        let Servers::Sentinel { sentinels, service, login } = &it.servers else { panic!("{it}") };
        assert_eq!(
            sentinels[..],
            [address("s1", 26_379), address("s2", 7), address("::1", 26_379)]
        );
        assert_eq!((service.as_str(), it.db), ("main", 4));
        assert_eq!(it.login.password.as_deref(), Some("a"));
        assert_eq!((login.user.as_deref(), login.password.as_deref()), (Some("u"), Some("p")));
        assert_eq!(it.to_string(), "redis+sentinel://s1:26379,s2:7,[::1]:26379/main/4");
        assert!(!format!("{it:?}").contains('p') || !format!("{login:?}").contains("\"p\""));
    }

    #[test]
    fn a_cluster_is_named_by_some_of_its_nodes() {
        let it = url("rediss-cluster://u:w@a,b:7001?ca=/ca.pem&cert=/c.pem&key=/k.pem");
        assert_eq!(it.servers, Servers::Cluster(vec![address("a", 6379), address("b", 7001)]));
        let tls = it.tls.as_ref().unwrap();
        assert_eq!(tls.ca.as_deref(), Some("/ca.pem".as_ref()));
        assert_eq!(tls.client, Some(("/c.pem".into(), "/k.pem".into())));
        assert_eq!(it.to_string(), "rediss-cluster://a:6379,b:7001");
    }

    #[test]
    fn a_bad_url_says_what_is_wrong_and_never_a_password() {
        for (text, says) in [
            ("redis://", "no host"),
            ("redis://h/x", "\"x\" is no database"),
            ("redis://h/0?x=1", "unknown parameter \"x\""),
            ("redis://h?prefix={a}", "without braces"),
            ("redis://h?prefix=", "1 to 128 bytes"),
            ("redis-cluster://h?prefix&replicas=1", "1 to 128 bytes"),
            ("redis://h?prefix=a&prefix=b", "twice"),
            ("redis://h?replicas=-1", "replicas=-1"),
            ("redis://a,b", "more than one host"),
            ("redis://u:hush@h/99999999", "database number"),
            ("redis://u:hush@h:port", "port"),
            ("redis://u:hush@h:0", "port"),
            ("redis://::1", "brackets"),
            ("rediss://u:hush@h?nope", "nope"),
            ("redis://h?ca=/x", "rediss"),
            ("rediss://h?cert=/x", "go together"),
            ("redis+sentinel://u:hush@h", "no service"),
            ("redis+sentinel://h/main/x?sentinel_password=hush", "database number"),
            ("redis://h?sentinel_password=hush", "go with redis+sentinel"),
            ("redis-cluster://u:hush@h/3", "database 0 alone"),
            ("redis-cluster://h,,i", "no host"),
            ("redis:u:hush@h", "no //"),
            ("redis://u:hu?sh@h", "%3F"),
            ("redis://u:hu/sh@h", "%2F"),
        ] {
            let message = RedisUrl::parse(text).unwrap_err().to_string();
            assert!(message.contains(says), "{text}: {message}");
            assert!(!message.contains("hu"), "{text}: {message}");
        }
    }
}
