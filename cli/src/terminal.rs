//! The terminal: its width, text that fits into it, and lines that are redrawn in place.

use std::io::{self, IsTerminal as _, Write as _};

use console::{Term, measure_text_width, truncate_str};

/// Whether lines can be redrawn in place on `stream`.
pub(crate) fn is_live(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The columns of the terminal on stdout; `None` if stdout is not a terminal.
pub(crate) fn width() -> Option<usize> {
    io::stdout().is_terminal().then(|| size().0)
}

/// The columns of the terminal on stderr.
pub(crate) fn error_width() -> usize {
    Term::stderr().size().1.into()
}

/// The rows of the terminal on stdout.
pub(crate) fn height() -> usize {
    size().1
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    let (rows, columns) = Term::stdout().size();
    (columns.into(), rows.into())
}

/// Lines on stdout that are redrawn in place.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    /// How many lines the last drawing took.
    drawn: usize,
}

impl Picture {
    /// Draws `lines` over the last ones, as many as fit.
    pub(crate) fn draw(&mut self, mut lines: Vec<String>) -> io::Result<()> {
        let (columns, rows) = size();
        lines.truncate(rows.saturating_sub(1));
        let mut frame = String::new();
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}A\r", self.drawn));
        } else {
            frame.push_str("\x1b[?25l");
        }
        for line in &lines {
            frame.push_str(&truncate_str(line, columns, ""));
            frame.push_str("\x1b[K\n");
        }
        frame.push_str("\x1b[J");
        self.drawn = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        out.flush()
    }
}

impl Drop for Picture {
    /// Shows the terminal's cursor again.
    fn drop(&mut self) {
        if self.drawn > 0 {
            show_cursor();
        }
    }
}

/// Shows the cursor again, if a drawing may have hidden it.
pub(crate) fn show_cursor() {
    if is_live(&io::stdout()) {
        let _ = Term::stdout().show_cursor();
    }
}

/// Removes a line that shows progress.
pub(crate) fn clear_line() {
    if is_live(&io::stderr()) {
        let _ = write!(io::stderr().lock(), "\r\x1b[K");
    }
}

/// `text`, broken between words if a line is wider than `columns`; lines after the first begin with
/// `indent` blanks.
pub(crate) fn wrap(text: &str, indent: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let mut shown = String::with_capacity(text.len() + 64);
    let mut width = 0;
    // Runs of blanks are kept: they set columns apart.
    for word in text.split_inclusive(' ') {
        let (len, bare) = (measure_text_width(word), measure_text_width(word.trim_end()));
        if width > indent && width + bare > columns {
            shown.truncate(shown.trim_end().len());
            shown.push('\n');
            shown.push_str(&" ".repeat(indent));
            width = indent;
        }
        shown.push_str(word);
        width += len;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_broken_between_words() {
        assert_eq!(wrap("note  one two three", 6, Some(12)), "note  one\n      two\n      three");
        assert_eq!(wrap("note  one two three", 6, Some(13)), "note  one two\n      three");
        assert_eq!(wrap("note  one two three", 6, None), "note  one two three");
        assert_eq!(wrap("\x1b[1mab\x1b[0m cd", 1, Some(5)), "\x1b[1mab\x1b[0m cd");
        assert_eq!(wrap("longer-than-that ab", 2, Some(8)), "longer-than-that\n  ab");
    }
}
