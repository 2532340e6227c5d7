//! Packs the rows of a partition, and hands them to the keeper of this executor.

use std::io::ErrorKind;
use std::time::Duration;

use arrow::array::RecordBatch;
use grampus_core::JoinString;
use grampus_net::{Frame, Limits, Link, Memory, NetError, connect_to, random_job};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::layout::Layout;
use super::message::{Card, FromKeeper, KEEPER, Receipt, ToKeeper, limits, near};
use super::writer::Writer;
use crate::batch::{Output, pack};
use crate::loader::{Blocks, Stream};
use crate::source::find;
use crate::table::parquet::Dataset;
use crate::{DataError, Place};

/// Rows that are packed at once: what they take stays in the cache until it is written.
const PIECE: usize = 8192;

/// Rows of one partition on their way to a keeper. Dropped before [`Deposit::finish`], nothing of them is kept.
pub struct Deposit {
    partition: u64,
    outputs: Vec<Output>,
    skip: bool,
    writer: Writer,
    way: Way,
}

/// The link to the keeper.
struct Way {
    runtime: Runtime,
    link: Link,
    deposit: u64,
    wait: Duration,
}

impl Deposit {
    /// Finds the keeper with a hidden name; nothing where there is none. Rows that cannot be used are errors, or left out.
    pub fn open(
        join: &JoinString,
        hidden: &str,
        outputs: Vec<Output>,
        partition: u64,
        skip: bool,
        wait: Duration,
    ) -> Result<Option<Self>, DataError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| DataError::io("the feed's thread", error))?;
        // One that has only begun to start answers when it is ready.
        let limits = Limits {
            handshake: wait,
            ..limits(wait)
        };
        let way = near(join, hidden);
        let link = match runtime.block_on(connect_to(KEEPER, &way, "deposit", &limits)) {
            Err(error) if is_absent(&error) => return Ok(None),
            found => found?,
        };
        let deposit = random_job()?.0;
        let way = Way {
            runtime,
            link,
            deposit,
            wait,
        };
        Ok(Some(Self {
            partition,
            outputs,
            skip,
            writer: Writer::new(partition),
            way,
        }))
    }

    /// The next rows of the partition.
    pub fn add(&mut self, rows: &RecordBatch) -> Result<(), DataError> {
        let mut at = 0;
        while at < rows.num_rows() {
            let piece = rows.slice(at, PIECE.min(rows.num_rows() - at));
            at += piece.num_rows();
            let place = Place::partition(self.partition, self.writer.rows);
            let packed = pack(&piece, &self.outputs, &place, self.skip)?;
            self.writer
                .append(&packed, |layout, memory| self.way.put(layout, memory))?;
        }
        Ok(())
    }

    /// Row groups of Parquet files, by their numbers among those of all these files, as the next rows of the partition.
    pub fn add_groups(&mut self, paths: &[String], groups: &[usize]) -> Result<(), DataError> {
        let dataset = Dataset::open(&find(paths, &["parquet", "pq"])?)?;
        let have = dataset.row_groups().len();
        if let Some(group) = groups.iter().find(|&&group| group >= have) {
            let why = format!("there is no row group {group}: there are {have}");
            return Err(DataError::option("row_groups", why));
        }
        let stream = Stream::new(dataset, self.outputs.clone(), self.skip);
        for &group in groups {
            let packed = stream.read(group)?;
            self.writer
                .append(&packed, |layout, memory| self.way.put(layout, memory))?;
        }
        Ok(())
    }

    /// No more rows come: says who holds them.
    pub fn finish(mut self) -> Result<Receipt, DataError> {
        let digest = self
            .writer
            .finish(|layout, memory| self.way.put(layout, memory))?;
        let keeper = self.way.done()?;
        Ok(Receipt {
            partition: self.partition,
            deposit: self.way.deposit,
            rows: self.writer.rows,
            blocks: self.writer.blocks.clone(),
            bad: self.writer.bad,
            bytes: self.writer.bytes,
            digest,
            forms: self.writer.forms().to_vec(),
            keeper,
        })
    }
}

/// Nobody listens, or has gone while one waited.
fn is_absent(error: &NetError) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    match error {
        NetError::Io { source, .. } => {
            matches!(source.kind(), ConnectionRefused | ConnectionReset | NotFound)
        }
        NetError::Closed { .. } => true,
        _ => false,
    }
}

impl Way {
    fn put(&mut self, layout: Layout, memory: Memory) -> Result<(), DataError> {
        let deposit = self.deposit;
        let frame = Frame::message(&ToKeeper::Put { deposit, layout })?.with_memory(memory);
        self.say(frame)
    }

    fn done(&mut self) -> Result<Card, DataError> {
        let deposit = self.deposit;
        self.say(Frame::message(&ToKeeper::Done { deposit })?)?;
        self.answer()
    }

    fn say(&mut self, frame: Frame) -> Result<(), DataError> {
        match self.runtime.block_on(self.link.sender.send(frame)) {
            Ok(()) => Ok(()),
            // A keeper that refuses says why before it closes the link.
            Err(error) => match self.answer() {
                Err(refused @ DataError::Option { .. }) => Err(refused),
                _ => Err(error.into()),
            },
        }
    }

    fn answer(&mut self) -> Result<Card, DataError> {
        let (link, wait) = (&mut self.link, self.wait);
        let heard = self
            .runtime
            .block_on(async { timeout(wait, link.receiver.recv()).await });
        let late = |_| gone(format!("it did not answer within {} s", wait.as_secs_f64()));
        let frame = heard.map_err(late)??;
        let frame = frame.ok_or_else(|| gone("it has ended".to_owned()))?;
        match frame.read()? {
            FromKeeper::Stored(card) => Ok(card),
            FromKeeper::Refused { why } => Err(gone(why)),
            _ => Err(gone("it said something else than was asked".to_owned())),
        }
    }
}

fn gone(why: String) -> DataError {
    DataError::option("the keeper of this executor", why)
}
