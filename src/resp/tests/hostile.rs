//! Bytes that broke other clients, bytes near to them, and the exact byte at which the decoder
//! refuses each.

use super::{ProtocolError as E, decode, decode_within, fails, feed, gives, needs_more};
use crate::resp::{Decoder, Limits};

fn repeated(bytes: &[u8], count: usize) -> Vec<u8> {
    bytes.repeat(count)
}

#[test]
fn counts_that_overflow_elsewhere_are_refused_as_too_long() {
    for count in ["2305843009213693954", "4294967295", "4294967296", "1073741826", "1000000"] {
        for kind in ["*", "%", "~", ">", "|"] {
            fails(format!("{kind}{count}\r\n").as_bytes(), E::FrameTooLong);
        }
    }
    for len in ["9223372036854775807", "9223372036854775806", "18446744073709551615", "1048576"] {
        for kind in ["$", "!", "="] {
            fails(format!("{kind}{len}\r\n").as_bytes(), E::FrameTooLong);
        }
    }
    // Past 64 bits the decoder need not see the rest of the line.
    for kind in ["$", "*", "%", ">"] {
        fails(format!("{kind}18446744073709551616").as_bytes(), E::FrameTooLong);
        fails(format!("{kind}99999999999999999999").as_bytes(), E::FrameTooLong);
    }
}

#[test]
fn a_count_is_refused_exactly_where_its_smallest_elements_would_not_fit() {
    // Headers of 9 bytes, elements of at least 3, a cap of 1,048,576.
    needs_more(b"*349522\r\n");
    fails(b"*349523\r\n", E::FrameTooLong);
    needs_more(b"%174761\r\n");
    fails(b"%174762\r\n", E::FrameTooLong);
    // An attribute leaves room for the reply behind it.
    needs_more(b"|174760\r\n");
    fails(b"|174761\r\n", E::FrameTooLong);
    needs_more(b"$1048564\r\n");
    fails(b"$1048565\r\n", E::FrameTooLong);
    // The elements that outer aggregates still lack count as well.
    needs_more(b"*2\r\n$1048557\r\n");
    fails(b"*2\r\n$1048558\r\n", E::FrameTooLong);
    fails(b"*300000\r\n*60000\r\n", E::FrameTooLong);
}

#[test]
fn nesting_ends_at_the_depth_cap() {
    for header in ["*1\r\n", "~1\r\n", "|1\r\n", "%1\r\n"] {
        needs_more(&repeated(header.as_bytes(), 8));
        fails(&repeated(header.as_bytes(), 9), E::TooDeep);
        for count in [1025, 100_000] {
            let bytes = repeated(header.as_bytes(), count);
            let whole = feed(&bytes, [bytes.len()], Limits::DEFAULT);
            assert_eq!(whole.end, Err(E::TooDeep));
            assert!(whole.visited <= 9 * header.len(), "it stops where it is too deep");
        }
    }
    fails(&repeated(b"%1\r\n+a\r\n", 9)[..8 * 8 + 4], E::TooDeep);
    fails(b">1\r\n>", E::NestedPush);
    fails(b"*1\r\n>", E::NestedPush);
    fails(b"|1\r\n+k\r\n>", E::NestedPush);
    // An aggregate without elements opens no level.
    let mut bytes = repeated(b"*1\r\n", 8);
    bytes.extend_from_slice(b"*0\r\n");
    gives(&bytes, &["*[*[*[*[*[*[*[*[*[]]]]]]]]]"]);
}

#[test]
fn a_configured_depth_is_kept_up_to_the_decoders_own() {
    let flat = Limits { depth_max: 0, ..Limits::DEFAULT };
    assert_eq!(decode_within(b"*0\r\n", flat).end, Ok(0));
    assert_eq!(decode_within(b"*1\r\n", flat).end, Err(E::TooDeep));
    let deep = Limits { depth_max: usize::MAX, ..Limits::DEFAULT };
    assert_eq!(decode_within(&repeated(b"*1\r\n", 16), deep).end, Ok(64));
    assert_eq!(decode_within(&repeated(b"*1\r\n", 17), deep).end, Err(E::TooDeep));
}

