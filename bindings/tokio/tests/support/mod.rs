//! A node with a run directory of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use carina_tokio::{AppName, ByteStream, Error, FlowSpec, Messages, Node, name};
use tempfile::TempDir;

/// A process `carina node`, which is killed when the test ends.
pub(crate) struct TestNode {
    pub directory: TempDir,
    program: PathBuf,
    process: Killed,
}

/// A process that is killed when the test ends, however it ends.
pub(crate) struct Killed(pub Child);

impl Killed {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl TestNode {
    /// Starts a node; `None` when there is no program, and the test is skipped.
    pub(crate) fn start() -> Option<TestNode> {
        let Some(program) = std::env::var_os("CARINA_PROGRAM") else {
            println!("SKIP: CARINA_PROGRAM does not name the program carina; make test sets it");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let program = PathBuf::from(program);
        let process = Self::command(&program, &directory).arg("node").spawn();
        Some(TestNode {
            directory,
            program,
            process: Killed(process.unwrap()),
        })
    }

    fn command(program: &PathBuf, directory: &TempDir) -> Command {
        let mut command = Command::new(program);
        command
            .env("CARINA_RUN", directory.path())
            .env("CARINA_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Ends the node as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts another process of the program, such as an echo server.
    pub(crate) fn carina(&self, arguments: &[&str]) -> Killed {
        let mut command = Self::command(&self.program, &self.directory);
        Killed(command.args(arguments).spawn().unwrap())
    }

    pub(crate) async fn client(&self) -> Node {
        let socket = self.directory.path().join("ipc.sock");
        eventually(async || Node::connect_to(&socket).await).await
    }

    /// The two ends of a flow of SDUs.
    pub(crate) async fn messages(&self) -> (Messages, Messages) {
        let node = self.client().await;
        let mut listener = node.listen(&app("pair"), None).await.unwrap();
        let (caller, called) = (app("caller"), app("pair"));
        let spec = FlowSpec::reliable();
        let (caller, called) = tokio::join!(
            node.allocate(&caller, &called, None, &spec),
            listener.accept()
        );
        (caller.unwrap(), called.unwrap())
    }

    /// The two ends of a byte stream.
    pub(crate) async fn streams(&self) -> (ByteStream, ByteStream) {
        let node = self.client().await;
        let mut listener = node.listen_streams(&app("pair"), None).await.unwrap();
        let (caller, called) = (app("caller"), app("pair"));
        let (caller, called) = tokio::join!(
            node.allocate_stream(&caller, &called, None),
            listener.accept()
        );
        (caller.unwrap(), called.unwrap())
    }
}

pub(crate) fn app(text: &str) -> AppName {
    name(text).unwrap()
}

/// Repeats `call` until it succeeds; panics after [`PATIENCE`].
pub(crate) async fn eventually<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let patience = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(made) => return made,
            Err(error) => assert!(Instant::now() < patience, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The descriptors of this process that are open.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Ends calls that hang; no result depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
