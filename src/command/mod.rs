//! The commands that Redbolt sends, as bytes, and what an answer to one means for a lock.
//!
//! Layer: above `resp`, below `node`. It appends to the caller's buffers; nothing here waits or
//! counts.

mod answer;
mod dialect;
#[cfg(test)]
mod tests;

use bytes::BufMut;

pub(crate) use answer::{Answer, classify, counter, time};
pub(crate) use dialect::{Dialect, ExtendStep, Form, ReleaseStep, Server, ServerKind};

use crate::claim::CLAIM_SUFFIX;
use crate::key::{self, Key};
use crate::resp::encode::{
    append_array_header, append_block, append_bulk, append_command, append_number,
};
use crate::token::{TokenBytes, hex};

/// Deletes the key if it holds the token.
pub(crate) const RELEASE_SCRIPT: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// Renews the key's TTL if it holds the token; a missing key stays missing.
pub(crate) const EXTEND_SCRIPT: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// Takes the lock, and raises the counter of its fences to a proposed number if that is higher.
/// Answers 0 if the lock is taken, 1 if it accepted the number, and otherwise the counter. The
/// script looks at the counter first, so that an error leaves nothing behind.
pub(crate) const FENCED_SET_SCRIPT: &str = "local s=redis.call('get',KEYS[2]) or '0' \
     local c=tonumber(s) if not(c and c>=0 and c<9007199254740991) then \
     return redis.error_reply('FENCE counter') end \
     if not redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return 0 end \
     if c<tonumber(ARGV[3]) then redis.call('set',KEYS[2],ARGV[3],'PX',ARGV[4]) return 1 end \
     return s";

/// Takes the first of several locks that is free, each with its own token. Answers its place, from 1
/// on, as text, or 0 if all are taken.
pub(crate) const FIRST_FREE_SCRIPT: &str = "for i=1,#KEYS do \
     if redis.call('set',KEYS[i],ARGV[i],'NX','PX',ARGV[#KEYS+1]) then return tostring(i) end end \
     return 0";

/// Hands the lock over, if the lock holds the token: writes the token of a waiter, and tells the
/// waiter. Answers 0 if the lock does not hold the token, and 2 if the waiter heard of it.
/// Otherwise it deletes the key and answers 1. DEL comes first: a user who may not run it gets an
/// error before anything has changed. SET comes before PUBLISH: if the SET is refused, no waiter
/// has been told. A message without a SET of this script would be a vote that the node did not
/// cast.
pub(crate) const TRANSFER_SCRIPT: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
     redis.call('del',KEYS[1]) local s=redis.pcall('set',KEYS[1],ARGV[2],'PX',ARGV[3]) \
     if type(s)=='table' and s.ok then local n=redis.pcall('publish',ARGV[4],ARGV[5]) \
     if type(n)=='number' and n>0 then return 2 end redis.call('del',KEYS[1]) end return 1";

/// Returns the holder of the lock, and tells that holder's client that the caller waits. Answers
/// null if the key is free, or has the token of the caller's own attempt. Otherwise it answers the
/// token of the key, its TTL in milliseconds, and how many clients heard the message. A token
/// begins with the id of its client, and so the script finds the channel. The script puts the token
/// into the message.
pub(crate) const INTRODUCTION_SCRIPT: &str = "local h=redis.pcall('get',KEYS[1]) \
     if not h or h==ARGV[1] then return false end local n=0 \
     if type(h)~='string' then h='' elseif #h==40 and not h:find('[^0-9a-f]') then \
     n=redis.pcall('publish',ARGV[2]..h:sub(1,16),ARGV[3]..h:gsub('..',function(b) \
     return string.char(tonumber(b,16)) end)..ARGV[4]) if type(n)~='number' then n=0 end end \
     return {h,redis.call('pttl',KEYS[1]),n}";

