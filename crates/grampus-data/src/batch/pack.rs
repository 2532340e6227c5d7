//! Columns of a table, one value behind the other, to rows of a batch, one row behind the other.
//!
//! A batch of shuffled rows takes each row from another place. Taken from columns, every value would be a miss of the
//! cache; taken from rows, one or two are. So a block of rows is turned over once, in order, and then read in any order.

use std::sync::Arc;

use arrow::array::{Array, AsArray, LargeBinaryArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::columns::Columns;
use super::matrix::{Matrix, matrix};
use super::output::{Column, Kind, Output};
use super::values::BadRows;
use super::vectors::{Vectors, is_vector, vectors};
use crate::image::{self, Decoder, Limits, Pipeline};
use crate::{DataError, Place};

/// Rows of a block as a model takes them.
#[derive(Clone, Debug)]
pub struct Packed {
    /// How many rows there are.
    pub rows: usize,
    /// Each output of all rows.
    pub outputs: Vec<Stored>,
    /// Rows that must not be used, in order.
    pub bad: Vec<Bad>,
    /// Where they come from.
    pub place: Place,
}

/// One output of all rows of a block.
#[derive(Clone, Debug)]
pub enum Stored {
    /// Numbers, row behind row.
    Numbers(Matrix),
    /// Files of images, which are decoded each time: decoded ones would take many times the memory, and each epoch may
    /// want other parts of them.
    Images(Images),
    /// Vectors that may be sparse, which take their full room in a batch alone.
    Vectors(Vectors),
}

impl Stored {
    /// What the numbers of a batch are, and how many a row has along each axis.
    pub fn form(&self) -> (Kind, &[usize]) {
        match self {
            Self::Numbers(matrix) => (matrix.kind, &matrix.shape),
            Self::Images(images) => (images.kind, &images.shape),
            Self::Vectors(vectors) => (vectors.kind, &vectors.shape),
        }
    }

    /// The column and the rows of what takes as much room as it needs: files of images, and vectors.
    pub(crate) fn loose(&self) -> Option<(&str, &LargeBinaryArray)> {
        match self {
            Self::Numbers(_) => None,
            Self::Images(images) => Some((&images.column, &images.files)),
            Self::Vectors(vectors) => Some((&vectors.column, &vectors.rows)),
        }
    }
}

/// Files of images, one for each row.
#[derive(Clone, Debug)]
pub struct Images {
    /// The column that they are in.
    pub column: String,
    /// What becomes of them.
    pub pipeline: Arc<Pipeline>,
    /// What their numbers become.
    pub kind: Kind,
    /// Numbers of an image along each axis.
    pub shape: Vec<usize>,
    /// Their bytes.
    pub files: LargeBinaryArray,
}

/// A row that must not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Its number in the block.
    pub row: usize,
    /// What is wrong with it.
    pub why: String,
}

/// Turns a block of rows over; `place` is where they come from. A row that has no number where one is needed is an error, or
/// `skip` lists it.
pub fn pack(rows: &dyn Columns, outputs: &[Output], place: &Place, skip: bool) -> Result<Packed, DataError> {
    let mut bad = BadRows::new();
    let mut stored = Vec::with_capacity(outputs.len());
    for output in outputs {
        stored.push(match (&output.images, vector_of(rows, output)) {
            (Some(pipeline), _) => Stored::Images(images(rows, output, pipeline, place, &mut bad)?),
            (None, Some(column)) => {
                let (array, kind) = (rows.column(column)?, output.kind.unwrap_or(Kind::F32));
                Stored::Vectors(vectors(&array, column, kind, place, &mut bad)?)
            }
            (None, None) => Stored::Numbers(matrix(rows, output, place, &mut bad)?),
        });
    }
    bad.sort_by_key(|found| found.0);
    bad.dedup_by_key(|found| found.0);
    if !skip && !bad.is_empty() {
        return Err(bad.swap_remove(0).1);
    }
    let bad = bad.into_iter().map(|(row, error)| Bad {
        row,
        why: error.to_string(),
    });
    Ok(Packed {
        rows: rows.rows(),
        outputs: stored,
        bad: bad.collect(),
        place: place.clone(),
    })
}

/// The one column of an output, where it holds vectors.
fn vector_of<'a>(rows: &dyn Columns, output: &'a Output) -> Option<&'a str> {
    let [Column { name, step: None }] = output.columns.as_slice() else {
        return None;
    };
    let schema = rows.schema();
    let field = schema.field_with_name(name).ok()?;
    is_vector(field.data_type()).then_some(name)
}

