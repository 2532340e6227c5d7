//! Files of the same columns, read by row groups.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};

use super::super::partition::{self, Partition};
use super::super::{REQUESTS, Table, indices, make_batch, nullable};
use super::pieces::Pieces;
use super::{footer, unify};
use crate::source::File;
use crate::{DataError, Place, parallel};

/// Rows of a batch: a group that claims more than it holds is found out early.
const BATCH_ROWS: u64 = 1 << 16;

/// Files, of which only the footers have been read. No file is open; any thread may read any row group.
pub struct Dataset {
    /// The columns of the files, and then those of their folders.
    schema: SchemaRef,
    partitions: Vec<Partition>,
    files: Vec<Opened>,
    groups: Vec<RowGroup>,
}

struct Opened {
    file: File,
    metadata: ArrowReaderMetadata,
    size: u64,
    /// Where the columns of the schema stand in this file.
    places: Vec<usize>,
}

/// What is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Which file it is in.
    pub file: usize,
    /// Its number in that file.
    pub index: usize,
    /// How many rows it has.
    pub rows: u64,
    /// How many rows stand before it, in all files.
    pub first_row: u64,
}

impl Dataset {
    /// Reads the footers of all files, in parallel. Their columns must be the same, in any order; numbers and texts may be
    /// stored in different widths. What stands in the names of folders (`year=2024`) is a column too, unless the files
    /// have one of that name.
    pub fn open(files: &[File]) -> Result<Self, DataError> {
        let threads = if files.iter().any(File::is_remote) {
            REQUESTS
        } else {
            parallel::cores()
        };
        let mut files = parallel::map(threads, files, |file| {
            let (metadata, size) = footer::read(file)?;
            Ok(Opened {
                file: file.clone(),
                metadata,
                size,
                places: Vec::new(),
            })
        })?;
        let Some(first) = files.first() else {
            return Err(DataError::option("paths", "there is none: give at least one"));
        };
        let mut own = first.metadata.schema().as_ref().clone();
        for other in &files {
            own = unify::join(&own, other.metadata.schema()).map_err(|difference| {
                DataError::SchemasDiffer {
                    first: first.file.name().to_owned(),
                    other: other.file.name().to_owned(),
                    difference,
                }
            })?;
        }
        let partitions = partition::find(files.iter().map(|opened| &opened.file), |name| {
            own.field_with_name(name).is_ok()
        });
        for opened in &mut files {
            opened.places = unify::places(&own, opened.metadata.schema());
        }
        Ok(Self {
            groups: row_groups(&files),
            schema: nullable(&partition::schema(&own, &partitions)),
            partitions,
            files,
        })
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The row groups of all files, in order.
    pub fn row_groups(&self) -> &[RowGroup] {
        &self.groups
    }

    /// The name of a file.
    pub fn file_name(&self, file: usize) -> &str {
        self.files[file].file.name()
    }

    /// How many rows all files have.
    pub fn num_rows(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.first_row + group.rows)
    }

    /// Where a row group stands.
    pub fn place(&self, group: usize) -> Place {
        let group = self.groups[group];
        Place::file(self.file_name(group.file)).row_group(group.index)
    }

    /// Whether a row group is read over the network.
    pub fn is_remote(&self, group: usize) -> bool {
        self.files[self.groups[group].file].file.is_remote()
    }

    /// Reads row groups, in parallel, into one table: all columns, or these, in this order.
    pub fn read(&self, groups: &[usize], columns: Option<&[String]>) -> Result<Table, DataError> {
        let (schema, indices) = self.project(columns)?;
        let remote = self.files.iter().any(|opened| opened.file.is_remote());
        let threads = if remote { REQUESTS } else { parallel::cores() };
        let batches = parallel::map(threads, groups, |group| self.decode(*group, &schema, &indices))?;
        Table::new(schema, batches.into_iter().flatten().collect())
    }

    /// Reads a row group by its number among all: all columns, or these, in this order.
    pub fn read_group(&self, group: usize, columns: Option<&[String]>) -> Result<Table, DataError> {
        let (schema, indices) = self.project(columns)?;
        Table::new(Arc::clone(&schema), self.decode(group, &schema, &indices)?)
    }

