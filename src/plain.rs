//! Bytes and words in a form for people: keys, and the parts of a client's name at the nodes.
//!
//! Layer: bottom, plain values.

/// The longest word.
pub(crate) const WORD_LEN_MAX: usize = 64;

/// The text as one word that CLIENT SETNAME takes and no terminal can misread; `None` if empty.
pub(crate) fn word(text: &str) -> Option<String> {
    let letter = |c: char| if is_plain(c) { c } else { '_' };
    let word: String = text.chars().take(WORD_LEN_MAX).map(letter).collect();
    (!word.is_empty()).then_some(word)
}

/// Whether the character may stand in a word.
pub(crate) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".-_+@/".contains(c)
}

/// A key for people, logs and JSON, on one line. Bytes that are not UTF-8, control characters and
/// backslashes are escaped.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || character == '\\' {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_on_one_line() {
        assert_eq!(shown(b"sku:42"), "sku:42");
        assert_eq!(shown("ключ".as_bytes()), "ключ");
        assert_eq!(shown(b"a\r\nb\0\xff\\"), "a\\r\\nb\\u{0}\\xff\\\\");
    }
}
