//! [`Relay`]: the TLS in front of a plain server, made here so that it can break every rule.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

use crate::authority::Signed;

/// A relay's behaviour towards its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trick {
    /// It follows all rules.
    Honest,
    /// Its answers come a byte at a time, each in a record of its own.
    Crumbs,
    /// It takes the connection, and sends not a byte.
    Silence,
    /// Its handshake comes a byte at a time, so slowly that it never ends.
    SlowHandshake,
    /// It answers the handshake as a plain server would.
    PlainAnswer,
    /// It closes in the middle of the handshake.
    CloseInHandshake,
    /// The handshake is an endless stream of bytes.
    EndlessHandshake,
    /// From the first request on: plain bytes where records belong.
    PlainAfterwards,
    /// From the first request on: a record longer than any may be.
    HugeRecord,
    /// From the first request on: records that do not decrypt.
    Forged,
    /// From the first request on: changes of the session's keys, without end.
    KeyUpdates,
    /// At the first request it says goodbye.
    Goodbye,
    /// At the first request it hangs up without a close message.
    Cut,
}

/// A server for TLS on a port of 127.0.0.1. It sends the decrypted bytes to a plain server, as far
/// as its trick lets it.
pub struct Relay {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    config: Arc<ServerConfig>,
    behind: u16,
    trick: Mutex<Trick>,
    is_over: AtomicBool,
    /// The names for which clients asked.
    names: Mutex<Vec<String>>,
    connections: AtomicU32,
    /// Whether each handshake resumed a session.
    resumed: Mutex<Vec<bool>>,
}

impl Relay {
    /// Starts a relay in front of port `behind` that shows the certificate `shown`.
    pub fn start(behind: u16, shown: &Signed, trick: Trick) -> Self {
        let chain = CertificateDer::pem_slice_iter(shown.cert.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("certificates");
        let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate with its key");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            config: Arc::new(config),
            behind,
            trick: Mutex::new(trick),
            is_over: AtomicBool::new(false),
            names: Mutex::default(),
            connections: AtomicU32::new(0),
            resumed: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_over.load(Ordering::Relaxed) {
                    return;
                }
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let serving = Arc::clone(&accepting);
                // An error of the connection only ends it.
                thread::spawn(move || drop(serving.serve(stream)));
            }
        });
        Self { port, shared }
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    /// Plays this trick from now on, also on connections that exist.
    pub fn play(&self, trick: Trick) {
        *self.shared.trick.lock().expect("nobody panics") = trick;
    }

    /// The names for which clients asked.
    pub fn names(&self) -> Vec<String> {
        self.shared.names.lock().expect("nobody panics").clone()
    }

    /// Whether each handshake so far resumed a session of an earlier connection.
    pub fn resumed(&self) -> Vec<bool> {
        self.shared.resumed.lock().expect("nobody panics").clone()
    }

    /// How many connections clients have made to it.
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // The connection wakes the thread that accepts.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// How long a thread waits for either side before it looks at the other.
const TICK: Duration = Duration::from_millis(1);

impl Shared {
    fn trick(&self) -> Trick {
        *self.trick.lock().expect("nobody panics")
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        match self.trick() {
            Trick::Silence => return self.hold(&client),
            Trick::PlainAnswer => {
                client.write_all(b"-ERR unknown command\r\n")?;
                return self.hold(&client);
            }
            Trick::CloseInHandshake => {
                client.read_exact(&mut [0; 5])?;
                return client.write_all(b"\x16\x03\x03\x00\x7a\x02");
            }
            Trick::EndlessHandshake => loop {
                // Empty fragments of a handshake message.
                client.write_all(&b"\x16\x03\x03\x00\x01\x02".repeat(500))?;
            },
            Trick::Honest
            | Trick::Crumbs
            | Trick::SlowHandshake
            | Trick::PlainAfterwards
            | Trick::HugeRecord
            | Trick::Forged
            | Trick::KeyUpdates
            | Trick::Goodbye
            | Trick::Cut => {}
        }
        let mut session =
            ServerConnection::new(Arc::clone(&self.config)).map_err(std::io::Error::other)?;
        while session.is_handshaking() {
            while session.wants_write() {
                if self.trick() == Trick::SlowHandshake {
                    return self.trickle(&mut session, &mut client);
                }
                session.write_tls(&mut client)?;
            }
            if session.is_handshaking() {
                if session.read_tls(&mut client)? == 0 {
                    return Ok(());
                }
                session.process_new_packets().map_err(std::io::Error::other)?;
            }
        }
        if let Some(name) = session.server_name() {
            self.names.lock().expect("nobody panics").push(name.to_owned());
        }
        let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        self.resumed.lock().expect("nobody panics").push(is_resumed);
        while session.wants_write() {
            session.write_tls(&mut client)?;
        }
        self.relay(session, client)
    }

