//! Sockets: TCP and Unix streams and listeners behind one type each.

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// A silent connection is probed after this time,
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// again at this interval,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// and has ended when this many probes in a row were not answered.
const KEEPALIVE_COUNT: u32 = 6;

/// A client's connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over the control socket.
    Control(UnixStream),
}

/// Where connections come from.
pub enum Listener {
    /// A TCP address.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
    /// The control socket.
    Control(UnixListener),
}

impl Listener {
    /// Takes the next connection; `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(l) => {
                let (stream, peer) = l.accept()?;
                // A reply is one send: waiting to fill a packet would only delay it.
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                if peer.ip().is_loopback() {
                    // Pacing, as BBR does it, costs timers and gains nothing where there is no
                    // network. Refused: it stays as it is.
                    let _ = sockopt::set_tcp_congestion(&stream, "reno");
                }
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(l) => Ok(Stream::Unix(l.accept()?.0)),
            Self::Control(l) => Ok(Stream::Control(l.accept()?.0)),
        }
    }
    /// The socket, to register it.
    pub fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(l) => l,
            Self::Unix(l) | Self::Control(l) => l,
        }
    }
}

/// Connections that the system completes before they are accepted; it has a bound of its own,
/// `somaxconn`. The standard library's 128 are few: the next of a burst would wait a second, for
/// its own retry.
const BACKLOG: i32 = 4096;

/// Gives a listening socket its backlog.
pub fn lengthen_backlog(listener: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

/// A client whose machine is gone answers no probe: its connection ends, and so do the transaction
/// and the locks that it held.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?)
}

impl Stream {
    /// Registers the connection, edge-triggered, for reading and writing.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(s) => s.register(registry, token, both),
            Self::Unix(s) | Self::Control(s) => s.register(registry, token, both),
        }
    }
    /// Takes the connection out of the event loop.
    pub fn deregister(&mut self, registry: &Registry) {
        // An error means that it is not registered, which is what is wanted.
        let _ = match self {
            Self::Tcp(s) => s.deregister(registry),
            Self::Unix(s) | Self::Control(s) => s.deregister(registry),
        };
    }
    /// Where the client is: its address, or by which socket it has come.
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(s) => {
                s.peer_addr().map_or_else(|_| "gone".to_owned(), |peer| peer.to_string())
            }
            Self::Unix(_) => "unix".to_owned(),
            Self::Control(_) => "control".to_owned(),
        }
    }
    /// Reads what is there.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(into),
            Self::Unix(s) | Self::Control(s) => s.read(into),
        }
    }
    /// Writes what fits.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(bytes),
            Self::Unix(s) | Self::Control(s) => s.write(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody accepts: what the backlog does not take is never connected.
    #[test]
    fn a_burst_of_connections_does_not_wait() {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        lengthen_backlog(&listener).unwrap();
        let bound: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let connect = |_| {
            let limit = Duration::from_secs(30);
            std::net::TcpStream::connect_timeout(&listener.local_addr().unwrap(), limit).unwrap()
        };
        let burst: Vec<_> = (0..bound.min(300)).map(connect).collect();
        assert!(burst.len() > 128 || bound <= 128);
    }

    #[test]
    fn an_accepted_connection_is_kept_alive() {
        let mut poll = mio::Poll::new().unwrap();
        let mut listener =
            Listener::Tcp(TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap());
        poll.registry().register(listener.source(), Token(0), Interest::READABLE).unwrap();
        let Listener::Tcp(tcp) = &listener else { unreachable!() };
        let _client = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        poll.poll(&mut mio::Events::with_capacity(1), None).unwrap();
        let Stream::Tcp(stream) = listener.accept().unwrap() else { unreachable!() };
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEPALIVE_COUNT);
    }
}
