//! Tests of `resp`, and their helpers: feeding bytes as a connection would, and showing replies.

mod hostile;
mod properties;
mod replies;

use super::{Decoder, Limits, ProtocolError, Reply};

/// How an input ended: the frames in it, then either an error or the number of bytes left over.
#[derive(Debug, Eq, PartialEq)]
struct Outcome {
    frames: Vec<String>,
    end: Result<usize, ProtocolError>,
    /// How many bytes had arrived when the error was raised, or all bytes.
    arrived: usize,
    visited: usize,
}

/// Feeds `input` in `chunks` as a node does: unfinished bytes stay contiguous, finished ones are
/// taken off. The last chunk is the rest.
fn feed(input: &[u8], chunks: impl IntoIterator<Item = usize>, limits: Limits) -> Outcome {
    let mut chunks = chunks.into_iter();
    let mut decoder = Decoder::new(limits);
    let mut outcome = Outcome { frames: Vec::new(), end: Ok(0), arrived: 0, visited: 0 };
    let mut start = 0;
    while outcome.end.is_ok() && outcome.arrived < input.len() {
        let left = input.len() - outcome.arrived;
        outcome.arrived += chunks.next().unwrap_or(left).clamp(1, left);
        loop {
            match decoder.frame(&input[start..outcome.arrived]) {
                Ok(Some(frame)) => {
                    start += frame.len();
                    let push = if frame.is_push() { "push " } else { "" };
                    outcome.frames.push(format!("{push}{}", show(&frame.reply())));
                }
                Ok(None) => break,
                Err(error) => {
                    outcome.end = Err(error);
                    assert_eq!(decoder.frame(b"+OK\r\n"), Err(error), "an error is final");
                    break;
                }
            }
        }
    }
    outcome.end = outcome.end.map(|_| input.len() - start);
    outcome.visited = decoder.visited();
    outcome
}

/// Feeds `input` whole, byte by byte and in a few other sizes: the result has to be the same.
fn decode(input: &[u8]) -> Outcome {
    decode_within(input, Limits::DEFAULT)
}

fn decode_within(input: &[u8], limits: Limits) -> Outcome {
    let by_byte = feed(input, std::iter::repeat(1), limits);
    for size in [2, 3, 5, 64, input.len()] {
        let other = feed(input, std::iter::repeat(size), limits);
        assert_eq!(other.frames, by_byte.frames, "in chunks of {size}");
        assert_eq!(other.end, by_byte.end, "in chunks of {size}");
    }
    by_byte
}

/// One line for a reply and all its parts, spelt much like RESP.
fn show(reply: &Reply<'_>) -> String {
    let text = |kind: &str, bytes: &[u8]| format!("{kind}{}", bytes.escape_ascii());
    let items = |open: &str, items: &super::Items<'_>| {
        let shown: Vec<_> = items.clone().map(|item| show(&item)).collect();
        assert_eq!(shown.len(), items.len(), "an aggregate has the elements it declares");
        format!("{open}[{}]", shown.join(" "))
    };
    match reply {
        Reply::Simple(bytes) => text("+", bytes),
        Reply::Error(bytes) => text("-", bytes),
        Reply::Integer(n) => format!(":{n}"),
        Reply::Bulk(bytes) => text("$", bytes),
        Reply::Null => "_".into(),
        Reply::Boolean(value) => format!("#{value}"),
        Reply::Number(bytes) => text(",", bytes),
        Reply::Verbatim(bytes) => text("=", bytes),
        Reply::Array(elements) => items("*", elements),
        Reply::Set(elements) => items("~", elements),
        Reply::Map(elements) => items("%", elements),
        Reply::Push(elements) => items(">", elements),
    }
}

/// Asserts that `input` is these frames and nothing else.
#[track_caller]
fn gives(input: &[u8], frames: &[&str]) {
    let outcome = decode(input);
    assert_eq!(outcome.frames, frames, "{}", input.escape_ascii());
    assert_eq!(outcome.end, Ok(0), "{}", input.escape_ascii());
}

/// Asserts that no byte of `input` is consumed yet.
#[track_caller]
fn needs_more(input: &[u8]) {
    let outcome = decode(input);
    assert_eq!(outcome.frames, [""; 0]);
    assert_eq!(outcome.end, Ok(input.len()), "{}", input.escape_ascii());
}

/// Asserts that `input` fails at its last byte and no earlier.
#[track_caller]
fn fails(input: &[u8], error: ProtocolError) {
    let outcome = decode(input);
    let shown = input.get(..60).unwrap_or(input).escape_ascii();
    assert_eq!(outcome.end, Err(error), "{shown}");
    assert_eq!(outcome.arrived, input.len(), "{shown}: raised late or early");
    assert_eq!(outcome.frames, [""; 0]);
}
