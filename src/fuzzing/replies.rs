//! Bytes to replies and commands to bytes: `resp`.

use super::source::Source;
use crate::resp::encode::{append_bulk, append_command};
use crate::resp::{Decoder, Limits, ProtocolError, Quick, Reply, quick};

const DEEP: Limits = Limits { frame_len_max: 1 << 20, depth_max: 16 };
const TIGHT: Limits = Limits { frame_len_max: 48, depth_max: 2 };

/// Any bytes. Frames lie within the input, and each of their replies is readable. The work is in
/// proportion to the bytes, and not to the sizes that they declare.
pub fn resp_decode(input: &[u8]) {
    for limits in [Limits::DEFAULT, DEEP, TIGHT] {
        let outcome = feed(input, &[], limits);
        let taken: usize = outcome.frames.iter().map(|frame| frame.len).sum();
        assert!(taken <= input.len());
        for frame in &outcome.frames {
            assert!((3..=limits.frame_len_max).contains(&frame.len), "a frame of {}", frame.len);
        }
        // A connection that brings each byte alone is the worst case.
        let by_byte = feed(input, &[1], limits);
        assert!(by_byte.visited <= 2 * input.len(), "{} visits", by_byte.visited);
        assert!(outcome.visited <= 2 * input.len(), "{} visits", outcome.visited);
    }
    // `quick` is asked only where a frame begins, and then it agrees with the decoder.
    if let Some((word, len)) = quick(input) {
        let frame = Decoder::new(Limits::DEFAULT).frame(input).ok().flatten();
        let frame = frame.expect("the decoder takes what quick takes");
        let reply = match word {
            Quick::Ok => Reply::Simple(b"OK"),
            Quick::Null => Reply::Null,
            Quick::Zero => Reply::Integer(0),
            Quick::One => Reply::Integer(1),
        };
        assert_eq!((frame.reply(), frame.len()), (reply, len));
    }
}

/// Cutting a byte stream anywhere changes neither the replies nor the error. The first byte tells
/// how many cuts follow it.
pub fn resp_chunked(input: &[u8]) {
    let mut source = Source::new(input);
    let count = source.below(16);
    let cuts: Vec<usize> = source.bytes(count).iter().map(|&len| usize::from(len).max(1)).collect();
    let input = source.bytes(usize::MAX);
    for limits in [Limits::DEFAULT, DEEP, TIGHT] {
        let whole = feed(input, &[], limits);
        for parts in [feed(input, &cuts, limits), feed(input, &[1], limits)] {
            assert_eq!(parts.frames, whole.frames);
            assert_eq!(parts.end, whole.end);
        }
    }
}

/// Commands and trees of replies, encoded. Each comes back from a stream cut anywhere, and no part
/// of one is an error or a whole.
pub fn resp_roundtrip(input: &[u8]) {
    let mut source = Source::new(input);
    let cuts: Vec<usize> = (0..source.below(4)).map(|_| source.below(40) + 1).collect();
    let (mut bytes, mut shown, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    while !source.is_empty() && shown.len() < 8 {
        if source.flag() {
            command(&mut source, &mut bytes, &mut shown);
        } else {
            let mut text = String::new();
            message(&mut source, &mut bytes, &mut text);
            shown.push(text);
        }
        ends.push(bytes.len());
    }
    for cuts in [&cuts[..], &[], &[1]] {
        let outcome = feed(&bytes, cuts, DEEP);
        let frames: Vec<_> = outcome.frames.iter().map(|frame| &frame.shown).collect();
        assert_eq!(frames, shown.iter().collect::<Vec<_>>());
        assert_eq!(outcome.end, Ok(0));
    }
    let cut = usize::from(source.u16()) % (bytes.len() + 1);
    let outcome = feed(&bytes[..cut], &cuts, DEEP);
    assert_eq!(outcome.frames.len(), ends.iter().filter(|&&end| end <= cut).count());
    assert!(outcome.end.is_ok(), "a part of something valid is no error");
}

/// Up to seven arguments, appended as a command.
fn command(source: &mut Source<'_>, bytes: &mut Vec<u8>, shown: &mut Vec<String>) {
    let args: Vec<&[u8]> = (0..source.below(8))
        .map(|_| {
            let len = source.below(64);
            source.bytes(len)
        })
        .collect();
    append_command(bytes, &args);
    let args: Vec<_> = args.iter().map(|arg| format!("${}", arg.escape_ascii())).collect();
    shown.push(format!("*[{}]", args.join(" ")));
}

/// A reply or a push, as a connection carries it.
fn message(source: &mut Source<'_>, bytes: &mut Vec<u8>, shown: &mut String) {
    if source.below(8) == 0 {
        aggregate(source, b'>', 1, bytes, shown);
    } else {
        tree(source, 0, bytes, shown);
    }
}

/// Appends one reply to `bytes`, and its expected form to `shown`.
fn tree(source: &mut Source<'_>, depth: usize, bytes: &mut Vec<u8>, shown: &mut String) {
    let line = |kind: char, line: &str, bytes: &mut Vec<u8>, shown: &mut String| {
        bytes.extend_from_slice(format!("{kind}{line}\r\n").as_bytes());
        shown.push(kind);
        shown.push_str(line);
    };
    // An aggregate is a level, and so is the attribute in front of it.
    let kinds = if depth + 2 < DEEP.depth_max { 12 } else { 8 };
    match source.below(kinds) {
        0 => {
            let kind = source.pick(b"+-");
            let len = source.below(32);
            let mut text = source.bytes(len).to_vec();
            text.retain(|byte| !matches!(byte, b'\r' | b'\n'));
            bytes.extend_from_slice(&[&[kind], &text[..], b"\r\n"].concat());
            shown.push_str(&format!("{}{}", char::from(kind), text.escape_ascii()));
        }
        1 => line(':', &source.u64().cast_signed().to_string(), bytes, shown),
        2 => {
            let high = i128::from(source.u64().cast_signed());
            let number = (high << 64 | i128::from(source.u64())).to_string();
            bytes.extend_from_slice(format!("({number}\r\n").as_bytes());
            shown.push_str(&format!(",{number}"));
        }
        3 => {
            let double = f64::from_bits(source.u64());
            line(',', &format!("{double:e}").to_lowercase(), bytes, shown);
        }
        4 => line('#', source.pick(&["t", "f"]), bytes, shown),
        5 => {
            bytes.extend_from_slice(source.pick(&[&b"_\r\n"[..], b"$-1\r\n", b"*-1\r\n"]));
            shown.push('_');
        }
        6 => {
            let len = usize::from(source.u16()) % 300;
            let text = source.bytes(len);
            append_bulk(bytes, text);
            shown.push_str(&format!("${}", text.escape_ascii()));
        }
        7 => {
            let len = source.below(32);
            let text = source.bytes(len);
            bytes.extend_from_slice(format!("={}\r\ntxt:", text.len() + 4).as_bytes());
            bytes.extend_from_slice(&[text, b"\r\n"].concat());
            shown.push_str(&format!("={}", text.escape_ascii()));
        }
        8 => aggregate(source, b'*', depth + 1, bytes, shown),
        9 => aggregate(source, b'~', depth + 1, bytes, shown),
        10 => aggregate(source, b'%', depth + 1, bytes, shown),
        _ => {
            // The decoder skips an attribute, whatever it holds.
            aggregate(source, b'|', depth + 1, bytes, &mut String::new());
            tree(source, depth + 1, bytes, shown);
        }
    }
}

fn aggregate(
    source: &mut Source<'_>,
    kind: u8,
    depth: usize,
    bytes: &mut Vec<u8>,
    shown: &mut String,
) {
    let (declared, len) = match (kind, source.below(6)) {
        // A push has at least the element that names its kind.
        (b'>', n) => (n / 2 + 1, n / 2 + 1),
        (b'%' | b'|', n) => (n / 2, n / 2 * 2),
        (_, n) => (n, n),
    };
    bytes.extend_from_slice(format!("{}{declared}\r\n", char::from(kind)).as_bytes());
    shown.push(char::from(kind));
    shown.push('[');
    for index in 0..len {
        if index > 0 {
            shown.push(' ');
        }
        tree(source, depth, bytes, shown);
    }
    shown.push(']');
}

/// One frame of an input.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    len: usize,
    is_push: bool,
    shown: String,
}

