//! Sockets: one type for TCP and Unix streams, and one for their listeners.

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Time without traffic after which a connection is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Interval between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes in a row after which the connection has ended.
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

/// A listening socket.
pub enum Listener {
    /// A TCP address.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
    /// The control socket.
    Control(UnixListener),
}

impl Listener {
    /// Accepts the next connection; `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(l) => {
                let (stream, peer) = l.accept()?;
                // A reply is one send, so Nagle's algorithm would only delay it.
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                if peer.ip().is_loopback() {
                    // Pacing, as in BBR, costs timers and gains nothing without a network. If the
                    // kernel refuses, its default stays.
                    let _ = sockopt::set_tcp_congestion(&stream, "reno");
                }
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(l) => Ok(Stream::Unix(l.accept()?.0)),
            Self::Control(l) => Ok(Stream::Control(l.accept()?.0)),
        }
    }
    /// Returns the socket, for registration with an event loop.
    pub fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(l) => l,
            Self::Unix(l) | Self::Control(l) => l,
        }
    }
}

/// Length of the queue of connections that the kernel has completed and we have not accepted. The
/// kernel limits it to `somaxconn`. The standard library's 128 are too few: the next connection of
/// a burst waits a second for its SYN to be retried.
const BACKLOG: i32 = 4096;

/// Sets a listening socket's backlog to [`BACKLOG`].
pub fn lengthen_backlog(listener: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

/// Enables keepalive. If a client's machine is gone, its connection ends, and so do its transaction
/// and locks. Linux does not probe while sent bytes are not acknowledged: then the connection ends
/// when the retransmissions end, after about 15 minutes (`net.ipv4.tcp_retries2`).
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?)
}

impl Stream {
    /// Registers the connection, edge-triggered, for reading.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.register(registry, token, Interest::READABLE),
            Self::Unix(s) | Self::Control(s) => s.register(registry, token, Interest::READABLE),
        }
    }
    /// Registers the connection for reading and, if `writes`, for writing. What is possible already
    /// is announced again.
    pub fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        writes: bool,
    ) -> io::Result<()> {
        let interest = match writes {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        match self {
            Self::Tcp(s) => s.reregister(registry, token, interest),
            Self::Unix(s) | Self::Control(s) => s.reregister(registry, token, interest),
        }
    }
    /// Removes the connection from the event loop.
    pub fn deregister(&mut self, registry: &Registry) {
        // An error means that it is not registered, which is the goal.
        let _ = match self {
            Self::Tcp(s) => s.deregister(registry),
            Self::Unix(s) | Self::Control(s) => s.deregister(registry),
        };
    }
    /// Returns true if the client uses the control socket.
    pub fn is_control(&self) -> bool {
        matches!(self, Self::Control(_))
    }
    /// Returns the client's address, or the kind of socket that it connected to.
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(s) => {
                s.peer_addr().map_or_else(|_| "gone".to_owned(), |peer| peer.to_string())
            }
            Self::Unix(_) => "unix".to_owned(),
            Self::Control(_) => "control".to_owned(),
        }
    }
    /// Reads available bytes.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(into),
            Self::Unix(s) | Self::Control(s) => s.read(into),
        }
    }
    /// Writes as much as the socket takes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(bytes),
            Self::Unix(s) | Self::Control(s) => s.write(bytes),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) | Self::Control(s) => s.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody accepts: connections beyond the backlog never complete.
    #[test]
    fn burst_of_connections_fits_the_backlog() {
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
    fn accepted_connection_has_keepalive() {
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
