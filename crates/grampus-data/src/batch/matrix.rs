//! Columns of numbers, one value behind the other, to a matrix, one row behind the other.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type,
};
use bytes::Bytes;
use num_traits::NumCast;

use super::columns::{Columns, no_column};
use super::output::{Column, Kind, Output};
use super::room::Room;
use super::step::Step;
use super::values::{BadRows, Values, not_numbers, numbers};
use super::vectors::is_vector;
use crate::{DataError, Place};

/// Columns that are read before they are turned over: half a line of the cache in each row of 32-bit numbers.
const TOGETHER: usize = 8;
/// Rows that are turned over at once: what they take of these columns stays in the cache.
const TILE: usize = 256;
/// Numbers, row behind row.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// What its numbers are.
    pub kind: Kind,
    /// Numbers of a row along each axis.
    pub shape: Vec<usize>,
    /// The numbers.
    pub data: Bytes,
}

impl Matrix {
    /// Bytes of a row.
    pub fn row_size(&self) -> usize {
        self.shape.iter().product::<usize>() * self.kind.size()
    }
}

/// The columns of an output side by side.
pub(super) fn matrix(
    rows: &dyn Columns,
    output: &Output,
    place: &Place,
    bad: &mut BadRows,
) -> Result<Matrix, DataError> {
    let kind = kind_of(rows, output, place)?;
    let mut source = Source {
        rows,
        output,
        kind,
        place,
        bad,
    };
    match kind {
        Kind::F32 => source.matrix::<Float32Type>(),
        Kind::F64 => source.matrix::<Float64Type>(),
        Kind::I8 => source.matrix::<Int8Type>(),
        Kind::I16 => source.matrix::<Int16Type>(),
        Kind::I32 => source.matrix::<Int32Type>(),
        Kind::I64 => source.matrix::<Int64Type>(),
        Kind::U8 | Kind::Bool => source.matrix::<UInt8Type>(),
    }
}

/// The kind that is asked for, or the one that holds the numbers of all columns.
fn kind_of(rows: &dyn Columns, output: &Output, place: &Place) -> Result<Kind, DataError> {
    let schema = rows.schema();
    let mut kind = output.kind;
    for column in &output.columns {
        let field = schema.field_with_name(&column.name);
        let found = field.map_err(|_| no_column(&column.name, rows))?.data_type();
        if is_vector(found) {
            return Err(beside(place, &column.name, "vectors"));
        }
        if output.kind.is_none() {
            let own = match &column.step {
                Some(step) => step.kind(found),
                None => Kind::of(found),
            };
            let own = own.ok_or_else(|| not_numbers(place.clone().column(&column.name), found))?;
            kind = Some(kind.map_or(own, |kind| kind.common(own)));
        }
    }
    Ok(kind.unwrap_or(Kind::F32))
}

struct Source<'a> {
    rows: &'a dyn Columns,
    output: &'a Output,
    kind: Kind,
    place: &'a Place,
    bad: &'a mut BadRows,
}

impl Source<'_> {
    fn matrix<T: ArrowPrimitiveType>(&mut self) -> Result<Matrix, DataError>
    where
        T::Native: NumCast + Send + 'static,
    {
        let kind = self.kind;
        let columns = &self.output.columns;
        if let [only] = columns.as_slice() {
            let mut values = self.values(only, &self.rows.column(&only.name)?)?;
            if self.output.matrix && values.shape.is_empty() {
                values.shape.push(1);
            }
            let numbers = values.array.as_primitive::<T>().values();
            let mut room = Room::<T::Native>::of(numbers.len())?;
            room.numbers().copy_from_slice(numbers);
            return Ok(Matrix {
                kind,
                shape: values.shape,
                data: room.bytes(),
            });
        }
        let width: usize = columns.iter().map(width_beside).sum();
        let mut room = Room::<T::Native>::of(self.rows.rows() * width)?;
        let mut at = 0;
        for some in columns.chunks(TOGETHER) {
            let arrays = some.iter().map(|column| self.rows.column(&column.name));
            let arrays: Vec<ArrayRef> = arrays.collect::<Result<_, _>>()?;
            if let Some(doubles) = self.whole_doubles(some, &arrays) {
                narrow(&doubles, room.numbers(), width, at);
                at += doubles.len();
                continue;
            }
            let values = some.iter().zip(&arrays);
            let values = values.map(|(column, array)| self.values_beside(column, array));
            let values: Vec<Values> = values.collect::<Result<_, _>>()?;
            turn_over::<T>(&values, room.numbers(), width, at);
            at += values.iter().map(Values::width).sum::<usize>();
        }
        Ok(Matrix {
            kind,
            shape: vec![width],
            data: room.bytes(),
        })
    }

    /// The values of columns as they are, if all of them are doubles without gaps that are wanted with single precision: what most
    /// tables hold and most models take. They need no cast of their own.
    fn whole_doubles<'a>(&self, columns: &[Column], arrays: &'a [ArrayRef]) -> Option<Vec<&'a [f64]>> {
        if self.kind != Kind::F32 || columns.iter().any(|column| column.step.is_some()) {
            return None;
        }
        let whole = |array: &'a ArrayRef| {
            let doubles = array.as_primitive_opt::<Float64Type>()?;
            (doubles.null_count() == 0).then(|| &doubles.values()[..])
        };
        arrays.iter().map(whole).collect()
    }

    fn values(&mut self, column: &Column, array: &ArrayRef) -> Result<Values, DataError> {
        let here = self.place.clone().column(&column.name);
        let mut values = match &column.step {
            Some(step) => step.apply(array, self.kind, &here, self.bad)?,
            None => numbers(array, self.kind, &here, self.bad)?,
        };
        if self.kind == Kind::Bool {
            values.array = cast(&values.array, &DataType::UInt8)?;
        }
        Ok(values)
    }

    fn values_beside(&mut self, column: &Column, array: &ArrayRef) -> Result<Values, DataError> {
        let values = self.values(column, array)?;
        match values.width() == width_beside(column) && values.shape.len() <= 1 {
            true if values.shape.is_empty() || is_one_hot(column) => Ok(values),
            _ => Err(beside(self.place, &column.name, "lists")),
        }
    }
}

