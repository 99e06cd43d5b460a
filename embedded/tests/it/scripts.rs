//! The scripts that hand a lock over and that name its holder: the answer, the keys and the
//! messages of each branch, on real servers and in the model. The same cases tell mutants of their
//! texts apart.

use redbolt_embedded::model::Condition;
use redbolt_rig::{RealServer, Wire, available_kinds, on_each_kind};

use super::pair::{INTRODUCE, Pair, Request, TRANSFER, blank, words};

/// A token like those of Redbolt's clients: the client's id comes first.
const TOKEN: &str = "00ff0d0a24e1c26a0123456789abcdef01234567";

/// The channels of the second connection. The last channel belongs to a client that drew no token.
const CHANNELS: [&str; 3] = ["c", "c:00ff0d0a24e1c26a", "c:00FF0D0A24E1C26A"];

#[derive(Clone, Copy, Debug)]
enum Trouble {
    None,
    Denied(&'static str),
    Replica,
    OutOfMemory,
}

impl Trouble {
    fn begin(self, server: &RealServer) -> Condition {
        self.change(server, true)
    }

    fn end(self, server: &RealServer) -> Condition {
        self.change(server, false)
    }

    fn change(self, server: &RealServer, begins: bool) -> Condition {
        let rule = |name| format!("{}{name}", if begins { '-' } else { '+' });
        let (command, condition) = match self {
            Self::None => return Condition::Replica(false),
            Self::Denied(name) => (
                words(&["ACL", "SETUSER", "default", &rule(name)]),
                Condition::Denied(begins.then(|| name.to_owned()).into_iter().collect()),
            ),
            Self::Replica => {
                let master = if begins { ["127.0.0.1", "1"] } else { ["NO", "ONE"] };
                (words(&["REPLICAOF", master[0], master[1]]), Condition::Replica(begins))
            }
            Self::OutOfMemory => {
                let limit = if begins { "1" } else { "0" };
                let command = words(&["CONFIG", "SET", "maxmemory", limit]);
                (command, Condition::OutOfMemory(begins))
            }
        };
        assert!(server.command(&command).starts_with(b"+OK"), "{self:?}");
        condition
    }
}

/// One way through a script.
#[derive(Debug)]
struct Case {
    /// The command that sets the key `k`.
    set: Vec<&'static str>,
    is_heard: bool,
    trouble: Trouble,
    /// The arguments behind the script.
    args: String,
}

fn case(set: &[&'static str], is_heard: bool, trouble: Trouble, args: &str) -> Case {
    Case { set: set.to_vec(), is_heard, trouble, args: args.to_owned() }
}

/// Each key, with and without listeners. The first key also gets each trouble and each list of
/// arguments. The last key also gets the usual list, cut shorter and shorter.
fn cases(keys: &[&[&'static str]], denied: &[&'static str], args: &[&str]) -> Vec<Case> {
    let (&[own, .., last], &[usual, ..]) = (keys, args) else { panic!("no key, no arguments") };
    let mut cases = Vec::new();
    for key in keys {
        cases.extend([true, false].map(|is_heard| case(key, is_heard, Trouble::None, usual)));
    }
    let troubles = denied.iter().map(|name| Trouble::Denied(name));
    for trouble in troubles.chain([Trouble::Replica, Trouble::OutOfMemory]) {
        let keys = [(own, true), (own, false), (&[][..], true)];
        cases.extend(keys.map(|(key, is_heard)| case(key, is_heard, trouble, usual)));
    }
    let long = format!("{usual} more");
    let args = args.iter().copied().chain([long.as_str()]);
    cases.extend(args.map(|args| case(own, true, Trouble::None, args)));
    let shorter = long.match_indices(' ').filter_map(|(end, _)| long.get(..end));
    cases.extend(shorter.map(|args| case(last, true, Trouble::None, args)));
    cases
}

fn transfers() -> Vec<Case> {
    let keys: [&[&str]; 6] = [
        &["SET", "k", "mine", "PX", "90000"],
        &["SET", "k", "mine", "PX", "3000"],
        &["SET", "k", "other"],
        &["RPUSH", "k", "mine"],
        &[],
        &["SET", "k", "mine"],
    ];
    let px = ["3000", "0", "-1", "abc", "1.5", "9223372036854775807", "9223372036854775808"];
    let mut args = vec!["1 k mine next 60000 c m".to_owned()];
    args.extend(px.map(|px| format!("1 k mine next {px} c m")));
    args.push("1 k mine next 60000 other m".to_owned());
    args.push("2 k more mine next 60000 c m".to_owned());
    args.push("0 mine next 60000 c m".to_owned());
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    cases(&keys, &["get", "del", "set", "publish"], &args)
}

fn introductions() -> Vec<Case> {
    let keys: [&[&str]; 12] = [
        &["SET", "k", TOKEN, "PX", "90000"],
        &["SET", "k", TOKEN, "PX", "3000"],
        &["SET", "k", TOKEN],
        &["SET", "k", "own"],
        &["SET", "k", ""],
        // Capital letters, a letter that is no digit, a digit too few and one too many.
        &["SET", "k", "00FF0D0A24E1C26A0123456789ABCDEF01234567"],
        &["SET", "k", "00ff0d0a24e1c26a0123456789abcdef0123456g"],
        &["SET", "k", "00ff0d0a24e1c26a0123456789abcdef0123456"],
        &["SET", "k", "00ff0d0a24e1c26a0123456789abcdef012345678"],
        &["RPUSH", "k", "own"],
        &[],
        // A token of another library: the script does not use the parts of the message and its
        // channel.
        &["SET", "k", "other"],
    ];
    let own = format!("1 k {TOKEN} c: before behind");
    let args = ["1 k own c: before behind", "1 k own d: before behind", &own];
    cases(&keys, &["get", "publish", "pttl"], &args)
}

/// The servers on which a case is played.
trait Stage {
    fn ask(&mut self, connection: usize, request: Request);
    fn set_trouble(&mut self, change: impl FnOnce(&RealServer) -> Condition);
}

fn play(case: &Case, script: &str, version: &str, stage: &mut impl Stage) {
    for connection in [0, 1] {
        stage.ask(connection, words(&["HELLO", version]));
    }
    if !case.set.is_empty() {
        stage.ask(0, words(&case.set));
    }
    for channel in CHANNELS.iter().filter(|_| case.is_heard) {
        stage.ask(1, words(&["SUBSCRIBE", channel]));
    }
    stage.set_trouble(|server| case.trouble.begin(server));
    let mut eval = vec!["EVAL", script];
    eval.extend(case.args.split(' '));
    stage.ask(0, words(&eval));
    stage.set_trouble(|server| case.trouble.end(server));
    // A message comes before the answer to PING.
    stage.ask(1, words(&["PING"]));
    for look in ["GET", "PTTL", "DEL"] {
        stage.ask(0, words(&[look, "k"]));
    }
    // The next case must not count these listeners.
    stage.ask(1, words(&["RESET"]));
}

/// A real server beside its model.
struct Both<'a>(&'a RealServer, Pair);

impl Stage for Both<'_> {
    fn ask(&mut self, connection: usize, request: Request) {
        self.1.run(connection, &[request]);
    }

    fn set_trouble(&mut self, change: impl FnOnce(&RealServer) -> Condition) {
        self.1.set_condition(change(self.0));
    }
}

/// A real server, and all its answers.
struct Real<'a> {
    server: &'a RealServer,
    wires: [Wire; 2],
    said: Vec<u8>,
}

