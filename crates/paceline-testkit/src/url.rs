//! What the kit writes into the URLs of its servers.

/// The password as it stands before the host.
pub(crate) fn login(password: Option<&str>) -> String {
    password.map(|p| format!(":{}@", percent_encoded(p))).unwrap_or_default()
}

/// The hosts of a URL of many.
pub(crate) fn hosts(ports: impl IntoIterator<Item = u16>) -> String {
    let hosts: Vec<_> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    hosts.join(",")
}

/// A password may hold what ends it inside a URL.
pub(crate) fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte.into())
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_fit_for_a_url() {
        assert_eq!(percent_encoded("a:b@c/é"), "a%3Ab%40c%2F%C3%A9");
    }
}
