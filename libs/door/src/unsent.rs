//! How much of what is written may wait in the kernel to be sent. Streams of a connection take turns only as long as
//! their frames have not been written: behind megabytes of pages a small event would wait until they are through.

use std::io;

use tokio::net::TcpStream;

/// Bytes that may wait unsent, beside what is on its way.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 128 * 1024;

/// Bounds it, where the system can.
pub(crate) fn bound(socket: &TcpStream) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT)?;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _cannot = socket;
    Ok(())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Bytes that the system takes for a peer that reads nothing.
    async fn taken(bounded: bool) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = tokio::net::TcpSocket::new_v4().unwrap();
        connecting.set_recv_buffer_size(32 * 1024).unwrap();
        let connecting = connecting.connect(listener.local_addr().unwrap());
        let (accepted, _peer) = tokio::join!(listener.accept(), connecting);
        let socket = accepted.unwrap().0;
        if bounded {
            bound(&socket).unwrap();
        }
        let mut taken = 0;
        loop {
            socket.writable().await.unwrap();
            match socket.try_write(&[0; 16 * 1024]) {
                Ok(bytes) => taken += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return taken,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn little_is_taken_for_a_peer_that_does_not_read() {
        let (bounded, unbounded) = (taken(true).await, taken(false).await);
        assert!(bounded < 512 * 1024 && bounded < unbounded / 2, "{bounded} of {unbounded}");
    }
}
