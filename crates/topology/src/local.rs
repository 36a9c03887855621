//! The running topology: up, killing and restarting single nodes, down.

use crate::config_file;
use crate::error::{Error, Kind, Result};
use crate::find;
use crate::limits::{EXIT_TIMEOUT, LOG_TAIL_LINES, POLL_INTERVAL, START_TRIES};
use crate::ports;
use crate::process::{self, Process};
use crate::spec::{Spec, Topology};
use crate::state::{self, Layout, Node, NodeKind};
use forebay_terminal::say;
use rustix::process::Signal;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

/// A topology of local servers. Taken down when dropped, unless it was detached or opened.
#[derive(Debug)]
pub struct Local {
    folder: PathBuf,
    pub(crate) layout: Layout,
    detached: bool,
    cancel: Option<Arc<AtomicBool>>,
    /// Child processes of this process, which must be waited for: the system reserves their process ids
    /// until then.
    children: Mutex<HashMap<String, Child>>,
}

/// Takes down the topology in a folder. Returns whether there was one.
///
/// # Errors
/// [`Kind::NotATopology`] for a folder with other content, which is left unchanged.
pub fn down(folder: &Path) -> Result<bool> {
    if !folder.exists() {
        return Ok(false);
    }
    Local::open(folder)?.down()?;
    Ok(true)
}

impl Local {
    /// Starts a topology. When this returns, every node serves, every replica is in step and all nodes
    /// agree; on an error nothing is left.
    pub fn up(spec: Spec) -> Result<Local> {
        spec.check()?;
        let program = find::program(spec.flavour)?;
        let mut base = ports::choose(&spec, spec.port)?;
        let folder = claim_folder(spec.folder.as_deref())?;
        let layout = Layout::plan(&spec, &program, base);
        layout.claim(&folder)?;
        let mut local = Local {
            folder,
            layout,
            detached: spec.detached,
            cancel: spec.cancel.clone(),
            children: Mutex::default(),
        };
        for attempt in 1.. {
            let error = match local.start_all(&spec) {
                Ok(()) => return Ok(local),
                Err(error) => error,
            };
            let lost_race = matches!(error.kind(), Kind::PortInUse { .. });
            if !lost_race || spec.port.is_some() || attempt == START_TRIES {
                local.take_down()?;
                return Err(error);
            }
            local.end_all()?;
            base = ports::choose(&spec, None)?;
            local.layout = Layout::plan(&spec, &program, base);
            local.layout.save(&local.folder)?;
        }
        unreachable!("the last attempt returns")
    }

    /// The topology that an earlier process left running in a folder. It is not taken down when dropped.
    ///
    /// # Errors
    /// [`Kind::NotATopology`] when there is none.
    pub fn open(folder: &Path) -> Result<Local> {
        let absent = || {
            let text = format!("{} holds no topology: bring one up first", folder.display());
            Error::new(Kind::NotATopology, text)
        };
        let folder = match fs::canonicalize(folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(absent()),
            Err(error) => return Err(Error::io("open", folder, error)),
        };
        let layout = Layout::read(&folder)?.ok_or_else(absent)?;
        Ok(Local { folder, layout, detached: true, cancel: None, children: Mutex::default() })
    }

    fn start_all(&self, spec: &Spec) -> Result<()> {
        config_file::write(&self.folder, &self.layout, spec)?;
        for node in &self.layout.nodes {
            self.spawn(node, &[])?;
        }
        self.wait_ready_all()
    }

    fn children(&self) -> MutexGuard<'_, HashMap<String, Child>> {
        // Every change of the map is one call: a panic elsewhere leaves it consistent.
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn spawn(&self, node: &Node, environment: &[(&str, &str)]) -> Result<()> {
        let log = config_file::log(&self.folder, node);
        let open = || OpenOptions::new().create(true).append(true).open(&log);
        let (out, err): (File, File) =
            open().and_then(|out| Ok((out, open()?))).map_err(|error| Error::io("open", &log, error))?;
        let mut command = Command::new(&self.layout.server);
        command.arg(config_file::path(&self.folder, node));
        if node.kind == NodeKind::Sentinel {
            command.arg("--sentinel");
        }
        command.current_dir(config_file::folder(&self.folder, node));
        command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(out).stderr(err);
        if self.detached {
            // A Ctrl-C in the terminal is meant for the foreground command, not for the servers.
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| Error::io("run", &self.layout.server, error))?;
        self.children().insert(node.name.clone(), child);
        Ok(())
    }