#[test]
fn work_is_linear_under_any_chunking() {
    let mut integers = b"*32000\r\n".to_vec();
    integers.extend(repeated(b":1\r\n", 32_000));
    let mut bulk = b"$1000000\r\n".to_vec();
    bulk.extend(repeated(b"x", 1_000_000));
    bulk.extend_from_slice(b"\r\n");
    let mut line = b"+".to_vec();
    line.extend(repeated(b"x", 65_536));
    line.extend_from_slice(b"\r\n");
    let texts = [b"*32000\r\n".to_vec(), repeated(b"+\r\n", 32_000)].concat();
    for input in [&integers, &bulk, &line, &texts] {
        for size in [1, 7, 64, 16_384, input.len()] {
            let outcome = feed(input, std::iter::repeat(size), Limits::DEFAULT);
            assert_eq!((outcome.frames.len(), outcome.end), (1, Ok(0)));
            // The decoder finds the end of a text line, then checks it: it looks at nothing else
            // twice.
            assert!(outcome.visited <= 2 * input.len(), "{} in {size}", outcome.visited);
        }
    }
    assert_eq!(decode(&integers).visited, integers.len());
    assert!(decode(&bulk).visited < 20, "a payload is passed over, not read");
}

#[test]
fn waiting_without_a_new_byte_costs_nothing() {
    let mut decoder = Decoder::new(Limits::DEFAULT);
    for _ in 0..1000 {
        assert_eq!(decoder.frame(b"*2\r\n+abc"), Ok(None));
    }
    assert_eq!(decoder.visited(), 8);
}

#[test]
fn a_lone_type_byte_is_not_consumed() {
    for kind in b"+-:$*_#,(!=%~|>" {
        needs_more(&[*kind]);
    }
    needs_more(b"");
    gives(b":1\r\n", &[":1"]);
}

#[test]
fn a_payload_is_never_read_past_what_arrived() {
    needs_more(b"*1\r\n$100\r\ntest\r\n");
    needs_more(b"$4\r\ntest");
    needs_more(b"$4\r\ntest\r");
    gives(b"$4\r\ntest\r\n", &["$test"]);
    gives(b"$4\r\n\r\n\r\n\r\n", &["$\\r\\n\\r\\n"]);
}

#[test]
fn unbounded_lines_are_refused_at_their_cap() {
    for kind in ["+", "-"] {
        let line = |len| [kind.as_bytes(), &repeated(b"a", len)].concat();
        needs_more(&line(65_536));
        needs_more(&[line(65_536), b"\r".to_vec()].concat());
        assert_eq!(decode(&[line(65_536), b"\r\n".to_vec()].concat()).end, Ok(0));
        fails(&line(65_537), E::LineTooLong);
        assert_eq!(decode(&line(2_000_000)).end, Err(E::LineTooLong));
    }
    for kind in ["(", ","] {
        let line = |len| [kind.as_bytes(), &repeated(b"1", len)].concat();
        needs_more(&line(1024));
        assert_eq!(decode(&[line(1024), b"\r\n".to_vec()].concat()).end, Ok(0));
        fails(&line(1025), E::LineTooLong);
        assert_eq!(decode(&line(1_000_000)).end, Err(E::LineTooLong));
    }
    fails(b":111111111111111111111"[..21].as_ref(), E::Integer);
    fails(b":000000000000000000001", E::Integer);
    assert_eq!(decode(&[b":".to_vec(), repeated(b"0", 10_000)].concat()).end, Err(E::Integer));
    assert_eq!(decode(&[b"$".to_vec(), repeated(b"9", 10_000)].concat()).end, Err(E::FrameTooLong));
}

#[test]
fn a_frame_may_fill_the_size_cap_but_not_pass_it() {
    for (input, len) in [
        (&b"+abcd\r\n"[..], 7),
        (b"$5\r\nhello\r\n", 11),
        (b"*2\r\n:12\r\n_\r\n", 12),
        (b"|1\r\n+k\r\n+v\r\n+OK\r\n", 17),
        (b":12345\r\n", 8),
    ] {
        let limits = |frame_len_max| Limits { frame_len_max, ..Limits::DEFAULT };
        assert_eq!(input.len(), len);
        assert_eq!(decode_within(input, limits(len)).frames.len(), 1);
        for frame_len_max in 0..len {
            assert_eq!(decode_within(input, limits(frame_len_max)).end, Err(E::FrameTooLong));
        }
    }
    // An element that leaves too little room for those behind it is the last one that the decoder
    // looks at.
    let limits = Limits { frame_len_max: 16, ..Limits::DEFAULT };
    let outcome = decode_within(b"*2\r\n:1234567\r\n_", limits);
    assert_eq!((outcome.end, outcome.arrived), (Err(E::FrameTooLong), 14));
    // The decoder looks at nothing behind the cap either, however much has arrived.
    assert_eq!(feed(&repeated(b"+", 1000), [1000], limits).visited, 16);
    // The cap is for each frame, not for the connection.
    let limits = Limits { frame_len_max: 5, ..Limits::DEFAULT };
    assert_eq!(decode_within(&repeated(b"+OK\r\n", 50), limits).frames.len(), 50);
    // Attributes without end are one frame.
    assert_eq!(decode(&repeated(b"|0\r\n", 300_000)).end, Err(E::FrameTooLong));
}

