//! Tables: columns with names and types, rows in the order of the input.

pub mod csv;
pub mod files;
pub mod ipc;
pub mod json;
pub mod parquet;
mod partition;
mod whole;

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::DataError;

/// Files that are asked for at once where each answer takes its time.
const REQUESTS: usize = 16;

/// Rows in batches, all of one schema.
#[derive(Clone, Debug)]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// A table of these batches; their columns must be those of the schema.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<Self, DataError> {
        let adopt = |batch: RecordBatch| match Arc::ptr_eq(batch.schema_ref(), &schema) {
            true => Ok(batch),
            // What may be null, and remarks, can differ.
            false => make_batch(&schema, batch.columns().to_vec(), batch.num_rows()),
        };
        let batches = batches.into_iter().filter(|batch| batch.num_rows() > 0);
        Ok(Self {
            batches: batches.map(adopt).collect::<Result<_, _>>()?,
            schema,
        })
    }

    /// Names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows, in order; no batch is empty.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// All rows in one batch; a copy where there are several.
    pub fn whole(&self) -> Result<RecordBatch, DataError> {
        match self.batches.as_slice() {
            [only] => Ok(only.clone()),
            several => Ok(concat_batches(&self.schema, several)?),
        }
    }

    /// How many rows there are.
    pub fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The names of the columns.
    pub fn columns(&self) -> Vec<String> {
        self.schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// Some rows, without copying them; fewer where the table ends.
    pub fn slice(&self, start: usize, rows: usize) -> Self {
        let (mut skip, mut left) = (start, rows);
        let mut batches = Vec::new();
        for batch in &self.batches {
            let from = skip.min(batch.num_rows());
            let taken = left.min(batch.num_rows() - from);
            if taken > 0 {
                batches.push(batch.slice(from, taken));
            }
            (skip, left) = (skip - from, left - taken);
        }
        Self {
            schema: Arc::clone(&self.schema),
            batches,
        }
    }

    /// Some columns, in this order.
    pub fn select(&self, columns: &[String]) -> Result<Self, DataError> {
        let indices = indices(&self.schema, columns)?;
        let schema = Arc::new(self.schema.project(&indices)?);
        let project = |batch: &RecordBatch| {
            let columns = indices.iter().map(|index| Arc::clone(batch.column(*index)));
            make_batch(&schema, columns.collect(), batch.num_rows())
        };
        Ok(Self {
            batches: self.batches.iter().map(project).collect::<Result<_, _>>()?,
            schema,
        })
    }

    /// The rows of several tables, one after the other, without copying them.
    pub fn concat(tables: &[Self]) -> Result<Self, DataError> {
        let Some(first) = tables.first() else {
            return Err(DataError::option("tables", "there is none: give at least one"));
        };
        for (number, table) in tables.iter().enumerate() {
            if let Some(difference) = difference(&first.schema, &table.schema) {
                return Err(DataError::SchemasDiffer {
                    first: "table 0".to_owned(),
                    other: format!("table {number}"),
                    difference,
                });
            }
        }
        let batches = tables.iter().flat_map(|table| table.batches.iter().cloned());
        Self::new(nullable(&first.schema), batches.collect())
    }
}

/// Where columns stand.
fn indices(schema: &Schema, columns: &[String]) -> Result<Vec<usize>, DataError> {
    let index = |name: &String| {
        let found = schema.fields().iter().position(|field| field.name() == name);
        let have = || schema.fields().iter().map(|field| field.name());
        found.ok_or_else(|| DataError::no_column(name, have()))
    };
    columns.iter().map(index).collect()
}

/// Says where two schemas differ in names, order or types, if they do.
fn difference(first: &Schema, other: &Schema) -> Option<String> {
    if let Some(difference) = other_names(first, other) {
        return Some(difference);
    }
    let (have, found) = (names(first), names(other));
    if have != found {
        return Some(format!(
            "their order is {} and {}",
            have.join(", "),
            found.join(", ")
        ));
    }
    let mut pairs = first.fields().iter().zip(other.fields());
    let (one, two) = pairs.find(|(one, two)| one.data_type() != two.data_type())?;
    Some(other_types(one, two))
}

/// Says which column only one of two schemas has, if there is one.
fn other_names(first: &Schema, other: &Schema) -> Option<String> {
    let (have, found) = (names(first), names(other));
    if let Some(missing) = have.iter().find(|name| !found.contains(name)) {
        return Some(format!("the second has no column {missing:?}"));
    }
    let more = found.iter().find(|name| !have.contains(name))?;
    Some(format!("only the second has a column {more:?}"))
}

fn names(schema: &Schema) -> Vec<&str> {
    schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect()
}

fn other_types(one: &Field, two: &Field) -> String {
    let (one, two, name) = (one.data_type(), two.data_type(), one.name());
    format!("column {name:?} holds {one} in the first and {two} in the second")
}

/// The same columns, each of which may hold nulls.
fn nullable(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields: Vec<_> = fields
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    Arc::new(Schema::new(fields))
}

fn make_batch(
    schema: &SchemaRef,
    columns: Vec<arrow::array::ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, DataError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