/// Raises the counter, if the lock holds the token; otherwise answers 0.
pub(crate) const RAISE_SCRIPT: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
     local s=redis.call('get',KEYS[2]) or '0' local c=tonumber(s) \
     if not(c and c>=0 and c<9007199254740991) then return redis.error_reply('FENCE counter') end \
     if c<tonumber(ARGV[2]) then redis.call('set',KEYS[2],ARGV[2],'PX',ARGV[3]) return 1 end \
     return s";

/// `SET key token NX PX ttl`: takes one plain lock. The client never sends it a second time: the
/// second SET would run behind the release.
pub(crate) fn append_set(
    out: &mut Vec<u8>,
    key: &Key,
    token: &TokenBytes,
    ttl_ms: u32,
    options: &mut SetOptions,
) {
    out.extend_from_slice(b"*6\r\n$3\r\nSET\r\n");
    append_key(out, key);
    append_token(out, token);
    options.append(out, ttl_ms);
}

/// Takes the first of several locks that is free. As with a SET, the client never sends it a second
/// time.
pub(crate) fn append_first_free<'a>(
    out: &mut Vec<u8>,
    locks: impl Iterator<Item = (&'a Key, &'a TokenBytes)> + Clone,
    ttl_ms: u32,
) {
    let count = locks.clone().count();
    append_array_header(out, 4 + 2 * count);
    out.extend_from_slice(b"$4\r\nEVAL\r\n");
    append_bulk(out, FIRST_FREE_SCRIPT.as_bytes());
    append_number(out, u64::try_from(count).unwrap_or(u64::MAX));
    for (key, _) in locks.clone() {
        append_key(out, key);
    }
    for (_, token) in locks {
        append_token(out, token);
    }
    append_number(out, ttl_ms.into());
}

/// Takes several locks, or none: `MSETEX n key token .. NX PX ttl`.
pub(crate) fn append_set_all<'a>(
    out: &mut Vec<u8>,
    locks: impl Iterator<Item = (&'a Key, &'a TokenBytes)> + Clone,
    ttl_ms: u32,
) {
    let count = locks.clone().count();
    append_array_header(out, 5 + 2 * count);
    out.extend_from_slice(b"$6\r\nMSETEX\r\n");
    append_number(out, u64::try_from(count).unwrap_or(u64::MAX));
    for (key, token) in locks {
        append_key(out, key);
        append_token(out, token);
    }
    out.extend_from_slice(b"$2\r\nNX\r\n$2\r\nPX\r\n");
    append_number(out, ttl_ms.into());
}

/// As [`append_set`], with a fence. As with a SET, the client never sends it a second time.
pub(crate) fn append_fenced_set(
    out: &mut Vec<u8>,
    key: &Key,
    token: &TokenBytes,
    ttl_ms: u32,
    fence: u64,
    fence_ttl_ms: u64,
) {
    out.extend_from_slice(b"*9\r\n");
    append_fence_script(out, FENCED_SET_SCRIPT, key, token);
    append_number(out, ttl_ms.into());
    append_number(out, fence);
    append_number(out, fence_ttl_ms);
}

/// Hands the lock over to the waiter with the token `to`, and tells it by `message`.
pub(crate) fn append_transfer(
    out: &mut Vec<u8>,
    key: &Key,
    token: &TokenBytes,
    (to, ttl_ms): (&TokenBytes, u32),
    (channel, message): (&[u8], &[u8]),
) {
    out.extend_from_slice(b"*9\r\n");
    append_script(out, TRANSFER_SCRIPT, key);
    append_token(out, token);
    append_token(out, to);
    append_number(out, ttl_ms.into());
    append_bulk(out, channel);
    append_bulk(out, message);
}

/// Asks for the holder of the lock, and tells that client by a message. The script puts the
/// holder's token between the two parts of `message`. The message goes to the channel whose name
/// begins with `prefix`. `token` belongs to the caller's own attempt.
pub(crate) fn append_introduction(
    out: &mut Vec<u8>,
    key: &Key,
    token: &TokenBytes,
    prefix: &[u8],
    message: (&[u8], &[u8]),
) {
    out.extend_from_slice(b"*8\r\n");
    append_script(out, INTRODUCTION_SCRIPT, key);
    append_token(out, token);
    append_bulk(out, prefix);
    append_bulk(out, message.0);
    append_bulk(out, message.1);
}

