//! The network of a server that has only the proxy of the host: a namespace in which nothing is but
//! its loopback. The launcher listens there and sends the listener to the host, which accepts the
//! connections of the namespace itself. So nothing has to forward bytes, and no socket of the
//! machine is in the program's reach.

use std::io::{Error, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::cmsg_space;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, sendto,
    socket_with,
};

use crate::imports::exec::PROXY_PORT;

/// A message of netlink that brings the first interface of a namespace up, in its parts: length,
/// type (`RTM_NEWLINK`) and flags (`NLM_F_REQUEST | NLM_F_ACK`), number, sender; family and kind of
/// the interface, its index, its flags (`IFF_UP`), and which of them change.
fn loopback_up() -> Vec<u8> {
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes());
    message.extend([16_u16, 5].iter().flat_map(|field| field.to_ne_bytes()));
    message.extend([1_u32, 0, 0, 1, 1, 1].iter().flat_map(|field| field.to_ne_bytes()));
    message
}

/// Brings the loopback of this namespace up, listens there for the program, and sends the listener
/// to the host at this socket.
pub(super) fn open_proxy(host: &Path) -> std::result::Result<(), String> {
    let failed = |error: Error| format!("the way to the proxy cannot be made: {error}");
    bring_up().map_err(failed)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).map_err(failed)?;
    send_listener(&listener, host).map_err(failed)
}

fn bring_up() -> Result<()> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    // Without a protocol it is that of routes and interfaces.
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &loopback_up(), SendFlags::empty(), &kernel)?;
    // The answer's head has 16 bytes; then comes the negative number of an error, or 0.
    let mut answer = [0; 256];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let code = answer.get(16..20).filter(|_| length >= 20);
    match code.and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(code) => Err(Error::from_raw_os_error(-code)),
        None => Err(Error::other("the kernel's answer is too short")),
    }
}

fn send_listener(listener: &TcpListener, host: &Path) -> Result<()> {
    let host = UnixStream::connect(host)?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [listener.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(Error::other("the message has no space"));
    }
    sendmsg(&host, &[IoSlice::new(b"l")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives the listener that [`open_proxy`] sends.
pub(super) fn receive_listener(launcher: &UnixStream) -> Result<TcpListener> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(launcher, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.next().map(TcpListener::from).ok_or_else(|| Error::other("no listener came"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_sent_and_accepts_here() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("s");
        let host = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        send_listener(&listener, &path).unwrap();
        drop(listener);
        let received = receive_listener(&host.accept().unwrap().0).unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        assert!(received.accept().is_ok());
        assert_eq!(loopback_up().len(), 32);
    }
}
