//! Descriptors that travel over a Unix socket, beside one byte.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most descriptors of one message.
const MOST: usize = 3;

/// Sends a line end together with up to three descriptors.
pub(crate) fn send(socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    sendmsg(
        socket,
        &[IoSlice::new(b"\n")],
        &mut beside,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// Receives bytes and the descriptors that came with them. Zero bytes are the end of the stream.
pub(crate) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut beside, flags)?;
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            descriptors.extend(all);
        }
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_beside_their_byte_and_no_earlier_read_takes_them() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        ours.write_all(b"before").unwrap();
        send(&ours, &[writer.as_fd()]).unwrap();
        drop((ours, writer));
        let mut before = [0; 6];
        theirs.read_exact(&mut before).unwrap();
        let (bytes, mut all) = receive(&theirs, &mut [0; 8]).unwrap();
        assert_eq!((bytes, all.len()), (1, 1));
        std::fs::File::from(all.remove(0)).write_all(b"x").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert_eq!(receive(&theirs, &mut [0]).unwrap().0, 0);
    }
}
