//! [`Pair`]: a real server and the model of its flavor, which get the same requests at the same
//! time.
//!
//! Numbers that depend on the moment (PTTL) or on the connection (ids) are blanked on both sides;
//! all other bytes must be equal.

use std::fmt::Write as _;

use redbolt_embedded::model::{Condition, Life, Progress, Server, ServerOptions, Session};
use redbolt_embedded::{Flavor, Instant};
use redbolt_rig::{Kind, RealServer, Wire, request};

/// The arguments of one request.
pub(crate) type Request = Vec<Vec<u8>>;

/// The script that deletes a key if it still has a value.
pub(crate) const RELEASE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return \
                                  redis.call('del',KEYS[1]) else return 0 end";
/// The script that moves the end of a key if it still has a value.
pub(crate) const EXTEND: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return \
                                 redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// The script that takes a lock and raises the counter of its fences.
pub(crate) const ACQUIRE: &str = "local s=redis.call('get',KEYS[2]) or '0' local c=tonumber(s) \
     if not(c and c>=0 and c<9007199254740991) then \
     return redis.error_reply('FENCE counter') end \
     if not redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return 0 end \
     if c<tonumber(ARGV[3]) then redis.call('set',KEYS[2],ARGV[3],'PX',ARGV[4]) \
     return 1 end return s";
/// The script that takes the first of several locks that is free.
pub(crate) const TAKE_FIRST: &str = "for i=1,#KEYS do \
     if redis.call('set',KEYS[i],ARGV[i],'NX','PX',ARGV[#KEYS+1]) then return tostring(i) end end \
     return 0";
/// The script that raises the counter of a lock that is held.
pub(crate) const RAISE: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
     local s=redis.call('get',KEYS[2]) or '0' local c=tonumber(s) \
     if not(c and c>=0 and c<9007199254740991) then \
     return redis.error_reply('FENCE counter') end \
     if c<tonumber(ARGV[2]) then redis.call('set',KEYS[2],ARGV[2],'PX',ARGV[3]) \
     return 1 end return s";
/// The script that hands a lock over to a waiter that listens, or deletes it.
pub(crate) const TRANSFER: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
     redis.call('del',KEYS[1]) \
     local s=redis.pcall('set',KEYS[1],ARGV[2],'PX',ARGV[3]) \
     if type(s)=='table' and s.ok then \
     local n=redis.pcall('publish',ARGV[4],ARGV[5]) \
     if type(n)=='number' and n>0 then return 2 end \
     redis.call('del',KEYS[1]) end return 1";
/// The script that returns the holder of a lock, and tells that client.
pub(crate) const INTRODUCE: &str = "local h=redis.pcall('get',KEYS[1]) \
     if not h or h==ARGV[1] then return false end local n=0 \
     if type(h)~='string' then h='' elseif #h==40 and not h:find('[^0-9a-f]') then \
     n=redis.pcall('publish',ARGV[2]..h:sub(1,16),ARGV[3]..h:gsub('..',function(b) \
     return string.char(tonumber(b,16)) end)..ARGV[4]) if type(n)~='number' then n=0 end end \
     return {h,redis.call('pttl',KEYS[1]),n}";

