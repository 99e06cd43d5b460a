//! Properties of all inputs: cutting changes nothing, trees survive, nothing panics.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{feed, show};
use crate::resp::{Decoder, Limits, ProtocolError, Quick, Reply, quick};

/// A reply as a server would build it.
#[derive(Clone, Debug)]
enum Tree {
    /// A text line, an integer or the like, by its type byte.
    Line(u8, Vec<u8>),
    Bulk(u8, Vec<u8>),
    Verbatim(Vec<u8>),
    /// An aggregate with its type byte; a map's elements come in pairs.
    Aggregate(u8, Vec<Self>),
    Attributed(Vec<Self>, Box<Self>),
}

impl Tree {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, n) = match self {
            Self::Line(kind, line) => {
                out.push(*kind);
                out.extend_from_slice(line);
                out.extend_from_slice(b"\r\n");
                return;
            }
            Self::Bulk(kind, bytes) => (*kind, bytes.len()),
            Self::Verbatim(text) => (b'=', text.len() + 4),
            Self::Aggregate(b'%', items) => (b'%', items.len() / 2),
            Self::Aggregate(kind, items) => (*kind, items.len()),
            Self::Attributed(items, _) => (b'|', items.len() / 2),
        };
        out.extend_from_slice(format!("{}{n}\r\n", char::from(kind)).as_bytes());
        match self {
            Self::Line(..) => {}
            Self::Bulk(_, bytes) => out.extend_from_slice(&[bytes, &b"\r\n"[..]].concat()),
            Self::Verbatim(text) => out.extend_from_slice(&[b"txt:", &text[..], b"\r\n"].concat()),
            Self::Aggregate(_, items) => items.iter().for_each(|item| item.encode(out)),
            Self::Attributed(items, reply) => {
                items.iter().for_each(|item| item.encode(out));
                reply.encode(out);
            }
        }
    }

    /// The text that [`show`] should make of the decoded reply.
    fn show(&self) -> String {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        match self {
            Self::Line(b'#', line) => format!("#{}", line == b"t"),
            Self::Line(b'(', line) => format!(",{}", text(line)),
            Self::Line(kind, line) => format!("{}{}", char::from(*kind), text(line)),
            Self::Bulk(b'!', bytes) => format!("-{}", text(bytes)),
            Self::Bulk(_, bytes) => format!("${}", text(bytes)),
            Self::Verbatim(bytes) => format!("={}", text(bytes)),
            Self::Aggregate(kind, items) => {
                let items: Vec<_> = items.iter().map(Self::show).collect();
                format!("{}[{}]", char::from(*kind), items.join(" "))
            }
            Self::Attributed(_, reply) => reply.show(),
        }
    }
}

fn leaf() -> impl Strategy<Value = Tree> {
    let text = vec(any::<u8>().prop_filter("no line ending", |b| !b"\r\n".contains(b)), 0..12);
    prop_oneof![
        (prop::sample::select(b"+-".to_vec()), text)
            .prop_map(|(kind, line)| Tree::Line(kind, line)),
        any::<i64>().prop_map(|n| Tree::Line(b':', n.to_string().into_bytes())),
        any::<i128>().prop_map(|n| Tree::Line(b'(', n.to_string().into_bytes())),
        any::<f64>().prop_map(|n| Tree::Line(b',', format!("{n:e}").to_lowercase().into_bytes())),
        any::<bool>().prop_map(|value| Tree::Line(b'#', vec![if value { b't' } else { b'f' }])),
        Just(Tree::Line(b'_', Vec::new())),
        (prop::sample::select(b"$!".to_vec()), vec(any::<u8>(), 0..40))
            .prop_map(|(kind, bytes)| Tree::Bulk(kind, bytes)),
        vec(any::<u8>(), 0..20).prop_map(Tree::Verbatim),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    leaf().prop_recursive(4, 40, 6, |inner| {
        let pairs = || vec((inner.clone(), inner.clone()), 0..3).prop_map(flatten);
        prop_oneof![
            (prop::sample::select(b"*~".to_vec()), vec(inner.clone(), 0..6))
                .prop_map(|(kind, items)| Tree::Aggregate(kind, items)),
            pairs().prop_map(|items| Tree::Aggregate(b'%', items)),
            (pairs(), inner.clone()).prop_map(|(a, reply)| Tree::Attributed(a, Box::new(reply))),
        ]
    })
}

fn flatten(pairs: Vec<(Tree, Tree)>) -> Vec<Tree> {
    pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()
}

/// A frame as a connection carries it: a reply or a push.
fn message() -> impl Strategy<Value = Tree> {
    prop_oneof![
        4 => tree(),
        1 => vec(tree(), 1..4).prop_map(|items| Tree::Aggregate(b'>', items)),
    ]
}

fn encoded(messages: &[Tree]) -> Vec<u8> {
    let mut out = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut out));
    out
}

