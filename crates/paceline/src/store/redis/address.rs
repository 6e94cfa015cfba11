//! Where a server listens: a host and a port, as they stand in URLs and as servers tell each
//! other's.

use std::fmt;

/// A host (without the brackets of IPv6) and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// `host`, `host:port`, `[::1]` or `[::1]:port`.
    pub(crate) fn parse(text: &str, port_default: u16) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(format!("host {text:?}: an IPv6 address stands in brackets"));
        }
        let host = bare.unwrap_or(host);
        if host.is_empty() {
            return Err("no host".to_owned());
        }
        if host.chars().any(|c| c.is_whitespace() || c.is_control() || "[]@#?\\".contains(c)) {
            return Err(format!("host {host:?} is none"));
        }
        let port = match port {
            None => port_default,
            Some(port) => match port.parse() {
                Ok(port @ 1..) => port,
                _ => return Err(format!("port {port:?}: a number from 1 to 65535")),
            },
        };
        Ok(Self { host: host.to_owned(), port })
    }

    /// As a server tells another's: `host:port`, IPv6 without brackets, and no host where it is the
    /// one that `asked` went to.
    pub(crate) fn told(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']);
        let host = if matches!(host, "" | "?") { &asked.host } else { host };
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_tell_is_read_with_and_without_a_host() {
        let asked = Address { host: "here".to_owned(), port: 1 };
        let told = |text| Address::told(text, &asked).map(|it| it.to_string());
        assert_eq!(told("10.0.0.1:7000").as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(told("::1:7000").as_deref(), Some("[::1]:7000"));
        assert_eq!(told(":7000").as_deref(), Some("here:7000"));
        assert_eq!(told("?:7000").as_deref(), Some("here:7000"));
        for odd in ["", "x", "x:", "x:0", "x:99999"] {
            assert_eq!(told(odd), None, "{odd}");
        }
    }
}
