//! A bucket's name: one to 256 bytes of any Unicode without control characters. It is kept as it
//! is, never joined with another, so two names never meet in one key.

use crate::error::Error;

/// Longest name in bytes.
const NAME_MAX: usize = 256;

/// Checks a name.
///
/// # Errors
/// When it is empty, too long or holds control characters.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    let wrong = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > NAME_MAX {
        format!("it has {} bytes", name.len())
    } else if let Some(control) = name.chars().find(|c| c.is_control()) {
        format!("it holds the control character {control:?}")
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(40).collect();
    Err(Error::input(format!(
        "bucket name {shown:?}: {wrong}; a name is 1 to {NAME_MAX} bytes of any text without control \
         characters"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_without_control_characters_is_a_name() {
        for name in ["github", "stripe:acct_1", "a{b}c", "with space", "Ä/日本", &"x".repeat(256)]
        {
            assert!(check(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_bad_name_is_refused_with_what_is_allowed() {
        for name in ["", "tab\there", "line\n", "\u{7f}", "\u{85}", &"x".repeat(257)] {
            let error = check(name).unwrap_err();
            assert!(error.is_input() && error.to_string().contains("1 to 256 bytes"), "{error}");
        }
    }
}