/// How an input ended: the frames in it, then an error, or the number of bytes left over.
struct Outcome {
    frames: Vec<Shown>,
    end: Result<usize, ProtocolError>,
    visited: usize,
}

/// Feeds `input` as a node does: unfinished bytes stay contiguous, finished ones are taken off. The
/// chunks have the lengths `cuts`, over and over; without any, `input` comes whole.
fn feed(input: &[u8], cuts: &[usize], limits: Limits) -> Outcome {
    let mut decoder = Decoder::new(limits);
    let mut cuts = cuts.iter().cycle();
    let mut outcome = Outcome { frames: Vec::new(), end: Ok(0), visited: 0 };
    let (mut start, mut arrived) = (0, 0);
    while outcome.end.is_ok() && arrived < input.len() {
        arrived += cuts.next().map_or(usize::MAX, |&len| len).min(input.len() - arrived);
        loop {
            match decoder.frame(&input[start..arrived]) {
                Ok(Some(frame)) => {
                    assert_eq!(frame.bytes(), &input[start..start + frame.len()]);
                    start += frame.len();
                    let mut shown = String::new();
                    show(&frame.reply(), &mut shown);
                    assert!(format!("{frame:?}").len() < 200, "Debug shows no received text");
                    outcome.frames.push(Shown {
                        len: frame.len(),
                        is_push: frame.is_push(),
                        shown,
                    });
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

/// One line for a reply and all its parts, spelt much like RESP.
fn show(reply: &Reply<'_>, shown: &mut String) {
    let (kind, text) = match reply {
        Reply::Simple(text) => ('+', *text),
        Reply::Error(text) => ('-', *text),
        Reply::Bulk(text) => ('$', *text),
        Reply::Number(text) => (',', *text),
        Reply::Verbatim(text) => ('=', *text),
        Reply::Null => ('_', &b""[..]),
        Reply::Boolean(true) => ('#', &b"t"[..]),
        Reply::Boolean(false) => ('#', &b"f"[..]),
        Reply::Integer(n) => return shown.push_str(&format!(":{n}")),
        Reply::Array(items) => return show_items('*', items, shown),
        Reply::Set(items) => return show_items('~', items, shown),
        Reply::Map(items) => return show_items('%', items, shown),
        Reply::Push(items) => return show_items('>', items, shown),
    };
    shown.push(kind);
    shown.push_str(&text.escape_ascii().to_string());
}

fn show_items(kind: char, items: &crate::resp::Items<'_>, shown: &mut String) {
    shown.push(kind);
    shown.push('[');
    let mut count = 0;
    for item in items.clone() {
        if count > 0 {
            shown.push(' ');
        }
        show(&item, shown);
        count += 1;
    }
    assert_eq!(count, items.len(), "an aggregate has the elements it declares");
    shown.push(']');
}
