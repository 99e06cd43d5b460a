//! [`Wire`]: a plain blocking connection, and just enough RESP to find the end of a reply.
//!
//! The tests check the crate's own encoder and decoder against this code, so it shares nothing with
//! them.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::wait::uninterrupted;

/// How long any single reply may take; a test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// One connection to a server.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    /// Connects to a port of 127.0.0.1.
    pub fn connect(port: u16) -> std::io::Result<Self> {
        let stream =
            TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, unread: Vec::new() })
    }

    /// Connects to a `redis://HOST:PORT` address of this machine.
    pub fn connect_url(url: &str) -> std::io::Result<Self> {
        Self::connect(port_of(url))
    }

    /// Writes the bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next whole reply, unchanged.
    pub fn reply(&mut self) -> std::io::Result<Vec<u8>> {
        loop {
            if let Some(len) = frame_len(&self.unread) {
                let rest = self.unread.split_off(len);
                return Ok(std::mem::replace(&mut self.unread, rest));
            }
            let mut chunk = [0; 16 << 10];
            match uninterrupted(|| self.stream.read(&mut chunk))? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                len => self.unread.extend_from_slice(chunk.get(..len).unwrap_or(&[])),
            }
        }
    }

    /// Sends one request and takes one reply.
    pub fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> std::io::Result<Vec<u8>> {
        self.send(&request(args))?;
        self.reply()
    }

    /// All bytes until the peer closes.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.unread);
        // A peer that closes while it still has unread input of ours resets the connection: that is
        // an end too.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }
}

/// An array of bulk strings.
pub fn request<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The port at the end of an address.
pub fn port_of(url: &str) -> u16 {
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("{url} ends with a port"))
}

/// The length of the reply at the start of `bytes`; `None` while the reply is incomplete.
fn frame_len(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let head = line + 2;
    let kind = *bytes.first()?;
    let number = || -> Option<i64> { std::str::from_utf8(bytes.get(1..line)?).ok()?.parse().ok() };
    let items = match kind {
        b'$' | b'=' => {
            let len = usize::try_from(number()?).map_or(head, |len| head + len + 2);
            return (len <= bytes.len()).then_some(len);
        }
        b'*' | b'~' | b'>' => usize::try_from(number()?).unwrap_or(0),
        b'%' => usize::try_from(number()?).unwrap_or(0) * 2,
        _ => 0,
    };
    let mut len = head;
    for _ in 0..items {
        len += frame_len(bytes.get(len..)?)?;
    }
    Some(len)
}