/// Valid frames with a few bytes changed, and bytes that look like RESP.
fn almost_valid() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let mutated = (vec(message(), 1..4), changes).prop_map(|(messages, changes)| {
        let mut bytes = encoded(&messages);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    });
    let alphabet = b"+-:$*_#,(!=%~|>0123456789\r\n\r\n\r\n?.einfantx".to_vec();
    prop_oneof![mutated, vec(prop::sample::select(alphabet), 0..60), vec(any::<u8>(), 0..60)]
}

const DEEP: Limits = Limits { frame_len_max: 1 << 20, depth_max: 16 };
const TIGHT: Limits = Limits { frame_len_max: 48, depth_max: 2 };

/// How many replies there are in `reply`, including itself.
fn count(reply: Reply<'_>) -> usize {
    if let Reply::Array(items) | Reply::Set(items) | Reply::Map(items) | Reply::Push(items) = reply
    {
        return items.map(count).sum::<usize>() + 1;
    }
    1
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn trees_survive_encoding_and_decoding(
        messages in vec(message(), 1..4),
        cuts in vec(1_usize..40, 0..40),
    ) {
        let outcome = feed(&encoded(&messages), cuts, DEEP);
        let shown: Vec<_> = messages
            .iter()
            .map(|message| {
                let push = if matches!(message, Tree::Aggregate(b'>', _)) { "push " } else { "" };
                format!("{push}{}", message.show())
            })
            .collect();
        prop_assert_eq!(outcome.frames, shown);
        prop_assert_eq!(outcome.end, Ok(0));
    }

    #[test]
    fn cutting_changes_nothing(input in almost_valid(), cuts in vec(1_usize..20, 0..60)) {
        for limits in [Limits::DEFAULT, DEEP, TIGHT] {
            let whole = feed(&input, [input.len()], limits);
            let by_byte = feed(&input, std::iter::repeat(1), limits);
            for cut in [feed(&input, cuts.iter().copied(), limits), by_byte] {
                prop_assert_eq!(&cut.frames, &whole.frames);
                prop_assert_eq!(cut.end, whole.end);
                prop_assert!(cut.visited <= 2 * input.len());
            }
        }
    }

    #[test]
    fn a_prefix_of_valid_frames_is_never_an_error(
        messages in vec(message(), 1..3),
        end in any::<prop::sample::Index>(),
    ) {
        let bytes = encoded(&messages);
        let outcome = feed(&bytes[..end.index(bytes.len())], [1, 2, 3], DEEP);
        prop_assert!(outcome.end.is_ok());
        prop_assert!(outcome.frames.len() < messages.len());
    }

    #[test]
    fn foreign_bytes_never_panic_the_reply_reader(input in almost_valid()) {
        if let Some(reply) = Reply::parse(&input) {
            prop_assert!(count(reply) <= input.len());
        }
    }

    #[test]
    fn integers_are_those_that_fit_64_bits(text in "[+-]?[0-9]{0,21}") {
        let outcome = feed(format!(":{text}\r\n").as_bytes(), [], Limits::DEFAULT);
        match text.parse::<i64>() {
            Ok(n) if text.len() <= 20 => prop_assert_eq!(outcome.frames, [format!(":{n}")]),
            _ => prop_assert_eq!(outcome.end, Err(ProtocolError::Integer)),
        }
    }

    #[test]
    fn quick_agrees_with_the_decoder(
        input in vec(prop::sample::select(b"+OK_$-:01\r\n".to_vec()), 0..8),
        head in prop::sample::select(vec!["", "+OK\r\n", "_\r\n", "$-1\r\n", ":0\r\n", ":1\r\n"]),
    ) {
        let bytes = [head.as_bytes(), &input].concat();
        let decoded = Decoder::new(Limits::DEFAULT)
            .frame(&bytes)
            .ok()
            .flatten()
            .map(|frame| (show(&frame.reply()), frame.len()));
        if let Some((kind, len)) = quick(&bytes) {
            let shown = match kind {
                Quick::Ok => "+OK",
                Quick::Null => "_",
                Quick::Zero => ":0",
                Quick::One => ":1",
            };
            prop_assert_eq!(decoded, Some((shown.to_owned(), len)));
        } else if !head.is_empty() {
            prop_assert!(false, "a common reply was declined");
        }
    }
}
