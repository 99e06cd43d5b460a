//! The probe's bytes: templates into which it writes only the key's digits.

use std::collections::VecDeque;

/// Commands of fresh 22-byte keys, one after the other.
pub struct Commands {
    bytes: Vec<u8>,
    /// The number of the next key, as its digits.
    digits: [u8; DIGITS],
    /// The window's commands without an answer: the digits for a SET, `None` for a release.
    open: VecDeque<Option<[u8; DIGITS]>>,
    /// The key of the SET that [`was_set`](Self::was_set) returned last.
    last: [u8; DIGITS],
    /// The keys that were asked for at once.
    set: Vec<[u8; DIGITS]>,
    /// The template of a release, and where its digits begin.
    release: (&'static [u8], usize),
}

const DIGITS: usize = 16;

const SET: &[u8] = b"*6\r\n$3\r\nSET\r\n$22\r\nprobe:0000000000000000\r\n$40\r\n\
    00112233445566778899aabbccddeeff00112233\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n";
/// A key and its value in a command for several keys, and what ends that command.
const PAIR: &[u8] =
    b"$22\r\nprobe:0000000000000000\r\n$40\r\n00112233445566778899aabbccddeeff00112233\r\n";
const END_OF_PAIRS: &[u8] = b"$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n";
const RELEASE: &[u8] = b"*3\r\n$7\r\nDELIFEQ\r\n$22\r\nprobe:0000000000000000\r\n$40\r\n\
    00112233445566778899aabbccddeeff00112233\r\n";
const EXTEND: &[u8] = b"*7\r\n$3\r\nSET\r\n$22\r\nprobe:0000000000000000\r\n$40\r\n\
    00112233445566778899aabbccddeeff00112233\r\n$4\r\nIFEQ\r\n$40\r\n\
    00112233445566778899aabbccddeeff00112233\r\n$2\r\nPX\r\n$5\r\n10000\r\n";

/// The release for servers that cannot compare without a script.
const DELETE: &[u8] = b"*2\r\n$3\r\nDEL\r\n$22\r\nprobe:0000000000000000\r\n";

/// Where the digits begin in each template.
const SET_AT: usize = 4 + 9 + 5 + 6;
const PAIR_AT: usize = 5 + 6;
const RELEASE_AT: usize = 4 + 13 + 5 + 6;
const DELETE_AT: usize = 4 + 9 + 5 + 6;

impl Commands {
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            digits: [b'0'; DIGITS],
            open: VecDeque::new(),
            last: [b'0'; DIGITS],
            set: Vec::new(),
            release: (RELEASE, RELEASE_AT),
        }
    }

    /// Commands whose releases delete without a comparison.
    pub const fn deleting() -> Self {
        let mut commands = Self::new();
        commands.release = (DELETE, DELETE_AT);
        commands
    }

    /// The SET of a fresh key, alone.
    pub fn only_set(&mut self) -> &[u8] {
        self.clear();
        self.next();
        self.append(SET, SET_AT, self.digits);
        self.written()
    }

    /// One command that asks for `count` fresh keys at once.
    pub fn only_msetex(&mut self, count: usize) -> &[u8] {
        self.clear();
        let (words, digits) = (2 * count + 5, count.to_string());
        let head = format!("*{words}\r\n$6\r\nMSETEX\r\n${}\r\n{digits}\r\n", digits.len());
        self.bytes.extend_from_slice(head.as_bytes());
        self.append_fresh(count, PAIR, PAIR_AT);
        self.bytes.extend_from_slice(END_OF_PAIRS);
        self.written()
    }

    /// A SET for each of `count` fresh keys.
    pub fn only_sets(&mut self, count: usize) -> &[u8] {
        self.clear();
        self.append_fresh(count, SET, SET_AT);
        self.written()
    }

    /// The releases of the keys that were asked for at once.
    pub fn only_releases(&mut self) -> &[u8] {
        self.clear();
        let (template, at) = self.release;
        for digits in std::mem::take(&mut self.set) {
            self.append(template, at, digits);
        }
        self.written()
    }

    fn append_fresh(&mut self, count: usize, template: &[u8], at: usize) {
        for _ in 0..count {
            self.next();
            self.set.push(self.digits);
            self.append(template, at, self.digits);
        }
    }

    /// The release of the last key, alone.
    pub fn only_release(&mut self) -> &[u8] {
        self.clear();
        let (template, at) = self.release;
        self.append(template, at, self.digits);
        self.written()
    }

    /// The SET of the last key once more, alone: the nodes deny it while the key is held.
    pub fn only_conflict(&mut self) -> &[u8] {
        self.clear();
        self.append(SET, SET_AT, self.digits);
        self.written()
    }

    /// The extension of the last key, alone.
    pub fn only_extend(&mut self) -> &[u8] {
        self.clear();
        self.append(EXTEND, SET_AT, self.digits);
        self.written()
    }

    /// Appends the SET of a fresh key.
    #[inline]
    pub fn set(&mut self) {
        self.next();
        self.append(SET, SET_AT, self.digits);
        self.open.push_back(Some(self.digits));
    }

    /// Appends the release of the key that [`was_set`](Self::was_set) returned last.
    #[inline]
    pub fn release(&mut self) {
        let (template, at) = self.release;
        self.append(template, at, self.last);
        self.open.push_back(None);
    }

    /// Takes out the window's oldest command without an answer. Returns whether it was a SET.
    #[inline]
    pub fn was_set(&mut self) -> bool {
        let Some(Some(digits)) = self.open.pop_front() else { return false };
        self.last = digits;
        true
    }

    pub fn written(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    #[inline]
    fn append(&mut self, template: &[u8], at: usize, digits: [u8; DIGITS]) {
        let begin = self.bytes.len() + at;
        self.bytes.extend_from_slice(template);
        if let Some(place) = self.bytes.get_mut(begin..begin + DIGITS) {
            place.copy_from_slice(&digits);
        }
    }

    /// Counts the digits up.
    #[inline]
    fn next(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }
}