    fn project(&self, columns: Option<&[String]>) -> Result<(SchemaRef, Vec<usize>), DataError> {
        let indices = match columns {
            None => (0..self.schema.fields().len()).collect(),
            Some(columns) => indices(&self.schema, columns)?,
        };
        let schema: Schema = self.schema.project(&indices)?;
        Ok((Arc::new(schema), indices))
    }

    /// The batches of a row group, with these columns, whose schema this is.
    fn decode(
        &self,
        number: usize,
        schema: &SchemaRef,
        columns: &[usize],
    ) -> Result<Vec<RecordBatch>, DataError> {
        let Some(group) = self.groups.get(number) else {
            let why = format!("there is no row group {number}: there are {}", self.groups.len());
            return Err(DataError::option("groups", why));
        };
        let opened = &self.files[group.file];
        let damaged = |why: String| DataError::Damaged {
            place: self.place(number),
            why,
        };
        // What is read stands in the order of the file.
        let places = columns.iter().filter_map(|column| opened.places.get(*column));
        let mut read: Vec<usize> = places.copied().collect();
        read.sort_unstable();
        read.dedup();
        let mask = ProjectionMask::roots(opened.metadata.parquet_schema(), read.iter().copied());
        let pieces = opened.pieces(group.index, &mask)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(pieces, opened.metadata.clone());
        let reader = builder
            .with_row_groups(vec![group.index])
            .with_projection(mask)
            .with_batch_size(group.rows.clamp(1, BATCH_ROWS) as usize)
            .build()
            .map_err(|error| damaged(error.to_string()))?;
        let mut batches = Vec::new();
        let mut found = 0;
        for batch in reader {
            let batch = batch.map_err(|error| damaged(error.to_string()))?;
            let chosen = columns.iter().zip(schema.fields()).map(|(column, field)| {
                let place = opened.places.get(*column);
                match place.and_then(|place| read.binary_search(place).ok()) {
                    Some(place) => cast_to(batch.column(place), field.data_type()),
                    None => self.partition(*column).rows(group.file, batch.num_rows()),
                }
            });
            let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
            found += batch.num_rows();
            batches.push(make_batch(schema, chosen, batch.num_rows())?);
        }
        match found as u64 == group.rows {
            true => Ok(batches),
            false => Err(damaged(format!("it has {found} rows, not {}", group.rows))),
        }
    }

    /// The column of the schema that stands in the names of folders.
    fn partition(&self, column: usize) -> &Partition {
        let own = self.schema.fields().len() - self.partitions.len();
        &self.partitions[column - own]
    }
}

fn cast_to(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    match column.data_type() == wanted {
        true => Ok(Arc::clone(column)),
        false => cast(column, wanted),
    }
}

impl Opened {
    /// The bytes of these columns of a row group.
    fn pieces(&self, group: usize, mask: &ProjectionMask) -> Result<Pieces, DataError> {
        if !self.file.is_remote() {
            let bytes = self.file.bytes()?;
            return Ok(Pieces {
                length: bytes.len() as u64,
                pieces: vec![(0, bytes)],
            });
        }
        let columns = self
            .metadata
            .metadata()
            .row_group(group)
            .columns()
            .iter()
            .enumerate();
        let ranges: Vec<Range<u64>> = columns
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .map(|(_, column)| column.byte_range())
            .map(|(start, length)| start..start + length)
            .collect();
        let bytes = self.file.ranges(&ranges)?;
        Ok(Pieces {
            length: self.size,
            pieces: ranges.iter().map(|range| range.start).zip(bytes).collect(),
        })
    }
}

fn row_groups(files: &[Opened]) -> Vec<RowGroup> {
    let mut groups = Vec::new();
    let mut first_row = 0;
    for (file, opened) in files.iter().enumerate() {
        for (index, group) in opened.metadata.metadata().row_groups().iter().enumerate() {
            let rows = group.num_rows() as u64;
            groups.push(RowGroup {
                file,
                index,
                rows,
                first_row,
            });
            first_row += rows;
        }
    }
    groups
}
