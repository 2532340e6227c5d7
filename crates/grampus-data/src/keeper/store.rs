//! What a keeper holds.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use grampus_net::Memory;
use memmap2::{Mmap, MmapOptions};

use super::layout::Layout;
use super::message::Pick;
use crate::DataError;

/// Bytes that are copied to disk at once.
const PIECE: usize = 1 << 20;

/// Blocks of deposits, in memory up to a limit and then in files that have no names.
pub(super) struct Store {
    state: Mutex<State>,
    limit: u64,
    folder: PathBuf,
}

#[derive(Default)]
struct State {
    deposits: HashMap<u64, Vec<Arc<Block>>>,
    /// Those that are whole.
    whole: HashSet<u64>,
    /// Bytes in memory.
    memory: u64,
}

/// A block in memory, or in a file.
pub(super) struct Block {
    pub layout: Layout,
    bytes: u64,
    place: Where,
    map: OnceLock<Bytes>,
}

enum Where {
    Memory(Memory),
    File(File),
}

impl Block {
    /// What another process of this host can map.
    pub fn memory(&self) -> Option<Memory> {
        match &self.place {
            Where::Memory(memory) => Some(memory.clone()),
            Where::File(_) => None,
        }
    }

    fn map(&self) -> Result<&Bytes, DataError> {
        if let Some(found) = self.map.get() {
            return Ok(found);
        }
        let length = self.layout.length;
        let map = match &self.place {
            Where::Memory(memory) => mapped(memory)?,
            // SAFETY: nobody else has this file, which has no name, and it is not written any more.
            Where::File(file) => unsafe { MmapOptions::new().len(length as usize).map(file) }
                .map_err(|error| DataError::io("rows on disk", error))?,
        };
        Ok(self.map.get_or_init(|| Bytes::from_owner(map)))
    }
}

/// Memory that a peer passed, or that is to be passed.
pub(super) fn mapped(memory: &Memory) -> Result<Mmap, DataError> {
    // SAFETY: the size of such memory is sealed, and so is its content once it was passed.
    unsafe { MmapOptions::new().len(memory.len() as usize).map(&memory.fd()) }
        .map_err(|error| DataError::io("memory of rows", error))
}

impl Store {
    pub fn new(limit: u64, folder: PathBuf) -> Self {
        Self {
            state: Mutex::default(),
            limit,
            folder,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block; where memory is full it goes to disk, which takes time.
    pub fn put(&self, deposit: u64, layout: Layout, memory: Memory) -> Result<(), DataError> {
        let bytes = layout.bytes();
        let fits = {
            let mut state = self.lock();
            let fits = state.memory + bytes <= self.limit;
            state.memory += if fits { bytes } else { 0 };
            fits
        };
        let place = match fits {
            true => Where::Memory(memory),
            false => Where::File(spilled(&layout, &memory, &self.folder)?),
        };
        let block = Block {
            layout,
            bytes,
            place,
            map: OnceLock::new(),
        };
        self.lock()
            .deposits
            .entry(deposit)
            .or_default()
            .push(Arc::new(block));
        Ok(())
    }

    /// All of it has come.
    pub fn done(&self, deposit: u64) {
        let mut state = self.lock();
        // One without rows has no blocks.
        state.deposits.entry(deposit).or_default();
        state.whole.insert(deposit);
    }

    /// Forgets a deposit that was cut off half way.
    pub fn give_up(&self, deposit: u64) {
        let mut state = self.lock();
        if !state.whole.contains(&deposit) {
            state.drop_deposit(deposit);
        }
    }

    /// Of those that are whole, keeps these.
    pub fn keep(&self, deposits: &HashSet<u64>) {
        let mut state = self.lock();
        let others: Vec<u64> = state.whole.difference(deposits).copied().collect();
        for deposit in others {
            state.drop_deposit(deposit);
        }
    }

    /// The blocks of a deposit that is whole.
    pub fn blocks(&self, deposit: u64) -> Option<Vec<Arc<Block>>> {
        let state = self.lock();
        let found = state.deposits.get(&deposit)?;
        state.whole.contains(&deposit).then(|| found.clone())
    }

    /// Rows of blocks, behind each other.
    pub fn rows(&self, picks: &[Pick]) -> Result<Vec<Bytes>, DataError> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for pick in picks {
            let blocks = self.blocks(pick.deposit).unwrap_or_default();
            let Some(block) = blocks.get(pick.block) else {
                return Err(DataError::option("rows", "they are not held here any more"));
            };
            parts.resize(block.layout.parts(), Vec::new());
            block.layout.pick(block.map()?, &pick.rows, &mut parts)?;
        }
        Ok(parts.into_iter().map(Bytes::from).collect())
    }
}

impl State {
    fn drop_deposit(&mut self, deposit: u64) {
        self.whole.remove(&deposit);
        for block in self.deposits.remove(&deposit).unwrap_or_default() {
            if block.memory().is_some() {
                self.memory -= block.bytes;
            }
        }
    }
}

fn spilled(layout: &Layout, memory: &Memory, folder: &Path) -> Result<File, DataError> {
    let shown = || folder.display().to_string();
    let file = tempfile::tempfile_in(folder).map_err(|error| DataError::io(shown(), error))?;
    let write = || -> Result<(), DataError> {
        let full = |error| DataError::io(shown(), error);
        file.set_len(layout.length).map_err(full)?;
        let mut piece = vec![0; PIECE];
        for extent in layout.extents() {
            let mut at = extent.start;
            while at < extent.end {
                let some = &mut piece[..PIECE.min((extent.end - at) as usize)];
                memory.read_at(some, at)?;
                file.write_all_at(some, at).map_err(full)?;
                at += some.len() as u64;
            }
        }
        Ok(())
    };
    write()?;
    Ok(file)
}