impl<'a> Real<'a> {
    fn new(server: &'a RealServer) -> Self {
        Self { server, wires: [server.connect(), server.connect()], said: Vec::new() }
    }

    fn plays(&mut self, case: &Case, script: &str) -> String {
        play(case, script, "3", self);
        let said = blank(&std::mem::take(&mut self.said)).escape_ascii().to_string();
        // An error names its script by a hash of the script's text.
        let parts: Vec<_> = said.split("script: ").collect();
        let rest =
            |part: &str| part.split_once(", on @user_script").map(|(_, rest)| rest.to_owned());
        let parts = parts.into_iter().map(|part| rest(part).unwrap_or_else(|| part.to_owned()));
        parts.collect::<Vec<_>>().join("script: ")
    }
}

impl Stage for Real<'_> {
    fn ask(&mut self, connection: usize, request: Request) {
        let wire = self.wires.get_mut(connection).expect("there are two");
        wire.send(&redbolt_rig::request(&request)).expect("the server reads");
        loop {
            let frame = wire.reply().expect("the server answers");
            self.said.extend_from_slice(&frame);
            if !frame.starts_with(b">3\r\n$7\r\nmessage\r\n") {
                return;
            }
        }
    }

    fn set_trouble(&mut self, change: impl FnOnce(&RealServer) -> Condition) {
        change(self.server);
    }
}

