//! The cost of the kernel alone: one epoll thread that reads requests and writes a fixed answer of
//! a given size.
//!
//! `floor [--port 3100] [--size 16] [--pipelined]`. By default each read is answered once, whatever
//! it contains; `--pipelined` answers once for each blank line. It is not an HTTP server: it is
//! only a yardstick. Requests must arrive whole, in one segment; answers must fit the socket buffer
//! or the connection is closed.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;

#[derive(Clone, Copy)]
struct Settings {
    port: u16,
    size_bytes: usize,
    pipelined: bool,
}

fn settings() -> Option<Settings> {
    let mut settings = Settings { port: 3100, size_bytes: 16, pipelined: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--port" => settings.port = arguments.next()?.parse().ok()?,
            "--size" => settings.size_bytes = arguments.next()?.parse().ok()?,
            "--pipelined" => settings.pipelined = true,
            _ => return None,
        }
    }
    Some(settings)
}

fn main() -> ExitCode {
    let Some(settings) = settings() else {
        eprintln!("usage: floor [--port PORT] [--size BODY_BYTES] [--pipelined]");
        return ExitCode::from(2);
    };
    match serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A JSON string that fills the body, behind the head that the other servers send.
fn fixed_answer(size_bytes: usize) -> Vec<u8> {
    let filling = "x".repeat(size_bytes.saturating_sub(2));
    let body = if size_bytes >= 2 { format!("\"{filling}\"") } else { "1".repeat(size_bytes) };
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{date}\r\n");
    format!("{head}Content-Length: {size_bytes}\r\n\r\n{body}").into_bytes()
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An epoll set; its sockets are identified by file descriptor.
struct Epoll(OwnedFd);

impl Epoll {
    #[allow(unsafe_code)]
    fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointer; a descriptor that it returns is new and ours alone.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) }))
    }

    #[allow(unsafe_code)]
    fn add(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: `event` is alive for the call, which keeps no pointer to it.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) })?;
        Ok(())
    }

    #[allow(unsafe_code)]
    fn wait(&self, events: &mut [libc::epoll_event]) -> io::Result<usize> {
        let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: the kernel writes at most `room` events, which is no more than the slice holds.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), room, -1) };
        match check(count) {
            Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn serve(settings: Settings) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", settings.port))?;
    listener.set_nonblocking(true)?;
    println!("floor: 127.0.0.1:{}", settings.port);
    let answer = fixed_answer(settings.size_bytes);
    let epoll = Epoll::new()?;
    epoll.add(listener.as_raw_fd())?;
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
    let mut input = vec![0; 64 * 1024];
    let mut output = Vec::new();
    loop {
        let count = epoll.wait(&mut events)?;
        for event in &events[..count] {
            let place = usize::try_from(event.u64).unwrap_or(usize::MAX);
            if event.u64 == listener.as_raw_fd() as u64 {
                accept(&listener, &epoll, &mut connections)?;
                continue;
            }
            let Some(Some(stream)) = connections.get(place) else { continue };
            if answer_once(stream, &answer, settings.pipelined, &mut input, &mut output).is_err() {
                connections[place] = None;
            }
        }
    }
}

fn accept(listener: &TcpListener, epoll: &Epoll, connections: &mut Vec<Option<TcpStream>>) -> io::Result<()> {
    while let Ok((stream, _)) = listener.accept() {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        epoll.add(stream.as_raw_fd())?;
        let place = usize::try_from(stream.as_raw_fd()).expect("a descriptor is not negative");
        if connections.len() <= place {
            connections.resize_with(place + 1, || None);
        }
        connections[place] = Some(stream);
    }
    Ok(())
}

/// One read, one write. An error closes the connection.
fn answer_once(
    mut stream: &TcpStream,
    answer: &[u8],
    pipelined: bool,
    input: &mut [u8],
    output: &mut Vec<u8>,
) -> io::Result<()> {
    use std::io::{Read, Write};
    let count = match stream.read(input) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(error),
    };
    if !pipelined {
        return stream.write_all(answer);
    }
    output.clear();
    let requests = input[..count].windows(4).filter(|window| window == b"\r\n\r\n").count();
    for _ in 0..requests {
        output.extend_from_slice(answer);
    }
    stream.write_all(output)
}
