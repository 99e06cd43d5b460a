//! The meaning of well-formed bytes, how they are printed, and how commands are spelt.

use super::{decode, gives, needs_more, show};
use crate::resp::encode::{append_array_header, append_bulk, append_command, append_number};
use crate::resp::{Decoder, Limits, ProtocolError, Quick, Reply, quick};

/// The only frame of `input`.
fn only<T>(input: &[u8], read: impl FnOnce(Reply<'_>) -> T) -> T {
    let mut decoder = Decoder::new(Limits::DEFAULT);
    let frame = decoder.frame(input).expect("valid").expect("whole");
    assert_eq!(frame.bytes(), input);
    read(frame.reply())
}

#[test]
fn every_type_of_both_versions_has_a_value() {
    for (input, shown) in [
        ("+OK\r\n", "+OK"),
        ("+\r\n", "+"),
        ("-ERR no\r\n", "-ERR no"),
        ("-\r\n", "-"),
        ("!9\r\nERR a\r\nbc\r\n", "-ERR a\\r\\nbc"),
        (":0\r\n", ":0"),
        (":+1\r\n", ":1"),
        (":-0\r\n", ":0"),
        (":007\r\n", ":7"),
        (":9223372036854775807\r\n", ":9223372036854775807"),
        (":-9223372036854775808\r\n", ":-9223372036854775808"),
        ("$0\r\n\r\n", "$"),
        ("$5\r\na\r\nbc\r\n", "$a\\r\\nbc"),
        ("$-1\r\n", "_"),
        ("*-1\r\n", "_"),
        ("_\r\n", "_"),
        ("#t\r\n", "#true"),
        ("#f\r\n", "#false"),
        (",1\r\n", ",1"),
        (",-1.50e+10\r\n", ",-1.50e+10"),
        (",1E5\r\n", ",1E5"),
        (",inf\r\n", ",inf"),
        (",-inf\r\n", ",-inf"),
        (",nan\r\n", ",nan"),
        (
            "(-3492890328409238509324850943850943825024385\r\n",
            ",-3492890328409238509324850943850943825024385",
        ),
        ("=8\r\ntxt:a\r\nb\r\n", "=a\\r\\nb"),
        ("=4\r\nmkd:\r\n", "="),
        ("*0\r\n", "*[]"),
        ("%0\r\n", "%[]"),
        ("~0\r\n", "~[]"),
        ("*3\r\n:1\r\n$-1\r\n*1\r\n+a\r\n", "*[:1 _ *[+a]]"),
        ("~2\r\n+a\r\n+b\r\n", "~[+a +b]"),
        ("%1\r\n+k\r\n%1\r\n+a\r\n:1\r\n", "%[+k %[+a :1]]"),
        (">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", "push >[$invalidate *[$k]]"),
        (">2\r\n+invalidate\r\n_\r\n", "push >[+invalidate _]"),
        ("-ERR unknown subcommand 'SETINFO'\r\n", "-ERR unknown subcommand \\'SETINFO\\'"),
    ] {
        gives(input.as_bytes(), &[shown]);
        for end in 0..input.len() {
            needs_more(&input.as_bytes()[..end]);
        }
    }
}

#[test]
fn attributes_belong_to_the_frame_and_are_no_elements() {
    gives(b"|0\r\n+OK\r\n", &["+OK"]);
    gives(b"|1\r\n+ttl\r\n:3600\r\n+OK\r\n", &["+OK"]);
    gives(b"|1\r\n+a\r\n*1\r\n|1\r\n+b\r\n_\r\n:1\r\n|0\r\n:7\r\n", &[":7"]);
    gives(b"*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n|0\r\n*1\r\n|0\r\n:2\r\n", &["*[:1 *[:2]]"]);
    gives(b"%1\r\n|0\r\n+k\r\n|0\r\n+v\r\n", &["%[+k +v]"]);
    needs_more(b"|0\r\n");
    needs_more(b"*1\r\n|1\r\n+a\r\n+b\r\n");
}

#[test]
fn an_attribute_before_a_push_does_not_hide_it() {
    gives(b"|1\r\n+a\r\n+b\r\n>1\r\n+message\r\n+OK\r\n", &["push >[+message]", "+OK"]);
    gives(b"|0\r\n|0\r\n>1\r\n+m\r\n|0\r\n_\r\n", &["push >[+m]", "_"]);
}

#[test]
fn pushes_between_replies_are_frames_of_their_own() {
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    let shown = "push >[$invalidate *[$k]]";
    let input = format!("{push}%1\r\n+proto\r\n:3\r\n{push}{push}+OK\r\n{push}");
    gives(input.as_bytes(), &[shown, "%[+proto :3]", shown, shown, "+OK", shown]);
}

#[test]
fn a_frame_leaves_the_bytes_behind_it_alone() {
    let mut decoder = Decoder::new(Limits::DEFAULT);
    let frame = decoder.frame(b":1\r\n\xff\xff").expect("valid").expect("whole");
    assert_eq!((frame.len(), frame.is_push()), (4, false));
    assert_eq!(decoder.frame(b"\xff\xff"), Err(ProtocolError::UnknownType(0xff)));
}

#[test]
fn text_is_that_of_strings_only() {
    for input in ["+abc\r\n", "$3\r\nabc\r\n", "=7\r\ntxt:abc\r\n"] {
        assert!(only(input.as_bytes(), |reply| reply.text() == Some(b"abc")), "{input}");
    }
    for input in ["-abc\r\n", ":1\r\n", "_\r\n", ",1\r\n", "(1\r\n", "*0\r\n", "#t\r\n"] {
        assert!(only(input.as_bytes(), |reply| reply.text().is_none()), "{input}");
    }
}

#[test]
fn an_error_prefix_is_its_first_word() {
    let prefix =
        |input: &str| only(input.as_bytes(), |reply| reply.error_prefix().map(<[u8]>::to_vec));
    assert_eq!(prefix("-NOSCRIPT No matching\r\n").as_deref(), Some(&b"NOSCRIPT"[..]));
    assert_eq!(prefix("-LOADING\r\n").as_deref(), Some(&b"LOADING"[..]));
    assert_eq!(prefix("!5\r\nERR x\r\n").as_deref(), Some(&b"ERR"[..]));
    for input in ["-\r\n", "- x\r\n", "+ERR x\r\n"] {
        assert_eq!(prefix(input), None);
    }
}

#[test]
fn elements_left_are_known_before_they_are_read() {
    only(b"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n_\r\n_\r\n", |reply| {
        let Reply::Map(mut items) = reply else { panic!("a map") };
        let mut lens = vec![items.len()];
        while items.next().is_some() {
            lens.push(items.len());
        }
        assert_eq!(lens, [4, 3, 2, 1, 0]);
        assert_eq!(items.next(), None);
    });
}

#[test]
fn debug_output_holds_no_received_text() {
    let secrets = [
        "-SECRET word\r\n",
        "!6\r\nSECRET\r\n",
        "+SECRET\r\n",
        "$6\r\nSECRET\r\n",
        "=10\r\ntxt:SECRET\r\n",
        "*1\r\n+SECRET\r\n",
        "%1\r\n+SECRET\r\n+SECRET\r\n",
        ">1\r\n+SECRET\r\n",
        "|1\r\n+SECRET\r\n+SECRET\r\n+SECRET\r\n",
    ];
    for input in secrets {
        let mut decoder = Decoder::new(Limits::DEFAULT);
        assert_eq!(decoder.frame(&input.as_bytes()[..input.len() - 1]), Ok(None));
        let partial = format!("{decoder:?}");
        let frame = decoder.frame(input.as_bytes()).expect("valid").expect("whole");
        let printed = format!("{partial} {frame:?} {frame:#?} {:?}", frame.reply());
        assert!(!printed.contains("SECRET") && !printed.contains("83, 69"), "{printed}");
    }
}

#[test]
fn errors_are_one_lower_case_line() {
    use ProtocolError as E;
    for error in [
        E::UnknownType(b'H'),
        E::Terminator,
        E::LineTooLong,
        E::FrameTooLong,
        E::TooDeep,
        E::Integer,
        E::Length,
        E::Streamed,
        E::Null,
        E::Boolean,
        E::Number,
        E::Verbatim,
        E::EmptyPush,
        E::NestedPush,
    ] {
        let text = error.to_string();
        assert!(!text.contains('\n') && !text.ends_with('.') && text.len() < 60, "{text}");
        assert!(text.starts_with(|c: char| c.is_ascii_lowercase()), "{text}");
    }
    assert_eq!(E::UnknownType(b'H').to_string(), "unknown reply type byte 0x48");
    assert!(size_of::<E>() <= 2);
}

#[test]
fn the_decoder_is_small_and_holds_no_heap() {
    assert!(size_of::<Decoder>() <= 256, "{}", size_of::<Decoder>());
    assert!(!std::mem::needs_drop::<Decoder>());
    assert_eq!(size_of::<Reply<'_>>(), 32);
}

#[test]
fn quick_takes_five_replies_and_nothing_else() {
    for (input, kind) in [
        ("+OK\r\n", Quick::Ok),
        ("_\r\n", Quick::Null),
        ("$-1\r\n", Quick::Null),
        (":0\r\n", Quick::Zero),
        (":1\r\n", Quick::One),
    ] {
        let bytes = input.as_bytes();
        assert_eq!(quick(bytes), Some((kind, bytes.len())));
        for behind in ["\r", "\n", "+", "_\r\n", "$-1\r\n", "\0\0\0\0\0"] {
            let both = [bytes, behind.as_bytes()].concat();
            assert_eq!(quick(&both), Some((kind, bytes.len())), "{}", both.escape_ascii());
        }
        for end in 0..bytes.len() {
            assert_eq!(quick(&bytes[..end]), None);
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 0x80;
            assert_eq!(quick(&changed), None);
        }
    }
    for input in [":2\r\n", ":10\r\n", "+OKAY\r\n", "*-1\r\n", "$-10\r\n", ":+1\r\n", "-OK\r\n"] {
        assert_eq!(quick(input.as_bytes()), None);
    }
}

#[test]
fn commands_are_arrays_of_bulk_strings() {
    let mut out = b"before".to_vec();
    append_command(&mut out, &[b"SET", b"k\r\n", b"", &[0xff, 0]]);
    assert_eq!(
        out.escape_ascii().to_string(),
        "before*4\\r\\n$3\\r\\nSET\\r\\n$3\\r\\nk\\r\\n\\r\\n$0\\r\\n\\r\\n$2\\r\\n\\xff\\x00\\r\\n"
    );
    assert_eq!(decode(&out[6..]).frames, ["*[$SET $k\\r\\n $ $\\xff\\x00]"]);
}

#[test]
fn the_parts_of_a_command_can_be_appended_one_by_one() {
    let (mut parts, mut whole) = (Vec::new(), Vec::new());
    append_array_header(&mut parts, 2);
    append_bulk(&mut parts, b"GET");
    append_bulk(&mut parts, &[b'k'; 1000]);
    append_command(&mut whole, &[b"GET", &[b'k'; 1000]]);
    assert_eq!(parts, whole);
    assert!(whole.starts_with(b"*2\r\n$3\r\nGET\r\n$1000\r\nk"));
}

#[test]
fn decimals_are_spelt_as_the_standard_library_spells_them() {
    let powers = (0..20).map(|power| 10_u64.pow(power));
    for n in powers.flat_map(|n| [n - 1, n, n + 1]).chain([u64::MAX, u64::MAX - 1]) {
        let mut out = Vec::new();
        append_number(&mut out, n);
        assert_eq!(out, format!("${}\r\n{n}\r\n", n.to_string().len()).into_bytes());
    }
}

#[test]
fn foreign_bytes_end_the_iterator() {
    // Only this module can make such a reply: the decoder would have refused it.
    for input in ["*3\r\n:1\r\n", "*3\r\n:1\r\nx", "*2\r\n:1\r\n$9\r\nab\r\n", "*2\r\n:1\r\n:x\r\n"]
    {
        let Some(Reply::Array(mut items)) = Reply::parse(input.as_bytes()) else {
            panic!("an array")
        };
        assert_eq!(items.next().as_ref().map(show).as_deref(), Some(":1"));
        assert_eq!((items.next(), items.next(), items.len()), (None, None, 0));
    }
}
