//! Listeners that are inherited from a service manager or from the previous program, and passed to the next
//! one.
//!
//! A service manager passes them as sd_listen_fds(3) says. The program that takes over is executed in this
//! process, which keeps its id: a service manager sees one service. It is the current content of the file
//! that this program was started from. It finds the listeners in one message on a socket that is its standard
//! input (unix(7), SCM_RIGHTS), and their number in [`COUNT`].

use crate::failure::Failure;
use forebay_http::Inherited;
use listenfd::ListenFd;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The variable with the number of listeners, and the process that they are for.
const COUNT: &str = "FOREBAY_LISTENERS";

/// The kernel passes at most this many descriptors in a message.
const LISTENERS_MAX: usize = 253;

/// The listeners that this process inherited.
pub fn inherited() -> Result<Inherited, Failure> {
    let given = std::env::var(COUNT).ok();
    let given = given.as_deref().and_then(|given| given.split_once(' '));
    if let Some((count, _)) = given.filter(|(_, process)| *process == std::process::id().to_string()) {
        let failed =
            |error: io::Error| format!("cannot receive the listeners of the previous process: {error}");
        let listeners = receive().map_err(failed)?;
        if count != listeners.len().to_string() {
            return Err(format!(
                "received {} of the {count} listeners of the previous process",
                listeners.len()
            )
            .into());
        }
        return Ok(Inherited::new(listeners));
    }
    let mut passed = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..passed.len() {
        let not_tcp = |error| format!("listener {index} that was passed is not one of TCP: {error}");
        listeners.extend(passed.take_tcp_listener(index).map_err(not_tcp)?);
    }
    Ok(Inherited::new(listeners))
}

fn receive() -> io::Result<Vec<TcpListener>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let stdin = io::stdin();
    recvmsg(stdin.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut passed, RecvFlags::CMSG_CLOEXEC)?;
    let rights = passed.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    Ok(rights.flatten().map(|fd: OwnedFd| TcpListener::from(fd)).collect())
}

/// Sends listeners into a socket pair. Returns the end at which they are received.
fn send(listeners: &[TcpListener]) -> io::Result<OwnedFd> {
    let (near, far) = UnixStream::pair()?;
    let fds: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS_MAX))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    if !passed.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("there are too many"));
    }
    sendmsg(&near, &[IoSlice::new(&[0])], &mut passed, SendFlags::empty())?;
    Ok(far.into())
}

fn program() -> OsString {
    std::env::args_os().next().unwrap_or_else(|| "forebay".into())
}

/// Whether the program that would take over can be run.
///
/// # Errors
/// The reason why it cannot.
pub fn check() -> Result<(), Failure> {
    let program = program();
    let shown = program.display();
    let output = Command::new(&program).arg("--version").output();
    let output = output.map_err(|error| format!("{shown} cannot be run: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{shown} --version ends with {}", output.status).into())
    }
}

/// Executes the program with these listeners. Returns only when that fails.
pub fn execute(listeners: &[TcpListener]) -> Failure {
    let socket = match send(listeners) {
        Ok(socket) => socket,
        Err(error) => return Failure::from(format!("the listeners cannot be passed on: {error}")),
    };
    let mut command = Command::new(program());
    command.args(std::env::args_os().skip(1)).stdin(socket);
    command.env(COUNT, format!("{} {}", listeners.len(), std::process::id()));
    Failure::from(format!("{} cannot take over: {}", program().display(), command.exec()))
}
