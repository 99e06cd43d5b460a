//! The request parser's results for whole, cut and broken streams.

use super::{Broken, Parsed, Parser, Rules, number};

const OPEN: Rules = Rules { authenticated: true, strict_crlf: true };

fn requests(chunks: &[&[u8]], rules: Rules) -> (Vec<Vec<Vec<u8>>>, Option<Broken>) {
    let mut parser = Parser::default();
    let mut found = Vec::new();
    for chunk in chunks {
        parser.feed(chunk);
        loop {
            match parser.next(rules) {
                Parsed::Request => found.push(parser.args().from(0).map(<[u8]>::to_vec).collect()),
                Parsed::Partial => break,
                Parsed::Broken(broken) => return (found, Some(broken)),
            }
        }
    }
    (found, None)
}

#[test]
fn cutting_the_stream_anywhere_changes_no_request() {
    let stream =
        b"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nb\0\r\nPING 'a b' c\r\n\r\n*0\r\n*1\r\n$4\r\nPING\r\n";
    let whole = requests(&[stream], OPEN);
    assert_eq!(whole.0.len(), 3);
    assert_eq!(whole.0[1], [b"PING".to_vec(), b"a b".to_vec(), b"c".to_vec()]);
    assert_eq!(whole.0[2], [b"PING".to_vec()]);
    for cut in 0..stream.len() {
        assert_eq!(requests(&[&stream[..cut], &stream[cut..]], OPEN), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(requests(&bytes, OPEN), whole);
}

#[test]
fn broken_framing_is_named_as_servers_name_it() {
    for (bytes, broken) in [
        (&b"*abc\r\n"[..], Broken::Text("invalid multibulk length")),
        (b"*2147483648\r\n", Broken::Text("invalid multibulk length")),
        (b"*01\r\n", Broken::Text("invalid multibulk length")),
        (b"*1\r\n$-1\r\n", Broken::Text("invalid bulk length")),
        (b"*1\r\n$9223372036854775807\r\n", Broken::Text("invalid bulk length")),
        (b"*1\r\n:1\r\n", Broken::NotBulk(b':')),
        (b"*1\r\n\r\n", Broken::NotBulk(b'\r')),
        (b"*1\r\n$4\r\nPINGxx", Broken::Text("invalid CRLF in request")),
        (b"PING \"a\r\n", Broken::Text("unbalanced quotes in request")),
    ] {
        assert_eq!(requests(&[bytes], OPEN).1, Some(broken), "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_stranger_may_send_only_small_requests() {
    let stranger = Rules { authenticated: false, strict_crlf: true };
    let broken = |bytes: &[u8]| requests(&[bytes], stranger).1;
    assert_eq!(broken(b"*11\r\n"), Some(Broken::Text("unauthenticated multibulk length")));
    assert_eq!(broken(b"*1\r\n$16385\r\n"), Some(Broken::Text("unauthenticated bulk length")));
    assert_eq!(broken(b"*10\r\n$16384\r\n"), None);
}

#[test]
fn a_declared_count_reserves_no_memory() {
    let mut parser = Parser::default();
    parser.feed(b"*2147483647\r\n$16777216\r\nabc");
    assert_eq!(parser.next(OPEN), Parsed::Partial);
    assert!(parser.spans.capacity() < 16 && parser.buffer.capacity() < 4096);
}

#[test]
fn a_line_without_an_end_is_cut_off() {
    for (bytes, text) in [
        (b"*".as_slice(), "too big mbulk count string"),
        (b"A", "too big inline request"),
        (b"*1\r\n$", "too big bulk count string"),
    ] {
        let mut stream = bytes.to_vec();
        stream.resize(70_000, b'1');
        assert_eq!(requests(&[&stream], OPEN).1, Some(Broken::Text(text)));
    }
}

#[test]
fn numbers_are_read_as_strictly_as_servers_read_them() {
    assert_eq!(number(b"-9223372036854775808"), Some(i64::MIN));
    for text in [&b""[..], b"-", b"+1", b"01", b"-0", b" 1", b"1 ", b"1a", b"9223372036854775808"] {
        assert_eq!(number(text), None, "{}", text.escape_ascii());
    }
}
