//! Rows of all keepers, as one table.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use grampus_core::JoinString;
use grampus_net::Link;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::unbounded_channel;

use super::far::{Far, Found, talk, visit, wait_for};
use super::layout::{Layout, unlike};
use super::message::{Card, Pick};
use crate::DataError;
use crate::batch::{Output, Packed};
use crate::loader::Picked;

/// Who holds which rows: all deposits that count, in the order of their rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// All keepers.
    pub keepers: Vec<Card>,
    /// All deposits that have rows.
    pub deposits: Vec<Held>,
}

/// One deposit that counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Its partition.
    pub partition: u64,
    /// Its number.
    pub deposit: u64,
    /// Which of the keepers holds it.
    pub keeper: usize,
    /// Rows of each block, in order.
    pub blocks: Vec<u64>,
}

/// Rows of all keepers. Blocks of keepers on this host are mapped, and stay when the keeper ends; of others, and of what keepers
/// have on disk, only the rows that are wanted are asked for.
pub struct Kept {
    manifest: Manifest,
    outputs: Vec<Output>,
    sizes: Vec<u64>,
    near: Vec<(usize, Arc<Packed>)>,
    /// Blocks that are asked for, by number.
    distant: HashMap<usize, Distant>,
    far: Vec<Far>,
    skip: bool,
    wait: Duration,
    thread: Option<JoinHandle<()>>,
}

/// A block that is not mapped.
struct Distant {
    keeper: usize,
    partition: u64,
    deposit: u64,
    block: usize,
    layout: Layout,
}

/// A block by its number, and the rows that are asked for.
type Asked<'a> = (usize, &'a Distant, Vec<u32>);

type Visits = Vec<(Result<Found, String>, Far)>;

impl Kept {
    /// Connects to all keepers at once. Nobody is waited for longer than `wait`, now and later.
    pub fn open(
        join: &JoinString,
        manifest: Manifest,
        outputs: Vec<Output>,
        skip: bool,
        wait: Duration,
    ) -> Result<Self, DataError> {
        let deposits: Vec<Vec<u64>> = (0..manifest.keepers.len())
            .map(|keeper| manifest.wanted(keeper).map(|held| held.deposit).collect())
            .collect();
        let guests: Vec<(Card, Vec<u64>)> = manifest.keepers.iter().cloned().zip(deposits).collect();
        let (thread, visits) = visit_all(join.clone(), guests, wait)?;
        let mut kept = Self {
            sizes: manifest
                .deposits
                .iter()
                .flat_map(|held| held.blocks.clone())
                .collect(),
            manifest,
            outputs,
            near: Vec::new(),
            distant: HashMap::new(),
            far: Vec::new(),
            skip,
            wait,
            thread: Some(thread),
        };
        let mut found = Vec::new();
        for (keeper, (visit, far)) in visits.into_iter().enumerate() {
            let blocks = visit.map_err(|why| kept.manifest.lost(keeper, |_| true, why))?;
            kept.far.push(far);
            found.push(blocks);
        }
        kept.place(found)?;
        if kept.distant.is_empty() {
            kept.far.clear();
        }
        Ok(kept)
    }

    /// Whether rows have to be asked for, and so waited for.
    pub fn is_far(&self) -> bool {
        !self.distant.is_empty()
    }

    fn place(&mut self, mut found: Vec<Found>) -> Result<(), DataError> {
        let mut number = 0;
        for held in &self.manifest.deposits {
            let Held {
                partition,
                deposit,
                keeper,
                ref blocks,
            } = *held;
            let given = found
                .get_mut(keeper)
                .and_then(|found| found.remove(&deposit))
                .flatten();
            let layouts = given.ok_or_else(|| {
                let why = "it does not hold these rows any more".to_owned();
                self.manifest.lost(keeper, |other| other.deposit == deposit, why)
            })?;
            if !layouts
                .iter()
                .map(|(layout, _)| layout.rows)
                .eq(blocks.iter().copied())
            {
                return Err(unlike("it has other rows than were deposited"));
            }
            for (block, (layout, memory)) in layouts.into_iter().enumerate() {
                match memory {
                    Some(memory) => {
                        let packed = layout.view(&memory, &self.outputs, partition)?;
                        self.near.push((number, Arc::new(packed)));
                    }
                    None => {
                        let distant = Distant {
                            keeper,
                            partition,
                            deposit,
                            block,
                            layout,
                        };
                        self.distant.insert(number, distant);
                    }
                }
                number += 1;
            }
        }
        Ok(())
    }