#[test]
fn an_unlimited_size_still_does_not_overflow() {
    let limits = Limits { frame_len_max: usize::MAX, depth_max: 16 };
    for input in ["*18446744073709551615\r\n", "%9223372036854775808\r\n"] {
        assert_eq!(decode_within(input.as_bytes(), limits).end, Err(E::FrameTooLong));
    }
    let halves = b"*3074457345618258602\r\n*3074457345618258602\r\n";
    assert_eq!(decode_within(halves, limits).end, Err(E::FrameTooLong));
    assert_eq!(decode_within(b"$18446744073709551615\r\n", limits).end, Err(E::FrameTooLong));
    assert_eq!(decode_within(b"$9223372036854775807\r\nx", limits).end, Ok(23));
}

/// Inputs whose last byte is the first wrong one.
const MALFORMED: &[(&[u8], E)] = &[
    (b"$-2", E::Length),
    (b"$-\r", E::Length),
    (b"$-1\n", E::Length),
    (b"$-10", E::Length),
    (b"$-1\r+", E::Terminator),
    (b"$+", E::Length),
    (b"$01", E::Length),
    (b"$\r", E::Length),
    (b"$1\n", E::Length),
    (b"$ ", E::Length),
    (b"$1x", E::Length),
    (b"$2\r\nOKx", E::Terminator),
    (b"$2\r\nOK\rx", E::Terminator),
    (b"$2\r\nOK\n", E::Terminator),
    (b"$0\r\nx", E::Terminator),
    (b"$?", E::Streamed),
    (b"*?", E::Streamed),
    (b"%?", E::Streamed),
    (b";", E::UnknownType(b';')),
    (b".", E::UnknownType(b'.')),
    (b"*-2", E::Length),
    (b"%-", E::Length),
    (b"~-", E::Length),
    (b">-", E::Length),
    (b"|-", E::Length),
    (b"=-", E::Length),
    (b"!-", E::Length),
    (b">0\r", E::EmptyPush),
    (b":\r", E::Integer),
    (b":+\r", E::Integer),
    (b":-\r", E::Integer),
    (b":+-", E::Integer),
    (b":1-", E::Integer),
    (b":1.", E::Integer),
    (b":1\n", E::Integer),
    (b":1\r:", E::Terminator),
    (b":9223372036854775808", E::Integer),
    (b":-9223372036854775809", E::Integer),
    (b"+OK\n", E::Terminator),
    (b"+OK\rx", E::Terminator),
    (b"+OK\r\r", E::Terminator),
    (b"-\n", E::Terminator),
    (b"#x", E::Boolean),
    (b"#\r", E::Boolean),
    (b"#tt", E::Terminator),
    (b"#t\n", E::Terminator),
    (b"_x", E::Null),
    (b"_\n", E::Null),
    (b"_\r\r", E::Terminator),
    (b",\r", E::Number),
    (b",x", E::Number),
    (b",1\n", E::Number),
    (b",1.5 ", E::Number),
    (b",-\0", E::Number),
    (b"(\r", E::Number),
    (b"(1x", E::Number),
    (b"(1\rx", E::Terminator),
    (b"=3\r", E::Verbatim),
    (b"=0\r", E::Verbatim),
    (b"=4\r\nabcd", E::Verbatim),
    (b"=8\r\ntxt-", E::Verbatim),
    (b"H", E::UnknownType(b'H')),
    (b"\r", E::UnknownType(b'\r')),
    (b"\0", E::UnknownType(0)),
    (b"*1\r\n\n", E::UnknownType(b'\n')),
];

#[test]
fn malformed_elements_are_refused_at_the_first_wrong_byte() {
    for (input, error) in MALFORMED {
        fails(input, *error);
        // The same holds inside an aggregate, except for pushes, which may not even begin there.
        if input[0] != b'>' {
            fails(&[b"*2\r\n", *input].concat(), *error);
        }
    }
}

#[test]
fn whole_hostile_replies_end_in_an_error() {
    for (input, error) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], E::UnknownType(b'H')),
        (b"$?\r\n;4\r\nHell\r\n;0\r\n", E::Streamed),
        (b"$2\r\nOKxx", E::Terminator),
        (b"=3\r\nabc\r\n", E::Verbatim),
        (b"*2305843009213693954\r\n+asdf\r\n", E::FrameTooLong),
        (b">0\r\n", E::EmptyPush),
    ] {
        assert_eq!(decode(input).end, Err(error));
    }
}