    /// The error of one of these nodes that ended unexpectedly, if one did. Only child processes of this
    /// process are seen.
    pub(crate) fn ended(&self, nodes: &[&Node]) -> Option<Error> {
        let mut children = self.children();
        let (node, status) = nodes
            .iter()
            .find_map(|node| Some((*node, children.get_mut(&node.name)?.try_wait().ok().flatten()?)))?;
        children.remove(&node.name);
        // If the log cannot be read, the error contains only the exit status.
        let log = fs::read_to_string(config_file::log(&self.folder, node)).unwrap_or_default();
        let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n  ");
        let port_taken = ["Address already in use", "Failed listening on port"];
        let kind = if port_taken.iter().any(|words| tail.contains(words)) {
            Kind::PortInUse { port: node.port }
        } else {
            Kind::Start
        };
        let server = self.layout.server.display();
        Some(Error::new(
            kind,
            format!("{server} ({}) ended with {status}; the end of its log:\n  {tail}", node.name),
        ))
    }

    /// Whether the caller of `up` has cancelled it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// The processes of each node, in the order of [`Local::nodes`].
    pub(crate) fn processes(&self) -> Result<Vec<Vec<Process>>> {
        let configs: Vec<_> =
            self.layout.nodes.iter().map(|node| config_file::path(&self.folder, node)).collect();
        process::find(&self.layout.server, &configs)
    }

    pub(crate) fn processes_of(&self, node: &Node) -> Result<Vec<Process>> {
        let configs = [config_file::path(&self.folder, node)];
        Ok(process::find(&self.layout.server, &configs)?.remove(0))
    }

    /// The value for Forebay's `memory.url`, such as `redis-cluster://127.0.0.1:7000`.
    pub fn url(&self) -> String {
        self.layout.url()
    }

    /// All nodes: primaries first, then replicas, then Sentinels. The roles are those at the start;
    /// [`Local::status`] returns the present ones.
    pub fn nodes(&self) -> &[Node] {
        &self.layout.nodes
    }

    /// The shape of the topology.
    pub fn topology(&self) -> Topology {
        self.layout.topology
    }

    /// The server's program and version: `/usr/bin/redis-server 7.0.15`.
    pub fn server(&self) -> String {
        format!("{} {}", self.layout.server.display(), self.layout.server_version)
    }

    /// The password of the servers' default user.
    pub fn password(&self) -> Option<&str> {
        self.layout.password.as_deref()
    }

    /// The folder of configs, logs (`NODE/server.log`) and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends SIGKILL, and waits until the node has ended. A dead node stays dead.
    pub fn kill(&self, name: &str) -> Result<()> {
        let node = self.layout.find(name)?;
        process::signal(&self.processes_of(node)?, Signal::KILL)?;
        self.wait_gone(std::slice::from_ref(node))
    }

    /// Starts a killed node on its existing data, and waits until it serves. A running node is not changed.
    ///
    /// # Errors
    /// When the node is stopped by a signal: use [`Local::resume_node`].
    pub fn start(&self, name: &str) -> Result<()> {
        self.start_in(name, &[])
    }

    /// As [`Local::start`], with additional environment variables: a library to preload, another clock.
    pub fn start_in(&self, name: &str, environment: &[(&str, &str)]) -> Result<()> {
        let node = self.layout.find(name)?;
        let processes = self.processes_of(node)?;
        if processes.iter().any(|process| process.paused) {
            return Err(Error::new(
                Kind::Node,
                format!("{} is stopped, not dead: let it continue", node.name),
            ));
        }
        if processes.is_empty() {
            self.spawn(node, environment)?;
        }
        self.wait_serving(node)
    }

