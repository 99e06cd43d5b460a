//! [`Door`]: an address whose server changes, like the address of a load balancer at a failover.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// An address of 127.0.0.1. Each connection goes to the server that was behind the address when the
/// connection was made, and stays with it.
#[derive(Debug)]
pub struct Door {
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    behind: AtomicU16,
    /// A connection ends once this number is higher than when the connection was made.
    age: AtomicU32,
    is_held: AtomicBool,
}

/// How long a thread waits for bytes before it looks at the state of the door.
const TICK: Duration = Duration::from_millis(5);

impl Door {
    /// Opens an address in front of port `behind`.
    pub fn open(behind: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            behind: AtomicU16::new(behind),
            age: AtomicU32::new(0),
            is_held: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let behind = accepting.behind.load(Ordering::SeqCst);
                if behind == CLOSED {
                    return;
                }
                // A server that is down refuses; the client sees its connection end.
                let Ok(server) = TcpStream::connect(("127.0.0.1", behind)) else { continue };
                let _ = accepting.join(client, server);
            }
        });
        Self { port, shared }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// New connections go to port `behind`. Those that exist stay with their server.
    pub fn move_to(&self, behind: u16) {
        self.shared.behind.store(behind, Ordering::SeqCst);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.shared.age.fetch_add(1, Ordering::SeqCst);
    }

    /// From now on no byte passes, and no end of a connection, until [`release`](Self::release).
    pub fn hold(&self) {
        self.shared.is_held.store(true, Ordering::SeqCst);
    }

    /// Ends the connections that were held, and lets new ones pass.
    pub fn release(&self) {
        self.cut();
        self.shared.is_held.store(false, Ordering::SeqCst);
    }
}

/// No server has this port.
const CLOSED: u16 = 0;

impl Drop for Door {
    fn drop(&mut self) {
        self.cut();
        self.move_to(CLOSED);
        // The connection wakes the thread that accepts.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        let age = self.age.load(Ordering::SeqCst);
        for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
            from.set_read_timeout(Some(TICK))?;
            to.set_nodelay(true)?;
            let shared = Arc::clone(self);
            // An error of one side ends both.
            thread::spawn(move || {
                let _ = shared.pass(&from, &to, age);
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        Ok(())
    }

    /// Passes bytes on until a side ends or the door ends the connection.
    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, age: u32) -> io::Result<()> {
        let mut buffer = [0; 16_384];
        let is_over = || self.age.load(Ordering::SeqCst) != age;
        while !is_over() {
            let read = match from.read(&mut buffer) {
                Err(error) if is_pause(&error) => continue,
                read => read,
            };
            while self.is_held.load(Ordering::SeqCst) && !is_over() {
                thread::sleep(TICK);
            }
            match read {
                Ok(len @ 1..) if !is_over() => {
                    to.write_all(buffer.get(..len).unwrap_or_default())?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