    /// Asks all keepers that have some of these rows, at once.
    fn fetch(&self, wanted: BTreeMap<usize, Vec<u32>>) -> Result<Vec<(usize, Arc<Packed>)>, DataError> {
        let mut asks: BTreeMap<usize, Vec<Asked<'_>>> = BTreeMap::new();
        for (number, rows) in wanted {
            if let Some(distant) = self.distant.get(&number) {
                asks.entry(distant.keeper)
                    .or_default()
                    .push((number, distant, rows));
            }
        }
        let mut answers = Vec::new();
        for (keeper, asked) in asks {
            let picks = asked.iter().map(|(_, distant, rows)| Pick {
                deposit: distant.deposit,
                block: distant.block,
                rows: rows.clone(),
            });
            let Some(far) = self.far.get(keeper) else { continue };
            answers.push((keeper, far.ask(picks.collect()), asked));
        }
        let mut found = Vec::new();
        for (keeper, answer, asked) in answers {
            let parts = wait_for(&answer, self.wait);
            let mut parts = parts.map_err(|why| self.manifest.lost(keeper, |_| true, why))?;
            for (number, distant, rows) in asked {
                let packed = distant
                    .layout
                    .picked(&rows, &mut parts, &self.outputs, distant.partition)?;
                found.push((number, Arc::new(packed)));
            }
        }
        Ok(found)
    }
}

impl Picked for Kept {
    fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    fn pick(&self, rows: &mut [(usize, u64)]) -> Result<Vec<(usize, Arc<Packed>)>, DataError> {
        let mut blocks = self.near.clone();
        if self.is_far() {
            let mut wanted: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
            for (block, row) in rows.iter_mut().filter(|row| self.distant.contains_key(&row.0)) {
                let asked = wanted.entry(*block).or_default();
                asked.push(*row as u32);
                *row = asked.len() as u64 - 1;
            }
            blocks.extend(self.fetch(wanted)?);
            blocks.sort_unstable_by_key(|block| block.0);
        }
        Ok(blocks)
    }

    fn skips(&self) -> bool {
        self.skip
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The thread ends when nobody asks any more.
        self.far.clear();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Manifest {
    /// Deposits that a keeper holds.
    fn wanted(&self, keeper: usize) -> impl Iterator<Item = &Held> {
        let held = self.deposits.iter();
        held.filter(move |held| held.keeper == keeper)
    }

    fn lost(&self, keeper: usize, which: impl Fn(&Held) -> bool, why: String) -> DataError {
        let partitions = self.wanted(keeper).filter(|held| which(held));
        DataError::Lost {
            host: self
                .keepers
                .get(keeper)
                .map(|card| card.host.clone())
                .unwrap_or_default(),
            partitions: partitions.map(|held| held.partition).collect(),
            why,
        }
    }
}

/// Visits all keepers at once, in a thread that then asks them for rows until nobody wants any.
fn visit_all(
    join: JoinString,
    guests: Vec<(Card, Vec<u64>)>,
    wait: Duration,
) -> Result<(JoinHandle<()>, Visits), DataError> {
    let broken = |error| DataError::io("the reader's thread", error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(broken)?;
    let (tell, told) = mpsc::channel();
    let run = move || {
        runtime.block_on(async move {
            let visits: Vec<_> = guests
                .into_iter()
                .map(|(card, deposits)| {
                    let join = join.clone();
                    tokio::spawn(async move { visit(&join, &card, deposits, wait).await })
                })
                .collect();
            let (mut found, mut talks) = (Visits::new(), Vec::new());
            for visit in visits {
                let visited: Result<(Found, Link), String> =
                    visit.await.unwrap_or_else(|error| Err(error.to_string()));
                let (requests, asked) = unbounded_channel();
                let blocks = visited.map(|(blocks, link)| {
                    talks.push(tokio::spawn(talk(link, asked)));
                    blocks
                });
                found.push((blocks, Far(requests)));
            }
            let _ = tell.send(found);
            for talk in talks {
                let _ = talk.await;
            }
        });
    };
    let thread = std::thread::Builder::new().name("grampus-rows".to_owned());
    let thread = thread.spawn(run).map_err(broken)?;
    // Each visit ends by its own deadline.
    let visits = told
        .recv()
        .map_err(|_| DataError::option("keepers", "the thread that asks them broke down"))?;
    Ok((thread, visits))
}