pub(crate) fn words(words: &[&str]) -> Request {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A real server and its model, two connections to each.
pub(crate) struct Pair {
    port: u16,
    wires: [Wire; 2],
    model: Server,
    sessions: [Session; 2],
    history: String,
}

impl Pair {
    pub(crate) fn new(server: &RealServer) -> Self {
        Self::with(server, &ServerOptions::new(flavor(server.kind())))
    }

    pub(crate) fn with(server: &RealServer, options: &ServerOptions) -> Self {
        let life = Life::new([1; 20], [2; 20], now(), 1_700_000_000_000);
        let mut model = Server::new(options, life);
        let sessions = [model.connect(), model.connect()];
        let wires = [server.connect(), server.connect()];
        let history = format!("{}\n", server.kind().name());
        Self { port: server.port(), wires, model, sessions, history }
    }

    /// Adds a line to the history that a failure prints.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = writeln!(self.history, "{text}");
    }

    /// Puts the model into the condition that the real server is in.
    pub(crate) fn set_condition(&mut self, condition: Condition) {
        self.note(&format!("{condition:?}"));
        self.model.set_condition(condition);
    }

    /// Sends lines of words on the first connection, one at a time. `RELEASE`, `EXTEND`,
    /// `ACQUIRE`, `TAKE_FIRST`, `RAISE` and `TRANSFER` stand for the scripts.
    pub(crate) fn say(&mut self, lines: &[&str]) {
        for line in lines {
            let word = |word: &str| match word {
                "RELEASE" => RELEASE.into(),
                "EXTEND" => EXTEND.into(),
                "ACQUIRE" => ACQUIRE.into(),
                "TAKE_FIRST" => TAKE_FIRST.into(),
                "RAISE" => RAISE.into(),
                "TRANSFER" => TRANSFER.into(),
                word => word.into(),
            };
            self.run(0, &[line.split(' ').map(word).collect()]);
        }
    }

    /// Sends a pipeline in one write to both, and compares all its replies, one per request.
    pub(crate) fn run(&mut self, connection: usize, batch: &[Request]) {
        for args in batch {
            let args: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
            let _ = writeln!(self.history, "{connection}> {}", args.join(" "));
        }
        let bytes = batch.iter().flat_map(|args| request(args)).collect::<Vec<u8>>();
        let session = self.sessions.get_mut(connection).expect("there are two");
        let mut ours = Vec::new();
        let progress = self.model.execute(session, &bytes, now(), &mut ours);
        assert_eq!(progress, Progress::Idle, "{}", self.history);
        let wire = self.wires.get_mut(connection).expect("there are two");
        wire.send(&bytes).expect("the server reads");
        let real = read(wire, batch.len() + pushes(&ours), &self.history);
        self.compare(&real, &ours);
        // The messages that the other connection gets.
        let mut told = [Vec::new(), Vec::new()];
        for delivery in self.model.deliveries() {
            let other = self.sessions.iter().position(|session| session.id() == delivery.session);
            if let Some(told) = other.and_then(|other| told.get_mut(other)) {
                told.extend_from_slice(&delivery.bytes);
            }
        }
        for (wire, ours) in self.wires.iter_mut().zip(&told) {
            let real = read(wire, pushes(ours), &self.history);
            let (real, ours) = (real.escape_ascii(), ours.escape_ascii());
            assert!(
                real.to_string() == ours.to_string(),
                "{}told: {real}\nours: {ours}",
                self.history
            );
        }
    }

    /// Sends bytes and a QUIT behind them on a new connection, and compares all bytes until the
    /// server closes it.
    pub(crate) fn run_to_end(&mut self, bytes: &[u8]) {
        let bytes = [bytes, &request(&["QUIT"])].concat();
        let _ = writeln!(self.history, "raw> {}", bytes.escape_ascii());
        let mut session = self.model.connect();
        let mut ours = Vec::new();
        let progress = self.model.execute(&mut session, &bytes, now(), &mut ours);
        assert_eq!(progress, Progress::Close, "{}", self.history);
        self.model.disconnect(session);
        let mut wire = Wire::connect(self.port).expect("the server accepts");
        wire.send(&bytes).expect("the server reads");
        let real = wire.read_to_end();
        self.compare(&real, &ours);
    }

    fn compare(&self, real: &[u8], ours: &[u8]) {
        let (real, ours) = (blank(real), blank(ours));
        let (real_text, ours_text) = (real.escape_ascii(), ours.escape_ascii());
        assert!(real == ours, "{}real: {real_text}\nours: {ours_text}", self.history);
    }
}

/// The flavor of the model that is like a real server.
pub(crate) const fn flavor(kind: Kind) -> Flavor {
    match kind {
        Kind::Redis70 => Flavor::Redis70,
        Kind::Redis80 => Flavor::Redis80,
        Kind::Redis86 => Flavor::Redis86,
        Kind::Valkey81 => Flavor::Valkey81,
        Kind::Valkey91 => Flavor::Valkey91,
    }
}

fn now() -> Instant {
    Instant::default() + redbolt_rig::now()
}

/// Reads this many frames.
fn read(wire: &mut Wire, len: usize, history: &str) -> Vec<u8> {
    let frames = (0..len).map(|_| wire.reply()).collect::<Result<Vec<_>, _>>();
    frames.unwrap_or_else(|error| panic!("{history}{error}")).concat()
}

/// How many messages the client gets.
fn pushes(bytes: &[u8]) -> usize {
    let starts: [&[u8]; 2] = [b">3\r\n$7\r\nmessage\r\n", b"*3\r\n$7\r\nmessage\r\n"];
    let count = |start: &[u8]| bytes.windows(start.len()).filter(|part| *part == start).count();
    starts.into_iter().map(count).sum()
}

/// Blanks the values that may differ: large numbers (times) and the connection's id in HELLO.
pub(crate) fn blank(reply: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut after_id = false;
    for line in reply.split_inclusive(|byte| *byte == b'\n') {
        let digits = line.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
        let number =
            digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<i64>().ok());
        match number {
            Some(number) if after_id || number > 5_000 => text.extend_from_slice(b":(blank)\r\n"),
            // Seconds of a TTL: a moment later the server may round them to one less.
            Some(number) if number > 50 => text.extend_from_slice(b":(seconds)\r\n"),
            Some(_) | None => text.extend_from_slice(line),
        }
        after_id = line == b"id\r\n";
    }
    text
}