    /// Sends SIGSTOP: the node keeps its connections and answers nothing, as behind a cut cable. It has
    /// stopped when this returns.
    pub fn pause(&self, name: &str) -> Result<()> {
        self.signal_living(name, Signal::STOP)?;
        // A process that runs on another core stops a little after the signal was sent.
        let node = self.layout.find(name)?;
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while !self.processes_of(node)?.iter().all(|process| process.paused) {
            if Instant::now() > deadline {
                return Err(Error::new(Kind::Node, format!("{} still runs after SIGSTOP", node.name)));
            }
            thread::sleep(POLL_INTERVAL / 10);
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub fn resume_node(&self, name: &str) -> Result<()> {
        self.signal_living(name, Signal::CONT)
    }

    fn signal_living(&self, name: &str, signal: Signal) -> Result<()> {
        let node = self.layout.find(name)?;
        let processes = self.processes_of(node)?;
        if processes.is_empty() {
            return Err(Error::new(Kind::Node, format!("{} does not run: start it", node.name)));
        }
        process::signal(&processes, signal)
    }

    /// Ends all processes and removes everything that `up` created.
    pub fn down(self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&self) -> Result<()> {
        self.end_all()?;
        let remove = |path: &Path, result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
            _ => Ok(()),
        };
        let file = self.folder.join(state::FILE);
        remove(&file, fs::remove_file(&file))?;
        match fs::remove_dir(&self.folder) {
            // Files that `up` did not create are not removed.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            result => remove(&self.folder, result),
        }
    }

    /// Ends all processes and removes the nodes' folders.
    fn end_all(&self) -> Result<()> {
        for processes in self.processes()? {
            process::signal(&processes, Signal::KILL)?;
        }
        self.wait_gone(&self.layout.nodes)?;
        for node in &self.layout.nodes {
            let folder = config_file::folder(&self.folder, node);
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &folder, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn wait_gone(&self, nodes: &[Node]) -> Result<()> {
        let configs: Vec<_> = nodes.iter().map(|node| config_file::path(&self.folder, node)).collect();
        let deadline = Instant::now() + EXIT_TIMEOUT;
        loop {
            let found = process::find(&self.layout.server, &configs)?;
            if let Some(index) = found.iter().position(|processes| !processes.is_empty()) {
                if Instant::now() > deadline {
                    let text = format!("{} was killed and does not end", nodes[index].name);
                    return Err(Error::new(Kind::Timeout, text));
                }
                // A fork that was created between the search and the kill.
                found.iter().try_for_each(|processes| process::signal(processes, Signal::KILL))?;
                thread::sleep(POLL_INTERVAL / 10);
                continue;
            }
            let mut children = self.children();
            for node in nodes {
                if let Some(mut child) = children.remove(&node.name) {
                    // A process that was started a moment ago has no command line yet, so that the search
                    // could not find it.
                    child.kill().map_err(|error| Error::io("end", Path::new(&node.name), error))?;
                    child.wait().map_err(|error| Error::io("wait for", Path::new(&node.name), error))?;
                }
            }
            return Ok(());
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if !self.detached
            && self.folder.exists()
            && let Err(error) = self.take_down()
        {
            say!("{} was not taken down: {error}", self.folder.display());
        }
    }
}

/// Creates the folder if it is missing; it must be empty. Its path is absolute and without links, because
/// processes are found by it.
fn claim_folder(asked: Option<&Path>) -> Result<PathBuf> {
    let path = match asked {
        Some(path) => path.to_owned(),
        None => std::env::temp_dir().join(format!("forebay-topology-{:016x}", rand::random::<u64>())),
    };
    // It will contain data and a password: only its owner may read it.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.map_err(|error| Error::io("create", &path, error))?;
    let path = fs::canonicalize(&path).map_err(|error| Error::io("open", &path, error))?;
    let mut entries = fs::read_dir(&path).map_err(|error| Error::io("read", &path, error))?;
    if path.join(state::FILE).exists() {
        return Err(state::in_use(&path));
    }
    if entries.next().is_some() {
        let text = format!("{} is not empty: name a folder that is empty or not there", path.display());
        return Err(Error::new(Kind::FolderInUse, text));
    }
    Ok(path)
}
