//! The guide's script on every kind of real server.

use redbolt_rig::{RealServer, available_kinds};

use super::guide::statement;

const REFUSED: &[u8] = b":0\r\n";
const WRITTEN: &[u8] = b":1\r\n";

fn write(server: &RealServer, fence: &str, value: &str) -> Vec<u8> {
    server.command(&["EVAL", statement("redis-write"), "1", "sku:42", fence, value])
}

fn stored(server: &RealServer) -> String {
    let reply = server.command(&["HMGET", "sku:42", "fence", "value"]);
    let text = String::from_utf8(reply).expect("text");
    let fields = text.lines().filter(|line| !line.starts_with(['*', '$']));
    fields.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_script_refuses_a_stale_write() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let name = kind.name();
        assert_eq!(write(&server, "7", "9"), WRITTEN, "{name}");
        assert_eq!(write(&server, "7", "8"), WRITTEN, "{name}: the same fence");
        assert_eq!(write(&server, "10", "7"), WRITTEN, "{name}: a higher fence, by its number");
        assert_eq!(write(&server, "9", "1"), REFUSED, "{name}: a stale fence");
        assert_eq!(stored(&server), "10 7", "{name}");
        assert_eq!(write(&server, "10", "6"), WRITTEN, "{name}");
        assert_eq!(stored(&server), "10 6", "{name}");
    }
}

/// Fences of this size look the same if a script prints doubles with 14 digits.
#[test]
fn a_script_tells_fences_of_sixteen_digits_apart_and_stores_them_as_they_came() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        for (lower, higher) in
            [("1790000000123456", "1790000000123457"), ("9007199254740989", "9007199254740990")]
        {
            assert_eq!(write(&server, higher, "7"), WRITTEN, "{}", kind.name());
            assert_eq!(write(&server, lower, "1"), REFUSED, "{}", kind.name());
            assert_eq!(write(&server, higher, "6"), WRITTEN, "{}", kind.name());
            assert_eq!(stored(&server), format!("{higher} 6"), "{}", kind.name());
        }
    }
}

#[test]
fn a_script_writes_nothing_where_a_fence_is_not_a_number() {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let is_error = |reply: &[u8]| reply.starts_with(b"-ERR the fence is not a number");
        assert_eq!(write(&server, "7", "9"), WRITTEN, "{}", kind.name());
        assert!(is_error(&write(&server, "", "1")), "{}", kind.name());
        assert_eq!(stored(&server), "7 9", "{}", kind.name());
        server.command(&["HSET", "sku:42", "fence", "x"]);
        assert!(is_error(&write(&server, "8", "1")), "{}", kind.name());
        assert_eq!(stored(&server), "x 9", "{}", kind.name());
    }
}
