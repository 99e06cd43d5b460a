//! The harness itself: a test can freeze, thaw, kill and restart a real server, and start a test as
//! a process.

use std::os::unix::net::UnixStream;

use redbolt_rig::{RealServer, Wire, available_kinds, own_test, request};

/// Every other test with real servers depends on this one.
#[test]
fn a_real_server_answers_freezes_thaws_dies_and_comes_back() {
    for kind in available_kinds() {
        let mut server = RealServer::start(kind, &["--appendonly", "yes"]);
        assert_eq!(server.kind(), kind);
        assert_eq!(server.command(&["SET", "k", "v\r\n", "PX", "60000"]), b"+OK\r\n");
        assert_eq!(server.get("k").as_deref(), Some(&b"v\r\n"[..]));
        assert!(server.exists("k") && !server.exists("none"));
        assert!((50_000..=60_000).contains(&server.pttl("k")));
        assert!(server.url().ends_with(&server.port().to_string()));
        assert!(server.unix_url().starts_with("unix:///"));
        UnixStream::connect(server.socket()).expect("the socket file accepts");

        server.freeze();
        let mut gone = server.connect();
        gone.send(&request(&["SET", "queued", "v"])).expect("the system takes it");
        drop(gone);
        server.thaw();
        assert_eq!(server.command(&["PING"]), b"+PONG\r\n");
        assert!(server.exists("queued"), "{}: a queued SET survives its client", kind.name());

        let pid = server.pid();
        server.kill9();
        assert!(Wire::connect(server.port()).is_err());
        server.restart();
        assert_ne!(server.pid(), pid);
        assert!(server.exists("k"), "{}: its directory was kept", kind.name());
    }
}

/// A process that runs no test would end well.
#[test]
#[should_panic(expected = "this binary has no test a_test_that_was_renamed")]
fn a_process_that_would_run_no_test_fails_the_test_that_starts_it() {
    let _ = own_test("a_test_that_was_renamed");
}
