//! Tests of links as a whole. Each runs under a deadline of its own.

mod bulk;
mod cancel;
mod codec;
mod crowds;
mod deadlines;
mod hostile;
mod places;
mod refusals;
mod transports;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use grampus_core::{Address, JobId, JobKey, JoinString};
use tempfile::TempDir;

use crate::{Limits, Link, Listener, NetError, connect, memory_pair_with, private_dir};

const JOB: JobId = JobId(7);

fn key() -> JobKey {
    JobKey::from_bytes([5; 32])
}

/// Limits that tests can wait for.
const SHORT: Limits = Limits {
    body: 4 << 20,
    parts: 1 << 20,
    memory: 1 << 40,
    io: Duration::from_millis(300),
    handshake: Duration::from_millis(300),
};

/// Runs a test under a deadline: nothing here may wait for ever.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), test)
            .await
            .expect("the test hangs")
    })
}

/// A listener, the join string that leads to it, and the folder that holds its socket.
struct Server {
    listener: Listener,
    join: JoinString,
    _folder: Option<TempDir>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Unix,
    Hidden,
    Tcp,
}

impl Server {
    async fn start(over: Over, limits: &Limits) -> Self {
        match over {
            Over::Unix => {
                let (folder, path) = socket_path();
                let listener = Listener::unix(&path, JOB, key(), limits).await.unwrap();
                let join = JoinString {
                    job: JOB,
                    key: key(),
                    address: Address::Unix(path),
                };
                Self {
                    listener,
                    join,
                    _folder: Some(folder),
                }
            }
            Over::Hidden => {
                let name = hidden_name();
                let listener = Listener::hidden(&name, JOB, key(), limits).await.unwrap();
                let join = JoinString {
                    job: JOB,
                    key: key(),
                    address: Address::Abstract(name),
                };
                Self {
                    listener,
                    join,
                    _folder: None,
                }
            }
            Over::Tcp => {
                let listener = Listener::tcp("127.0.0.1:0", JOB, key(), limits).await.unwrap();
                let port = listener.local_addr().unwrap().port();
                let address = Address::Tcp {
                    host: "127.0.0.1".into(),
                    port,
                };
                Self {
                    listener,
                    join: JoinString {
                        job: JOB,
                        key: key(),
                        address,
                    },
                    _folder: None,
                }
            }
        }
    }

    async fn answer(&self) -> Result<Link, NetError> {
        self.listener.accept().await?.handshake().await
    }
}

/// A name that no other test has.
fn hidden_name() -> String {
    format!("grampus-test-{}", crate::random_job().unwrap())
}

fn socket_path() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = private_dir(&folder.path().join("private"))
        .unwrap()
        .join("socket");
    (folder, path)
}

/// (dialer's end, listener's end).
async fn pair(over: Over, limits: &Limits) -> (Link, Link) {
    let server = Server::start(over, limits).await;
    let (dialer, listener) = tokio::join!(connect(&server.join, "worker-3", limits), server.answer());
    (dialer.unwrap(), listener.unwrap())
}

/// One pair per transport.
async fn pairs(limits: &Limits) -> Vec<(Link, Link)> {
    vec![
        memory_pair_with("worker-3", "coordinator", limits),
        pair(Over::Unix, limits).await,
        pair(Over::Hidden, limits).await,
        pair(Over::Tcp, limits).await,
    ]
}
