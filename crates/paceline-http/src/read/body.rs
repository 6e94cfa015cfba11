//! The few things that some providers say only in the body: marks of a refusal, and numbers or
//! times under a JSON key or behind known words.
//!
//! The body is searched and not parsed: it may be megabytes, cut short, or no JSON at all. A key is
//! found as `"key":`, which inside a JSON string would be `\"key\":`, so what users have written
//! into a text is not taken for it.

use crate::number::Decimal;

/// How much of the beginning and of the end is looked at. Errors come first, GraphQL's extensions
/// last.
const LOOK_MAX: usize = 4_096;

/// Both ends of a body.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Body<'a> {
    head: &'a [u8],
    tail: &'a [u8],
}

impl<'a> Body<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        if body.len() <= 2 * LOOK_MAX {
            return Self { head: body, tail: &[] };
        }
        Self { head: &body[..LOOK_MAX], tail: &body[body.len() - LOOK_MAX..] }
    }

    /// Whether it holds these words, which are in lower case, in any case.
    pub(super) fn has(self, words: &str) -> bool {
        [self.head, self.tail].into_iter().any(|part| find(part, words.as_bytes(), true).is_some())
    }

    /// The value under a JSON key: a string's inside, or a bare word.
    pub(super) fn under(self, key: &str) -> Option<&'a str> {
        [self.head, self.tail].into_iter().find_map(|part| value_after(part, key))
    }

    /// The digits (and unit) behind these words.
    pub(super) fn behind(self, words: &str) -> Option<&'a str> {
        [self.head, self.tail].into_iter().find_map(|part| {
            let at = find(part, words.as_bytes(), true)? + words.len();
            let rest = part.get(at..)?;
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
            let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
            let text = std::str::from_utf8(rest.get(..end)?).ok()?;
            // The point that ends a sentence is none of a number.
            Some(text.trim_end_matches('.')).filter(|text| !text.is_empty())
        })
    }
}

/// The number under a JSON key.
pub(super) fn number_after(text: &[u8], key: &str) -> Option<Decimal> {
    Decimal::parse(value_after(text, key)?)
}

fn value_after<'a>(text: &'a [u8], key: &str) -> Option<&'a str> {
    let mut from = 0;
    while let Some(at) = find(&text[from..], key.as_bytes(), false) {
        let (start, end) = (from + at, from + at + key.len());
        from = end;
        let is_quoted = start > 0 && text[start - 1] == b'"' && text.get(end) == Some(&b'"');
        if !is_quoted || (start > 1 && text[start - 2] == b'\\') {
            continue;
        }
        let Some(value) = text[end + 1..].trim_ascii_start().strip_prefix(b":") else { continue };
        let value = value.trim_ascii_start();
        let (value, ends): (_, fn(&u8) -> bool) = match value.strip_prefix(b"\"") {
            Some(inner) => (inner, |byte| *byte == b'"'),
            None => (value, |byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r')),
        };
        let end = value.iter().position(ends).unwrap_or(value.len());
        return std::str::from_utf8(&value[..end]).ok().map(str::trim_ascii);
    }
    None
}

/// Where `words` begin. Empty words are found nowhere, so that every find moves on.
fn find(text: &[u8], words: &[u8], any_case: bool) -> Option<usize> {
    let (first, rest) = words.split_first()?;
    if !any_case {
        return memchr::memmem::find(text, words);
    }
    let is_here = |at: &usize| {
        let here = text.get(at + 1..at + words.len());
        here.is_some_and(|here| here.eq_ignore_ascii_case(rest))
    };
    memchr::memchr2_iter(*first, first.to_ascii_uppercase(), text).find(is_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_outside_of_texts_only() {
        let body = br#"{"note":"say \"wait\": 9","x":"wait","wait" : 5 , "s":"6.5s"}"#;
        let body = Body::new(body);
        assert_eq!(body.under("wait"), Some("5"));
        assert_eq!(body.under("s"), Some("6.5s"));
        assert_eq!(body.under("none"), None);
        assert_eq!(body.under(""), None);
        assert!(body.has("say \\\"wait") && !body.has("away"));
    }

    #[test]
    fn both_ends_of_a_long_body_are_looked_at() {
        let mut text = vec![b' '; 100_000];
        text[10..15].copy_from_slice(b"FIRST");
        text[50_000..50_006].copy_from_slice(b"MIDDLE");
        text[99_000..99_004].copy_from_slice(b"LAST");
        let body = Body::new(&text);
        assert!(body.has("first") && body.has("last") && !body.has("middle"));
    }

    #[test]
    fn a_time_stands_behind_words() {
        let body = Body::new(b"IP banned until 1660090423228. Try again in 55 seconds.");
        assert_eq!(body.behind("banned until "), Some("1660090423228"));
        assert_eq!(body.behind("try again in "), Some("55"));
        assert_eq!(body.behind("again in 55 seconds."), None);
    }
}