fn is_as_in_the_model(script: &str, cases: &[Case]) {
    for kind in available_kinds() {
        let server = RealServer::start(kind, &[]);
        let mut both = Both(&server, Pair::new(&server));
        for version in ["2", "3"] {
            for case in cases {
                both.1.note(&format!("{case:?}"));
                play(case, script, version, &mut both);
            }
        }
    }
}

#[test]
fn a_lock_is_handed_over_on_real_servers_as_in_the_model() {
    is_as_in_the_model(TRANSFER, &transfers());
}

#[test]
fn a_node_says_who_has_a_lock_on_real_servers_as_in_the_model() {
    is_as_in_the_model(INTRODUCE, &introductions());
}

/// Each mutant replaces a part of the script. On each kind of server, at least one case tells it
/// apart.
fn mutants_are_found(script: &str, cases: &[Case], mutants: &[(&str, &str)]) {
    on_each_kind(|kind| {
        let server = RealServer::start(kind, &[]);
        let mut real = Real::new(&server);
        let truth: Vec<_> = cases.iter().map(|case| real.plays(case, script)).collect();
        let mut is_found = |mutant: &str| {
            let mut played = cases.iter().zip(&truth);
            played.any(|(case, truth)| real.plays(case, mutant) != *truth)
        };
        assert!(!is_found(&format!("{script} ")), "{}: it is the same script", kind.name());
        for (part, other) in mutants {
            assert_eq!(script.matches(part).count(), 1, "{part}");
            let mutant = script.replace(part, other);
            assert!(is_found(&mutant), "{}: no case tells {mutant}", kind.name());
        }
    });
}

#[test]
fn each_mutant_of_the_script_that_hands_a_lock_over_is_found() {
    const GUARD: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end ";
    const SET: &str = "local s=redis.pcall('set',KEYS[1],ARGV[2],'PX',ARGV[3]) ";
    const PUBLISH: &str = "local n=redis.pcall('publish',ARGV[4],ARGV[5]) ";
    const HEARD: &str = "if type(n)=='number' and n>0 then return 2 end ";
    let tells_first = format!("{PUBLISH}{SET}if type(s)=='table' and s.ok then {HEARD}");
    mutants_are_found(
        TRANSFER,
        &transfers(),
        &[
            (GUARD, ""),
            ("~=ARGV[1]", "==ARGV[1]"),
            ("if redis.call('get',KEYS[1])~=", "local t=redis.call('get',KEYS[1]) if t and t~="),
            ("return 0", "return 1"),
            ("redis.call('del',KEYS[1]) local s", "local s"),
            ("redis.pcall('set'", "redis.call('set'"),
            ("ARGV[2],'PX',ARGV[3]", "ARGV[2]"),
            ("'PX'", "'EX'"),
            ("ARGV[2]", "ARGV[1]"),
            ("type(s)=='table' and s.ok", "s"),
            (&format!("{SET}if type(s)=='table' and s.ok then {PUBLISH}{HEARD}"), &tells_first),
            ("redis.pcall('publish'", "redis.call('publish'"),
            ("'publish',ARGV[4],ARGV[5]", "'publish',ARGV[5],ARGV[4]"),
            ("type(n)=='number' and n>0", "n"),
            ("type(n)=='number' and ", ""),
            ("n>0", "n>=0"),
            ("return 2", "return 1"),
            ("return 2 end redis.call('del',KEYS[1]) end", "return 2 end end"),
            ("return 1", "return 0"),
        ],
    );
}

#[test]
fn each_mutant_of_the_script_that_says_who_has_a_lock_is_found() {
    mutants_are_found(
        INTRODUCE,
        &introductions(),
        &[
            ("redis.pcall('get'", "redis.call('get'"),
            ("not h or ", ""),
            (" or h==ARGV[1]", ""),
            ("h=''", "h=nil"),
            ("#h==40 and ", ""),
            (" and not h:find('[^0-9a-f]')", ""),
            ("0-9a-f", "0-9a-fA-F"),
            ("redis.pcall('publish'", "redis.call('publish'"),
            ("h:sub(1,16)", "h:sub(1,15)"),
            ("ARGV[2]..", ""),
            ("ARGV[3]..", ""),
            ("..ARGV[4]", ""),
            (":gsub('..',function(b) return string.char(tonumber(b,16)) end)", ""),
            ("if type(n)~='number' then n=0 end ", ""),
            ("'pttl'", "'ttl'"),
            (",n}", "}"),
            (",n}", ",1}"),
        ],
    );
}