fn images(
    rows: &dyn Columns,
    output: &Output,
    pipeline: &Arc<Pipeline>,
    place: &Place,
    bad: &mut BadRows,
) -> Result<Images, DataError> {
    let [Column { name, step: None }] = output.columns.as_slice() else {
        let why = "images come from one column, which has steps of its own: name one";
        return Err(DataError::option("columns", why));
    };
    let array = rows.column(name)?;
    let here = place.clone().column(name);
    let files = cast(&array, &DataType::LargeBinary).map_err(|_| DataError::WrongValue {
        place: here.clone(),
        why: format!("it holds {}, not the bytes of image files", array.data_type()),
    })?;
    let files = files.as_binary::<i64>().clone();
    for row in (0..files.len()).filter(|&row| files.is_null(row)) {
        let place = here.clone().row(row as u64);
        bad.push((row, DataError::Null { place }));
    }
    // Where no step ends in a size of its own, the first image tells it for all; one that tells none is found out later.
    let decoder = Decoder::new(Limits::default());
    let mut first = None;
    let mut unread = None;
    for (row, file) in files.iter().enumerate() {
        match file.map(|file| decoder.size(file)) {
            Some(Ok(size)) => {
                first = Some(size);
                break;
            }
            Some(Err(error)) => unread = unread.or(Some((row, error))),
            None => {}
        }
    }
    let shape = pipeline.output_shape(first).map_err(|error| {
        let (place, error) = match unread {
            Some((row, why)) if first.is_none() => (here.row(row as u64), why),
            _ => (here, error),
        };
        DataError::WrongValue {
            place,
            why: error.to_string(),
        }
    })?;
    Ok(Images {
        column: name.clone(),
        pipeline: Arc::clone(pipeline),
        kind: match pipeline.output().kind {
            image::Kind::F32 => Kind::F32,
            image::Kind::U8 => Kind::U8,
        },
        shape: shape.to_vec(),
        files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        ArrayRef, BooleanArray, Decimal128Array, FixedSizeListArray, Float32Array, Float64Array, Int32Array,
        Int64Array, ListArray, RecordBatch, StringArray,
    };
    use arrow::datatypes::{Field, Float64Type, Int64Type};
    use proptest::prelude::*;

    fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn here() -> Place {
        Place::file("a.parquet").row_group(2)
    }

    fn matrix(packed: &Packed) -> &Matrix {
        match &packed.outputs[0] {
            Stored::Numbers(matrix) => matrix,
            _ => panic!("numbers are wanted"),
        }
    }

    fn floats(packed: &Packed) -> Vec<f32> {
        let numbers = matrix(packed).data.chunks_exact(4);
        numbers
            .map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect()
    }

    fn packed(table: &RecordBatch, columns: &[&str], kind: Option<Kind>) -> Result<Packed, DataError> {
        let output = Output::new(columns.iter().copied(), kind);
        pack(table, &[output], &here(), false)
    }

    #[test]
    fn columns_stand_side_by_side() {
        let table = table(vec![
            ("a", Arc::new(Float64Array::from(vec![1.0, 2.0]))),
            ("b", Arc::new(Int32Array::from(vec![3, 4]))),
            ("c", Arc::new(BooleanArray::from(vec![true, false]))),
        ]);
        let found = packed(&table, &["a", "b", "c"], None).unwrap();
        assert_eq!(found.outputs[0].form(), (Kind::F32, &[3][..]));
        assert_eq!(floats(&found), [1.0, 3.0, 1.0, 2.0, 4.0, 0.0]);
        // No order of the columns loses what is behind the point.
        let turned = packed(&table, &["b", "a"], None).unwrap();
        assert_eq!(floats(&turned), [3.0, 1.0, 4.0, 2.0]);
        let truth = packed(&table, &["c"], None).unwrap();
        assert_eq!(matrix(&truth).data[..], [1, 0]);
        let label = packed(&table, &["b"], None).unwrap();
        assert_eq!(label.outputs[0].form(), (Kind::I64, &[][..]));
        // A matrix stays one with a single column.
        let narrow: Output = serde_json::from_str(r#"{"columns": ["b"], "matrix": true}"#).unwrap();
        let narrow = pack(&table, &[narrow], &here(), false).unwrap();
        assert_eq!(narrow.outputs[0].form(), (Kind::I64, &[1][..]));
        assert_eq!(matrix(&narrow).data, matrix(&label).data);
    }

    #[test]
    fn decimals_are_floats() {
        let exact = |values: Vec<i128>| {
            Decimal128Array::from(values)
                .with_precision_and_scale(10, 2)
                .unwrap()
        };
        let inner = Arc::new(Field::new_list_field(DataType::Decimal128(10, 2), true));
        let lists = FixedSizeListArray::new(inner, 2, Arc::new(exact(vec![125, -50, 0, 1])), None);
        let table = table(vec![
            ("price", Arc::new(exact(vec![1999, -1]))),
            ("both", Arc::new(lists)),
        ]);
        assert_eq!(floats(&packed(&table, &["price"], None).unwrap()), [19.99, -0.01]);
        assert_eq!(
            floats(&packed(&table, &["both"], None).unwrap()),
            [1.25, -0.5, 0.0, 0.01]
        );
    }

    #[test]
    fn lists_of_one_length_are_axes() {
        let fixed = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(
            [[1.0, 2.0], [3.0, 4.0]].map(|row| Some(row.map(Some))),
            2,
        );
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>(
            [[5, 6, 7], [8, 9, 10]].map(|row| Some(row.map(Some))),
        );
        let table = table(vec![("fixed", Arc::new(fixed)), ("list", Arc::new(list))]);
        // A slice begins in the middle of what its lists share.
        let second = table.slice(1, 1);
        let found = packed(&second, &["fixed"], None).unwrap();
        assert_eq!(matrix(&found).shape, [2]);
        assert_eq!(floats(&found), [3.0, 4.0]);
        let found = packed(&second, &["list"], Some(Kind::F32)).unwrap();
        assert_eq!(floats(&found), [8.0, 9.0, 10.0]);
        let error = packed(&table, &["fixed", "list"], None).unwrap_err();
        assert!(error.to_string().contains("an output of its own"), "{error}");
    }

    #[test]
    fn lists_of_several_lengths_are_refused() {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)]), Some(vec![])]);
        let error = packed(&table(vec![("words", Arc::new(list))]), &["words"], None).unwrap_err();
        let wanted =
            "a.parquet, row group 2, row 1, column \"words\": a list of 0 values, where the first row has 1";
        assert!(error.to_string().starts_with(wanted), "{error}");
    }

    #[test]
    fn what_is_no_number_is_named() {
        let table = table(vec![
            ("age", Arc::new(Int64Array::from(vec![Some(1), None, None]))),
            ("name", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
            ("large", Arc::new(Int64Array::from(vec![1, 300, 2]))),
        ]);
        let error = |columns: &[&str], kind| packed(&table, columns, kind).unwrap_err().to_string();
        assert!(error(&["age"], None).starts_with("a.parquet, row group 2, row 1, column \"age\" is null"));
        assert!(error(&["name"], None).contains("column \"name\" holds text"));
        assert!(
            error(&["large"], Some(Kind::I8))
                .contains("row 1, column \"large\": its value does not fit into i8")
        );
        assert!(error(&["aged"], None).contains("do you mean \"age\"?"));
    }

    #[test]
    fn bad_rows_are_listed_where_they_may_be_skipped() {
        let table = table(vec![
            ("a", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
            ("b", Arc::new(Int64Array::from(vec![None, None, Some(3)]))),
        ]);
        let outputs = [Output::new(["a"], None), Output::new(["b"], None)];
        let found = pack(&table, &outputs, &here(), true).unwrap();
        let rows: Vec<usize> = found.bad.iter().map(|bad| bad.row).collect();
        assert_eq!(rows, [0, 1]);
        assert!(found.bad[0].why.contains("column \"b\" is null"));
    }

    #[test]
    fn a_gap_among_many_doubles_is_named() {
        let whole: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
        let gap: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(3.0)]));
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "9", "k"];
        let columns = names.map(|name| (name, if name == "9" { gap.clone() } else { whole.clone() }));
        let error = packed(&table(columns.to_vec()), &names, None).unwrap_err();
        assert!(
            error.to_string().contains("row 1, column \"9\" is null"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn every_value_comes_to_its_place(rows in 0..600_usize, width in 2..20_usize, single in 0..40_usize) {
            let values = |at: usize| (0..rows).map(move |row| row * width + at);
            let column = |at: usize| -> ArrayRef {
                match at == single {
                    // One that is no double has its neighbours go another way.
                    true => Arc::new(values(at).map(|value| value as f32).collect::<Float32Array>()),
                    false => Arc::new(values(at).map(|value| value as f64).collect::<Float64Array>()),
                }
            };
            let names: Vec<String> = (0..width).map(|at| at.to_string()).collect();
            let columns = names.iter().enumerate().map(|(at, name)| (name.as_str(), column(at)));
            let table = RecordBatch::try_from_iter(columns).unwrap();
            let found = pack(&table, &[Output::new(names.clone(), None)], &here(), false).unwrap();
            let wanted: Vec<f32> = (0..rows * width).map(|number| number as f32).collect();
            prop_assert_eq!(floats(&found), wanted);
        }
    }
}
