//! The sentences of the comments and the pages: none is so long that a reader takes it twice.

use std::path::PathBuf;

use super::code::sources;
use super::pages::{files, pages, read};

/// Words that a sentence may have.
const WORDS_MAX: usize = 25;

const DIRS: [&str; 9] = [
    "src",
    "tests",
    "examples",
    "benches",
    "cli",
    "embedded",
    "ffi",
    "fuzz/fuzz_targets",
    "python",
];

/// The text of a comment's line; nothing of another line.
fn comment(line: &str) -> &str {
    let line = line.trim_start();
    ["//!", "///", "//"].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or_default()
}

/// The comments of all sources, and all pages, line by line.
fn texts() -> Vec<(PathBuf, Vec<String>)> {
    let of_source = |text: &str| text.lines().map(|line| comment(line).trim().to_owned()).collect();
    let comments = DIRS.into_iter().flat_map(sources).map(|it| (it.path, of_source(&it.text)));
    let of_page = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect();
    let files = files();
    let pages = pages(&files).map(|path| (path.clone(), of_page(&read(path))));
    comments.chain(pages).collect()
}

/// A heading, a row of a table, or the mark of a program's begin or end.
fn is_apart(line: &str) -> bool {
    line.is_empty() || ["#", "|", "```"].iter().any(|mark| line.starts_with(mark))
}

/// Each paragraph: the number of its first line, and its text.
fn paragraphs(lines: &[String]) -> Vec<(usize, String)> {
    let (mut all, mut in_program) = (vec![(0, String::new())], false);
    for (number, words) in (1..).zip(lines) {
        in_program ^= words.starts_with("```");
        let begins = is_apart(words) || words.starts_with("- ");
        let last = all.last_mut().filter(|_| !begins);
        match last {
            Some((_, last)) if !in_program && !last.is_empty() => *last = format!("{last} {words}"),
            Some(_) | None => {
                let is_text = !in_program && !is_apart(words);
                all.push((number, if is_text { words.clone() } else { String::new() }));
            }
        }
    }
    all
}

/// The longest part between two full stops, colons or semicolons.
fn longest(paragraph: &str) -> usize {
    let ends = |word: &&str| {
        let word = word.trim_end_matches([')', '*', '"', '`']);
        word.ends_with(['.', ':', ';', '?'])
    };
    let words: Vec<_> = paragraph.split_whitespace().collect();
    let sentences = words.split_inclusive(ends);
    let is_word = |word: &&&str| word.contains(char::is_alphanumeric);
    sentences.map(|words| words.iter().filter(is_word).count()).max().unwrap_or(0)
}

#[test]
fn no_sentence_has_more_than_twenty_five_words() {
    let mut long = Vec::new();
    for (path, lines) in texts() {
        for (line, text) in paragraphs(&lines) {
            let words = longest(&text);
            if words > WORDS_MAX {
                long.push(format!("{}:{line}: {words} words: {text}", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
