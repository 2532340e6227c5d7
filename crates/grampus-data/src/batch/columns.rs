//! Where the columns of a block come from.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;

use crate::DataError;

/// Columns of a block of rows. Each is read when it is asked for, so that not all of them take memory at once.
pub trait Columns {
    /// How many rows there are.
    fn rows(&self) -> usize;

    /// The names and types of the columns.
    fn schema(&self) -> SchemaRef;

    /// A column by its name.
    fn column(&self, name: &str) -> Result<ArrayRef, DataError>;
}

impl Columns for RecordBatch {
    fn rows(&self) -> usize {
        self.num_rows()
    }

    fn schema(&self) -> SchemaRef {
        Self::schema(self)
    }

    fn column(&self, name: &str) -> Result<ArrayRef, DataError> {
        let found = self.column_by_name(name).cloned();
        found.ok_or_else(|| no_column(name, self))
    }
}

/// An error that names what is there.
pub(super) fn no_column(name: &str, among: &dyn Columns) -> DataError {
    DataError::no_column(name, among.schema().fields().iter().map(|field| field.name()))
}