/// Raises the counter of a lock that holds the token.
pub(crate) fn append_raise(
    out: &mut Vec<u8>,
    key: &Key,
    token: &TokenBytes,
    fence: u64,
    fence_ttl_ms: u64,
) {
    out.extend_from_slice(b"*8\r\n");
    append_fence_script(out, RAISE_SCRIPT, key, token);
    append_number(out, fence);
    append_number(out, fence_ttl_ms);
}

/// The common beginning of a fenced SET and a raise: the script, the lock, its counter, and the
/// token.
fn append_fence_script(out: &mut Vec<u8>, script: &str, key: &Key, token: &TokenBytes) {
    out.extend_from_slice(b"$4\r\nEVAL\r\n");
    append_bulk(out, script.as_bytes());
    out.extend_from_slice(b"$1\r\n2\r\n");
    append_key(out, key);
    let mut counter = key.clone();
    counter.extend_from_slice(FENCE_SUFFIX);
    append_key(out, &counter);
    append_token(out, token);
}

/// The suffix that makes the key of a lock's counter of fences from the key of the lock.
pub(crate) const FENCE_SUFFIX: &[u8] = b":fence";

/// Whether a key is a counter of fences, the claim of a leader, a gate, a slot or the marker of a
/// node. No lock may be mistaken for one of these.
#[inline]
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    match key {
        [b'r', b'e', b'd', ..] if key.starts_with(MARKER_PREFIX.as_bytes()) => true,
        [.., b'e'] => key.ends_with(FENCE_SUFFIX),
        [.., b'd'] => key.ends_with(CLAIM_SUFFIX),
        [.., b't'] => key.ends_with(key::SLOT),
        [.., b'0'..=b'9'] => key::slot_of(key).is_some(),
        _ => false,
    }
}

/// The prefix that makes a marker's key from a replication id. The marker tells since when a node
/// has been a master.
pub(crate) const MARKER_PREFIX: &str = "redbolt:since:";

/// The options of the last SET, encoded: nearly all locks of a program have the same TTL.
#[derive(Clone, Debug)]
pub(crate) struct SetOptions {
    ttl_ms: u32,
    len: usize,
    block: [u8; SET_OPTIONS_LEN_MAX],
}

/// `NX`, `PX` and a number of ten digits.
const SET_OPTIONS_LEN_MAX: usize = 40;

impl SetOptions {
    /// No TTL is zero, so the first SET encodes its own.
    pub(crate) const NONE: Self = Self { ttl_ms: 0, len: 0, block: [0; SET_OPTIONS_LEN_MAX] };

    #[inline]
    fn append(&mut self, out: &mut Vec<u8>, ttl_ms: u32) {
        if self.ttl_ms != ttl_ms {
            self.encode(ttl_ms);
        }
        append_block(out, &self.block, self.len);
    }

    #[cold]
    fn encode(&mut self, ttl_ms: u32) {
        let mut rest = &mut self.block[..];
        rest.put_slice(b"$2\r\nNX\r\n$2\r\nPX\r\n");
        append_number(&mut rest, ttl_ms.into());
        self.len = SET_OPTIONS_LEN_MAX - rest.len();
        self.ttl_ms = ttl_ms;
    }
}

/// Compare-and-delete.
pub(crate) fn append_release(out: &mut Vec<u8>, step: ReleaseStep, key: &Key, token: &TokenBytes) {
    match step {
        ReleaseStep::DelIfEq => {
            out.extend_from_slice(b"*3\r\n$7\r\nDELIFEQ\r\n");
            append_key(out, key);
        }
        ReleaseStep::DelEx => {
            out.extend_from_slice(b"*4\r\n$5\r\nDELEX\r\n");
            append_key(out, key);
            out.extend_from_slice(b"$4\r\nIFEQ\r\n");
        }
        ReleaseStep::Eval => {
            out.extend_from_slice(b"*5\r\n");
            append_script(out, RELEASE_SCRIPT, key);
        }
    }
    append_token(out, token);
}

