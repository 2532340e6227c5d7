//! A part of a file: whole rows, read by one thread.

use std::ops::Range;

use arrow::array::ArrayRef;

use super::column::{Broken, Column, Kind, Seen};
use super::cursor::{Cursor, End};
use super::missing::Missing;
use super::options::Dialect;
use super::{Input, place_of, unclosed};
use crate::DataError;

/// Fields that short rows may lack, for every byte of a part: a small file must not become a table that fills memory.
const LACKING_PER_BYTE: usize = 8;
const LACKING: usize = 1 << 20;

/// What all parts have in common.
pub(super) struct Plan<'a> {
    pub inputs: &'a [Input],
    pub names: Vec<String>,
    pub dialect: Dialect,
    pub missing: Missing,
    /// Whether numbers can be read without finding the end of their field first.
    pub quick: bool,
    /// How many bytes a row has, about.
    pub row_bytes: usize,
}

/// Where a part stands.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub input: usize,
    pub range: Range<usize>,
}

/// The columns that were asked for, of a part.
pub(super) struct Parsed {
    pub rows: usize,
    /// Nothing where a value did not fit its kind.
    pub columns: Vec<Option<ArrayRef>>,
    /// What else was met, by column.
    pub seen: Vec<Seen>,
}

impl Part {
    /// Reads the columns that have a kind as that kind.
    pub fn parse(&self, plan: &Plan<'_>, kinds: &[Option<Kind>]) -> Result<Parsed, DataError> {
        let input = &plan.inputs[self.input];
        let mut cursor = Cursor::new(&input.bytes[self.range.clone()], plan.dialect);
        // Every field of a row that is not short has a byte at least.
        let expected = self.range.len() / plan.row_bytes.max(kinds.len()).max(1) + 1;
        let mut columns: Vec<Option<Column>> = kinds
            .iter()
            .map(|kind| kind.map(|kind| Column::new(kind, expected)))
            .collect();
        let open = |unclosed_at: usize| unclosed(input, self.range.start + unclosed_at);
        let (mut rows, mut lacking) = (0, 0);
        while cursor.next_row() {
            let row_at = cursor.at();
            let mut end = End::Field;
            for column in &mut columns {
                end = match (column, end) {
                    (Some(column), End::Field) => column
                        .take(&mut cursor, &plan.missing, plan.quick)
                        .map_err(|error| open(error.0))?,
                    (None, End::Field) => cursor.field().map_err(|error| open(error.0))?.1,
                    // A row that is short ends in empty fields.
                    (Some(column), End::Row) => {
                        column.push(b"", &plan.missing);
                        lacking += 1;
                        End::Row
                    }
                    (None, End::Row) => End::Row,
                };
            }
            if end == End::Field {
                return Err(self.too_long(&mut cursor, row_at, plan));
            }
            if lacking > LACKING + LACKING_PER_BYTE * self.range.len() {
                return Err(DataError::Damaged {
                    place: place_of(input, self.range.start + row_at),
                    why: format!("nearly all rows lack most of the {} columns", kinds.len()),
                });
            }
            rows += 1;
        }
        let seen = columns
            .iter()
            .map(|column| column.as_ref().map_or(Seen::default(), Column::seen));
        let seen = seen.collect();
        let finish = |(place, column): (usize, Option<Column>)| match column {
            None => Ok(None),
            Some(column) => column
                .finish(rows)
                .map_err(|broken| self.broken(plan, place, broken)),
        };
        let columns = columns
            .into_iter()
            .enumerate()
            .map(finish)
            .collect::<Result<_, _>>()?;
        Ok(Parsed { rows, columns, seen })
    }

    /// The sorts of values in the first rows.
    pub fn sample(
        &self,
        plan: &Plan<'_>,
        rows: usize,
        seen: &mut [Seen],
    ) -> Result<(usize, usize), DataError> {
        let input = &plan.inputs[self.input];
        let mut cursor = Cursor::new(&input.bytes[self.range.clone()], plan.dialect);
        let mut taken = 0;
        while taken < rows && cursor.next_row() {
            for known in seen.iter_mut() {
                let (field, end) = cursor
                    .field()
                    .map_err(|error| unclosed(input, self.range.start + error.0))?;
                if !plan.missing.holds(field) {
                    *known = known.and(Seen::of(field));
                }
                if end == End::Row {
                    break;
                }
            }
            taken += 1;
        }
        Ok((taken, cursor.at()))
    }

    fn too_long(&self, cursor: &mut Cursor<'_>, row_at: usize, plan: &Plan<'_>) -> DataError {
        let mut found = plan.names.len() + 1;
        while let Ok((_, End::Field)) = cursor.field() {
            found += 1;
        }
        DataError::TooManyFields {
            place: place_of(&plan.inputs[self.input], self.range.start + row_at),
            found,
            wanted: plan.names.len(),
        }
    }

    fn broken(&self, plan: &Plan<'_>, column: usize, broken: Broken) -> DataError {
        let input = &plan.inputs[self.input];
        let (place, why) = match broken {
            Broken::NotText(row) => (
                self.row_place(plan, row),
                "it is no UTF-8: save the file as UTF-8",
            ),
            Broken::TooLong => (
                place_of(input, self.range.start),
                "a field has more than 2 GB: split it",
            ),
        };
        DataError::Damaged {
            place: place.column(&plan.names[column]),
            why: why.to_owned(),
        }
    }

    /// Where a row of this part stands.
    pub fn row_place(&self, plan: &Plan<'_>, row: usize) -> crate::Place {
        let input = &plan.inputs[self.input];
        let mut cursor = Cursor::new(&input.bytes[self.range.clone()], plan.dialect);
        for _ in 0..row {
            cursor.next_row();
            if cursor.skip_row().is_err() {
                break;
            }
        }
        cursor.next_row();
        place_of(input, self.range.start + cursor.at())
    }
}
