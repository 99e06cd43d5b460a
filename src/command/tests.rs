//! Tables of commands, answers and versions.

use super::*;
use crate::error::Cause;
use crate::resp::Reply;

fn wire(append: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    append(&mut out);
    String::from_utf8(out).unwrap().replace("\r\n", " ")
}

#[test]
fn each_command_is_encoded_as_the_servers_expect() {
    let token = TokenBytes::from_wire(b"tok").unwrap();
    let key = Key::from_slice(b"key");
    assert_eq!(
        wire(|out| append_set(out, &key, &token, 30_000, &mut SetOptions::NONE.clone())),
        "*6 $3 SET $3 key $3 tok $2 NX $2 PX $5 30000 "
    );
    assert_eq!(
        wire(|out| append_release(out, ReleaseStep::DelIfEq, &key, &token)),
        "*3 $7 DELIFEQ $3 key $3 tok "
    );
    assert_eq!(
        wire(|out| append_release(out, ReleaseStep::DelEx, &key, &token)),
        "*4 $5 DELEX $3 key $4 IFEQ $3 tok "
    );
    assert_eq!(
        wire(|out| append_extend(out, ExtendStep::SetIfEq, &key, &token, 9)),
        "*7 $3 SET $3 key $3 tok $4 IFEQ $3 tok $2 PX $1 9 "
    );
    let (script, len) = (EXTEND_SCRIPT, EXTEND_SCRIPT.len());
    assert_eq!(
        wire(|out| append_extend(out, ExtendStep::Eval, &key, &token, 10)),
        format!("*6 $4 EVAL ${len} {script} $1 1 $3 key $3 tok $2 10 ")
    );
}

#[test]
fn an_error_is_a_refusal_only_where_nothing_ran() {
    let table: [(&[u8], Answer); 16] = [
        (b"OOM command not allowed script: x, on @user_script:1.", refused(Cause::OutOfMemory)),
        (b"READONLY You can't write", refused(Cause::Replica)),
        (b"NOPERM User u has no permissions to run the 'x' command", refused(Cause::NoPermission)),
        (b"NOPERM this user has no permissions to run the 'x' c", refused(Cause::NoPermission)),
        (b"NOPERM No permissions to access a key", refused(Cause::KeyDenied)),
        (
            b"ERR ACL failure in script: User u has no permissions to run the 'get' command",
            refused(Cause::NoPermission),
        ),
        (
            b"ERR The user executing the script can't access at least one of",
            refused(Cause::KeyDenied),
        ),
        (b"LOADING", refused(Cause::Loading)),
        (b"ERR unknown command 'DELIFEQ', with args", refused(Cause::Unsupported)),
        (b"ERR syntax error", refused(Cause::Unsupported)),
        (b"ERR max number of clients reached", refused(Cause::TooManyClients)),
        (b"NOSCRIPT No matching script", Answer::Odd),
        (b"ERR something else", Answer::Odd),
        (b"PROXYERR upstream timed out", Answer::Odd),
        (b"OOMPH", Answer::Odd),
        (b"", Answer::Odd),
    ];
    for (text, answer) in table {
        assert_eq!(classify(&Reply::Error(text)), answer, "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(classify(&Reply::Integer(2)), Answer::Odd);
    assert_eq!(classify(&Reply::Simple(b"QUEUED")), Answer::Odd);
}

fn refused(cause: Cause) -> Answer {
    Answer::Refused(cause)
}

#[test]
fn each_server_version_gets_its_best_commands() {
    use {ExtendStep as E, ReleaseStep as R, ServerKind as K};
    let table = [
        (K::Redis, (7, 0), R::Eval, E::Eval),
        (K::Redis, (8, 2), R::Eval, E::Eval),
        (K::Redis, (8, 4), R::DelEx, E::SetIfEq),
        (K::Valkey, (8, 0), R::Eval, E::Eval),
        (K::Valkey, (8, 1), R::Eval, E::SetIfEq),
        (K::Valkey, (9, 1), R::DelIfEq, E::SetIfEq),
        (K::Dragonfly, (1, 37), R::DelEx, E::Eval),
        (K::Other, (99, 0), R::Eval, E::Eval),
    ];
    for (kind, version, release, extend) in table {
        let dialect = Dialect::of(Server { kind, version });
        assert_eq!(dialect.release, Some(release), "{kind:?} {version:?}");
        assert_eq!(dialect.extend, Some(extend), "{kind:?} {version:?}");
    }
}

#[test]
fn a_late_refusal_of_an_earlier_step_does_not_skip_the_next() {
    let mut dialect = Dialect::of(Server { kind: ServerKind::Valkey, version: (9, 1) });
    dialect.leave(ReleaseStep::DelIfEq);
    dialect.leave(ReleaseStep::DelIfEq);
    assert_eq!(dialect.release, Some(ReleaseStep::DelEx));
    dialect.leave(ReleaseStep::DelEx);
    dialect.leave(ReleaseStep::Eval);
    assert_eq!(dialect.release, None);
}
