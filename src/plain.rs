//! Words of plain characters: what stands in a client's name at the nodes.
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