/// Compare-and-extend. Never without an expiry: `SET .. IFEQ` alone would remove the TTL.
pub(crate) fn append_extend(
    out: &mut Vec<u8>,
    step: ExtendStep,
    key: &Key,
    token: &TokenBytes,
    ttl_ms: u64,
) {
    match step {
        ExtendStep::SetIfEq => {
            out.extend_from_slice(b"*7\r\n$3\r\nSET\r\n");
            append_key(out, key);
            append_token(out, token);
            out.extend_from_slice(b"$4\r\nIFEQ\r\n");
            append_token(out, token);
            out.extend_from_slice(b"$2\r\nPX\r\n");
        }
        ExtendStep::Eval => {
            out.extend_from_slice(b"*6\r\n");
            append_script(out, EXTEND_SCRIPT, key);
            append_token(out, token);
        }
    }
    append_number(out, ttl_ms);
}

/// Writes a leader's claim, for as long as its lock lasts.
pub(crate) fn append_claim(out: &mut Vec<u8>, key: &Key, value: &TokenBytes, ttl_ms: u32) {
    out.extend_from_slice(b"*5\r\n$3\r\nSET\r\n");
    append_key(out, key);
    append_token(out, value);
    out.extend_from_slice(b"$2\r\nPX\r\n");
    append_number(out, ttl_ms.into());
}

/// Asks whether the user may release by `step`, with a command that changes nothing.
pub(crate) fn append_proof(out: &mut impl BufMut, step: ReleaseStep) {
    match step {
        ReleaseStep::DelIfEq => append_command(out, &[b"DELIFEQ", NOBODYS_KEY, b"-"]),
        ReleaseStep::DelEx => append_command(out, &[b"DELEX", NOBODYS_KEY, b"IFEQ", b"-"]),
        ReleaseStep::Eval => append_command(out, &[b"EVAL", b"return 1", b"0"]),
    }
}

/// A key that no client writes.
const NOBODYS_KEY: &[u8] = b"redbolt:nobody";

/// Asks for the token that holds the key.
pub(crate) fn append_get(out: &mut Vec<u8>, key: &Key) {
    append_command(out, &[b"GET", key]);
}

/// Asks how long the key still lives.
pub(crate) fn append_pttl(out: &mut impl BufMut, key: &Key) {
    append_command(out, &[b"PTTL", key]);
}

/// Asks for the server's wall clock.
pub(crate) fn append_time(out: &mut Vec<u8>) {
    append_command(out, &[b"TIME"]);
}

/// Sends a message; the answer is the number of clients that receive it.
pub(crate) fn append_publish(out: &mut Vec<u8>, channel: &[u8], message: &[u8]) {
    append_command(out, &[b"PUBLISH", channel, message]);
}

/// The beginning of a command with a script of one key.
fn append_script(out: &mut Vec<u8>, script: &str, key: &Key) {
    out.extend_from_slice(b"$4\r\nEVAL\r\n");
    append_bulk(out, script.as_bytes());
    out.extend_from_slice(b"$1\r\n1\r\n");
    append_key(out, key);
}

#[inline(always)]
fn append_key(out: &mut Vec<u8>, key: &Key) {
    append_bulk(out, key);
}

#[inline(always)]
fn append_token(out: &mut Vec<u8>, token: &TokenBytes) {
    match token {
        TokenBytes::Drawn(raw) => {
            let mut text = *b"$40\r\n0000000000000000000000000000000000000000\r\n";
            if let Some(digits) = text.get_mut(5..45) {
                digits.copy_from_slice(&hex(raw));
            }
            out.extend_from_slice(&text);
        }
        TokenBytes::Given(bytes) => append_bulk(out, bytes),
    }
}