fn beside(place: &Place, column: &str, what: &str) -> DataError {
    DataError::WrongValue {
        place: place.clone().column(column),
        why: format!(
            "it holds {what}, which do not stand side by side with other columns: give it an output of its own"
        ),
    }
}

fn is_one_hot(column: &Column) -> bool {
    matches!(column.step, Some(Step::OneHot { .. }))
}

/// Numbers of a row of a column that stands beside others.
fn width_beside(column: &Column) -> usize {
    match &column.step {
        Some(Step::OneHot { classes }) => classes.count(),
        _ => 1,
    }
}

/// Puts columns of doubles side by side, rounded to single precision, as [`turn_over`] does.
fn narrow<N: NumCast + Copy>(columns: &[&[f64]], out: &mut [N], width: usize, first: usize) {
    for (tile, room) in out.chunks_mut(TILE * width.max(1)).enumerate() {
        let start = tile * TILE;
        match *columns {
            // Together, they fill whole parts of a line in the cache.
            [a, b, c, d, e, f, g, h] => {
                let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h].map(|column| &column[start..]);
                let halves = a.iter().zip(b).zip(c.iter().zip(d));
                let halves = halves.zip(e.iter().zip(f).zip(g.iter().zip(h)));
                for (row, ((ab, cd), (ef, gh))) in room.chunks_exact_mut(width).zip(halves) {
                    let eight = [ab.0, ab.1, cd.0, cd.1, ef.0, ef.1, gh.0, gh.1];
                    for (place, value) in row[first..first + TOGETHER].iter_mut().zip(eight) {
                        put(place, *value);
                    }
                }
            }
            _ => {
                for (at, column) in columns.iter().enumerate() {
                    for (row, value) in room.chunks_exact_mut(width).zip(&column[start..]) {
                        put(&mut row[first + at], *value);
                    }
                }
            }
        }
    }
}

/// To the kind that is wanted, which holds every double, if not to the last digit.
fn put<N: NumCast>(place: &mut N, value: f64) {
    if let Some(value) = N::from(value) {
        *place = value;
    }
}

/// Puts columns side by side into rows of a width, from a place of each row on.
fn turn_over<T: ArrowPrimitiveType>(columns: &[Values], out: &mut [T::Native], width: usize, first: usize) {
    for (tile, room) in out.chunks_mut(TILE * width.max(1)).enumerate() {
        let (start, rows) = (tile * TILE, room.len() / width);
        let mut at = first;
        for column in columns {
            let own = column.width();
            let values = column.array.as_primitive::<T>().values();
            let values = &values[start * own..(start + rows) * own];
            // A copy of unknown length costs more than the one value that most columns have.
            if own == 1 {
                for (row, value) in room.chunks_exact_mut(width).zip(values) {
                    row[at] = *value;
                }
            } else {
                for (row, list) in room.chunks_exact_mut(width).zip(values.chunks_exact(own)) {
                    row[at..at + own].copy_from_slice(list);
                }
            }
            at += own;
        }
    }
}