    /// Keeps a connection open without an answer.
    fn hold(&self, client: &TcpStream) -> std::io::Result<()> {
        client.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut client = client;
        while !self.is_over() {
            if matches!(client.read(&mut [0; 4096]), Ok(0)) {
                break;
            }
        }
        Ok(())
    }

    fn trickle(
        &self,
        session: &mut ServerConnection,
        client: &mut TcpStream,
    ) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        session.write_tls(&mut bytes)?;
        for byte in bytes {
            if self.is_over() {
                break;
            }
            client.write_all(&[byte])?;
            thread::sleep(Duration::from_millis(20));
        }
        self.hold(client)
    }

    fn relay(&self, mut session: ServerConnection, mut client: TcpStream) -> std::io::Result<()> {
        let mut server = TcpStream::connect(("127.0.0.1", self.behind))?;
        server.set_nodelay(true)?;
        server.set_read_timeout(Some(TICK))?;
        client.set_read_timeout(Some(TICK))?;
        let mut buffer = [0; 4096];
        while !self.is_over() {
            // The end of the handshake may have brought the first request along.
            while let Ok(len @ 1..) = session.reader().read(&mut buffer) {
                if self.misbehave(&mut session, &mut client)? {
                    return Ok(());
                }
                server.write_all(buffer.get(..len).unwrap_or(&[]))?;
            }
            if is_ready(session.read_tls(&mut client))? {
                session.process_new_packets().map_err(std::io::Error::other)?;
            }
            let len = match server.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if is_pause(&error) => 0,
                Err(error) => return Err(error),
            };
            let piece = if self.trick() == Trick::Crumbs { 1 } else { buffer.len() };
            for bytes in buffer.get(..len).unwrap_or(&[]).chunks(piece) {
                session.writer().write_all(bytes)?;
                while session.wants_write() {
                    session.write_tls(&mut client)?;
                }
            }
        }
        Ok(())
    }

    /// Answers a request as the trick demands. Returns whether the connection is over.
    fn misbehave(
        &self,
        session: &mut ServerConnection,
        client: &mut TcpStream,
    ) -> std::io::Result<bool> {
        match self.trick() {
            Trick::PlainAfterwards => client.write_all(b"+OK\r\n+OK\r\n")?,
            Trick::HugeRecord => {
                client.write_all(b"\x17\x03\x03\xff\xff")?;
                // A client that believed the length would wait for the rest, or keep all the bytes.
                client.write_all(&[0; 60_000])?;
            }
            Trick::Forged => client.write_all(&b"\x17\x03\x03\x00\x20".repeat(8))?,
            Trick::KeyUpdates => {
                while !self.is_over() {
                    session.refresh_traffic_keys().map_err(std::io::Error::other)?;
                    while session.wants_write() {
                        session.write_tls(client)?;
                    }
                }
            }
            Trick::Goodbye => {
                session.send_close_notify();
                session.write_tls(client)?;
                return Ok(true);
            }
            Trick::Cut => return Ok(true),
            Trick::Honest
            | Trick::Crumbs
            | Trick::Silence
            | Trick::SlowHandshake
            | Trick::PlainAnswer
            | Trick::CloseInHandshake
            | Trick::EndlessHandshake => return Ok(false),
        }
        self.hold(client)?;
        Ok(true)
    }
}

/// Whether a read with a timeout gave bytes; an end of the stream is an error here.
fn is_ready(result: std::io::Result<usize>) -> std::io::Result<bool> {
    match result {
        Ok(0) => Err(std::io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if is_pause(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_pause(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
