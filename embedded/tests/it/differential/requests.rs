//! [`Requests`]: random requests of the kinds that a lock client sends, and of kinds that it must
//! never send.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::pair::{ACQUIRE, EXTEND, RAISE, RELEASE, Request, TRANSFER};

/// A stream of random requests.
pub(crate) struct Requests {
    rng: StdRng,
    amounts: u64,
}

impl Requests {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), amounts: 0 }
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    pub(crate) fn up_to(&mut self, end: usize) -> usize {
        self.rng.random_range(1..=end)
    }

    /// The requests of one write: often one request, sometimes a pipeline.
    pub(crate) fn batch(&mut self) -> Vec<Request> {
        let len = if self.chance(0.6) { 1 } else { self.up_to(6) };
        (0..len).map(|_| self.request()).collect()
    }

    /// A SET whose key is gone a moment later.
    pub(crate) fn short_lived(&mut self) -> Request {
        let mut args = Vec::new();
        for word in ["SET", "K", "V", "PX", "1"] {
            self.fill(word, &mut args);
        }
        args
    }

    fn request(&mut self) -> Request {
        let table = if self.chance(0.1) {
            TRANSFERS
        } else if self.chance(0.15) {
            FENCING
        } else if self.chance(0.05) {
            RARE
        } else {
            TEMPLATES
        };
        let mut args = Vec::new();
        for word in self.one(table).split(' ') {
            self.fill(word, &mut args);
        }
        // Now and then the request has one argument too few or too many, or its name in another
        // case.
        match self.rng.random_range(0..60) {
            0 if args.len() > 1 => drop(args.pop()),
            1 => self.fill("V", &mut args),
            2 => args.iter_mut().take(1).for_each(|name| name.make_ascii_lowercase()),
            _ => {}
        }
        args
    }

    fn fill(&mut self, word: &str, args: &mut Request) {
        let arg = match word {
            "K" => self.one(&KEYS).to_vec(),
            "V" => self.one(&VALUES).to_vec(),
            "P" => self.amount(),
            "T" if self.chance(0.3) => self.amount(),
            "T" => self.one(&AMOUNTS).into(),
            "SR" => RELEASE.into(),
            "SE" => EXTEND.into(),
            "SA" => ACQUIRE.into(),
            "SU" => RAISE.into(),
            "ST" => TRANSFER.into(),
            "N" => self.one(&FENCES).into(),
            "O" => {
                for word in self.one(&SET_OPTIONS).split(' ') {
                    self.fill(word, args);
                }
                return;
            }
            literal => literal.into(),
        };
        args.push(arg);
    }

    /// A proper amount of time.
    fn amount(&mut self) -> Vec<u8> {
        self.amounts += 1;
        (60_000 + self.amounts * 37 % 1009 * 1000).to_string().into()
    }

    fn one<T: Copy>(&mut self, choice: &[T]) -> T {
        *choice.choose(&mut self.rng).expect("no table is empty")
    }
}

const KEYS: [&[u8]; 6] = [b"a", b"b", b"list", b"", b"k\0\r\n*1\r\n", b"\xff'\"\\ key"];
const VALUES: [&[u8]; 7] = [b"v", b"w", b"", b"10", b"\r\n$-1\r\n", b"\0\x01\xfe", b"a longer one"];
const FENCING: &[&str] = &[
    "EVAL SA 2 K K V P N P",
    "EVAL SA 2 K a V P N P",
    "EVAL SA 2 K a V P N P",
    "EVAL SA 2 K b V T N P",
    "EVAL SU 2 K a V N P",
    "EVAL SU 2 K b V N P",
    "EVAL SA 1 K a V P N P",
    "EVAL SU 1 K V N P",
];
const TRANSFERS: &[&str] = &[
    "SET a v",
    "SET a v PX P",
    "EVAL ST 1 a v v P a V",
    "EVAL ST 1 a v v T a V",
    "EVAL ST 1 a v v P K V",
    "EVAL ST 1 K V V P a V",
];
const FENCES: [&str; 6] = ["0", "9", "10", "11", "1795000000000000", "9007199254740990"];
const AMOUNTS: [&str; 9] = [
    "0",
    "-1",
    "abc",
    "",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "060000",
    "1.5",
];
const SET_OPTIONS: [&str; 8] = ["NX", "PX P", "PX P", "PX T", "IFEQ V", "nx", "FOO", "PX"];
/// `K` is a key, `V` a value, `P` a proper amount of time, `T` any amount, `O` options of SET.
/// `SR` and `SE` are the scripts. `SA` and `SU` are those of fences, and `N` is a fence. `ST` is that
/// of a hand-over. Important rows come more than once.
const TEMPLATES: &[&str] = &[
    "SET K V",
    "SET K V NX PX T",
    "SET K V NX PX P",
    "SET K V PX P",
    "SET K V O",
    "SET K V O",
    "SET K V O O",
    "SET K V IFEQ V PX P",
    "SET K V IFEQ V",
    "GET K",
    "GET K",
    "GET K",
    "DEL K",
    "DEL K K",
    "PTTL K",
    "PTTL K",
    "DELIFEQ K V",
    "DELIFEQ K V",
    "DELEX K IFEQ V",
    "DELEX K FOO V",
    "MSETEX 2 K V K V NX PX P",
    "MSETEX 2 K V K V NX PX P",
    "MSETEX 2 K V K V O",
    "MSETEX T K V K V",
    "RPUSH list V V",
    "RPUSH K V",
    "EVAL SR 1 K V",
    "EVAL SE 1 K V T",
    "EVAL SR T K V",
    "EVAL SE 1 K",
    "EVAL SR 0 V",
    "PING",
    "PING V",
    "ECHO V",
    "SELECT 0",
    "SELECT T",
    "CLIENT SETNAME V",
    "CONFIG GET maxmemory-policy",
    "HELLO",
    "FOO K V",
];
/// Rarer rows, drawn one time in twenty. AUTH is not among them, because servers do not always
/// answer wrong credentials, as `conditions.rs` shows.
const RARE: &[&str] = &[
    "SELECT 1",
    "FLUSHALL",
    "FLUSHALL FOO",
    "HELLO 3",
    "HELLO 2",
    "HELLO T",
    "HELLO 3 SETNAME V",
    "HELLO 3 SETNAME ok FOO",
    "CLIENT V",
    "CONFIG V",
    "RESET",
    "K V K V",
    "PUBLISH K V",
];
