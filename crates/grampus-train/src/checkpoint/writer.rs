//! Writing while training goes on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;

use super::error::CheckpointError;
use super::keep::{Keep, Surplus};
use super::store::Store;
use super::tensor::Tensor;

/// A checkpoint to be written.
#[derive(Debug)]
pub struct Order {
    /// Its name in the store.
    pub name: String,
    /// The tensors of each file.
    pub files: Vec<(String, Vec<Tensor>)>,
    /// The caller's own JSON.
    pub meta: Box<RawValue>,
    /// What stays afterwards; all, where nothing is said.
    pub keep: Option<Keep>,
}

/// What a write did.
#[derive(Debug)]
pub struct Written {
    /// The name of the new checkpoint.
    pub name: String,
    /// The old ones that went.
    pub removed: Vec<Surplus>,
}

/// Writes checkpoints in the background, one at a time.
///
/// Whoever lets go of it lets the write go on; a process that ends meanwhile leaves an unfinished checkpoint, which is
/// never taken for a whole one. So wait before the end.
pub struct Writer {
    store: Arc<Store>,
    flight: Option<Flight>,
}

struct Flight {
    name: String,
    outcome: Receiver<Result<Written, CheckpointError>>,
}

impl Writer {
    /// A writer that has nothing to do.
    pub fn new(store: Arc<Store>) -> Self {
        let flight = None;
        Self { store, flight }
    }

    /// Starts a write and returns. If one is under way, waits for its end first, at most `limit`, and returns what it did;
    /// its error is returned likewise, and then the new write has not begun.
    pub fn begin(&mut self, order: Order, limit: Duration) -> Result<Option<Written>, CheckpointError> {
        let before = self.wait(limit)?;
        let (sender, outcome) = sync_channel(1);
        let store = Arc::clone(&self.store);
        let name = order.name.clone();
        let spawned = thread::Builder::new()
            .name("grampus-ckpt".to_owned())
            .spawn(move || {
                // Nobody listens any more: the write counts all the same.
                let _ = sender.send(carry_out(&store, order));
            });
        spawned.map_err(|source| CheckpointError::Io {
            path: self.store.path(&name),
            source,
        })?;
        self.flight = Some(Flight { name, outcome });
        Ok(before)
    }

    /// Waits for the write under way, at most `limit`, and returns what it did; nothing where there was none.
    /// An error is returned once.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<Written>, CheckpointError> {
        let Some(flight) = self.flight.take() else {
            return Ok(None);
        };
        let path = self.store.path(&flight.name);
        match flight.outcome.recv_timeout(limit) {
            Ok(outcome) => outcome.map(Some),
            Err(RecvTimeoutError::Disconnected) => Err(CheckpointError::Lost { path }),
            Err(RecvTimeoutError::Timeout) => {
                self.flight = Some(flight);
                let waited = limit;
                Err(CheckpointError::Late { path, waited })
            }
        }
    }
}

fn carry_out(store: &Store, order: Order) -> Result<Written, CheckpointError> {
    let Order {
        name,
        files,
        meta,
        keep,
    } = order;
    store.write(&name, files, meta)?;
    let removed = match &keep {
        None => Ok(Vec::new()),
        Some(keep) => store.prune(&name, keep),
    };
    match removed {
        Ok(removed) => Ok(Written { name, removed }),
        Err(error) => Err(CheckpointError::Prune {
            written: store.path(&name),
            source: Box::new(error),
        }),
    }
}
