//! Upstreams for the tests.

use forebay_tests::{Folder, free_port};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A received request, with the parts that tests check.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
}

impl Seen {
    /// The first field of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

type Script = dyn Fn(&Seen, &mut TcpStream) -> bool + Send + Sync;

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    released: Mutex<bool>,
    changed: Condvar,
    stopped: AtomicBool,
}

/// A server that answers each request by a script; the connection continues when the script returns
/// true.
pub struct Scripted {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Scripted {
    pub fn new(script: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static) -> Scripted {
        Scripted::with_state(Arc::default(), Arc::new(script))
    }

    /// An upstream that always answers these bytes and then closes.
    pub fn saying(bytes: impl AsRef<[u8]>) -> Scripted {
        let bytes = bytes.as_ref().to_vec();
        Scripted::new(move |_, stream| {
            // The client may close before it has received the whole answer.
            let _sent = stream.write_all(&bytes);
            false
        })
    }

    /// An upstream that answers `held` when it is released, and at once from then on.
    pub fn holding() -> Scripted {
        let state = Arc::<State>::default();
        let own = state.clone();
        let script = move |_: &Seen, stream: &mut TcpStream| {
            let released = own.released.lock().expect("no script panics");
            let released = own.changed.wait_while(released, |released| !*released).expect("no script panics");
            drop(released);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nheld").is_ok()
        };
        Scripted::with_state(state, Arc::new(script))
    }

    fn with_state(state: Arc<State>, script: Arc<Script>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let own = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.stopped.load(SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                own.connections.fetch_add(1, SeqCst);
                let (state, script) = (own.clone(), script.clone());
                std::thread::spawn(move || serve(stream, &state, &*script));
            }
        });
        Scripted { address, state }
    }

    pub fn release(&self) {
        *self.state.released.lock().expect("no script panics") = true;
        self.state.changed.notify_all();
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(SeqCst)
    }

    /// Requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().expect("no script panics").clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.state.stopped.store(true, SeqCst);
        self.release();
        // Wakes the accepting thread, which may have ended.
        let _woken = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, state: &State, script: &Script) {
    let mut input = Vec::new();
    let set = stream.set_read_timeout(Some(Duration::from_secs(60))).and_then(|()| stream.set_nodelay(true));
    set.expect("a live socket");
    while let Some(seen) = read_request(&mut stream, &mut input) {
        state.seen.lock().expect("no script panics").push(seen.clone());
        if !script(&seen, &mut stream) {
            return;
        }
    }
}

/// One request, its body by length or in chunks; `None` at the end, or when the request is
/// incomplete.
fn read_request(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<Seen> {
    let end = loop {
        match input.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(at) => break at + 4,
            None => more(stream, input)?,
        }
    };
    let head = String::from_utf8(input.drain(..end).collect()).expect("ASCII");
    let mut seen = Seen { head, body: Vec::new() };
    if let Some(length) = seen.header("content-length").map(|text| text.parse::<usize>().expect("digits")) {
        while input.len() < length {
            more(stream, input)?;
        }
        seen.body = input.drain(..length).collect();
    } else if seen.header("transfer-encoding") == Some("chunked") {
        loop {
            let line = loop {
                match input.windows(2).position(|two| two == b"\r\n") {
                    Some(at) => break at,
                    None => more(stream, input)?,
                }
            };
            let digits = String::from_utf8(input[..line].to_vec()).expect("ASCII");
            let size = usize::from_str_radix(&digits, 16).expect("a size");
            while input.len() < line + 2 + size + 2 {
                more(stream, input)?;
            }
            seen.body.extend_from_slice(&input[line + 2..line + 2 + size]);
            input.drain(..line + 2 + size + 2);
            if size == 0 {
                break;
            }
        }
    }
    Some(seen)
}

fn more(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 64 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            input.extend_from_slice(&buffer[..count]);
            Some(())
        }
    }
}

/// A real nginx that serves the files of a folder, or stands in front of a server.
pub struct Nginx {
    pub address: SocketAddr,
    child: Child,
    folder: Folder,
}

impl Nginx {
    /// Starts nginx with these files.
    #[track_caller]
    pub fn start(files: &[(&str, &[u8])]) -> Nginx {
        let nginx = |folder: &Folder| {
            for (name, bytes) in files {
                std::fs::write(folder.path().join(name), bytes).expect("a file can be written");
            }
            "client_max_body_size 0;\n\
             location /put/ { dav_methods PUT; create_full_put_path on; }\n\
             location = /say { return 200 \"$request_method $http_host $http_x_forwarded_for $http_via $http_connection\"; }\n\
             location = /moved { return 302 /elsewhere; }"
                .to_owned()
        };
        Nginx::with(nginx)
    }

    /// Starts nginx as a proxy in front of a server, with these directives.
    #[track_caller]
    pub fn before(address: SocketAddr, directives: &str) -> Nginx {
        Nginx::with(|_| format!("location / {{ proxy_pass http://{address}; {directives} }}"))
    }

    #[track_caller]
    fn with(server: impl FnOnce(&Folder) -> String) -> Nginx {
        let folder = Folder::new();
        let port = free_port();
        let root = folder.path().display().to_string();
        let server = server(&folder);
        let config = format!(
            "worker_processes 1; daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/error.log;\n\
             events {{}}\n\
             http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
             uwsgi_temp_path {root}/u; scgi_temp_path {root}/s; types {{ text/plain txt; }} default_type application/octet-stream;\n\
             server {{ listen 127.0.0.1:{port}; root {root}; {server} }} }}"
        );
        let file = folder.write("nginx.conf", &config);
        let mut command = Command::new("nginx");
        command.args(["-p", &root, "-e", &format!("{root}/error.log"), "-c"]).arg(&file);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nginx is installed");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        forebay_tests::wait_for("nginx listens", || TcpStream::connect(address).ok());
        Nginx { address, child, folder }
    }

    /// The folder of its files.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The Express app of peers/shop/streams.js; killed when dropped.
pub struct Express {
    pub address: SocketAddr,
    child: Child,
}

impl Express {
    #[track_caller]
    pub fn start() -> Express {
        let port = free_port();
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/shop/streams.js");
        let mut command = Command::new("node");
        command.arg(script).env("PORT", port.to_string()).env("NODE_ENV", "production");
        // Its errors go to standard error.
        let child = command.stdout(Stdio::null()).spawn().expect("node is installed");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        forebay_tests::wait_for("Express listens", || TcpStream::connect(address).ok());
        Express { address, child }
    }
}

impl Drop for Express {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
