//! Vectors of Spark's ML library, most of whose values may be zero: such rows stay as small as they are until a batch
//! is made.

use std::ops::Range;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeBinaryArray, LargeBinaryBuilder, ListArray, PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, Int8Type, Int32Type};

use super::output::Kind;
use super::values::{BadRows, arrow_type};
use crate::{DataError, Place};

/// The fields of a vector, in their order.
const FIELDS: [&str; 4] = ["type", "size", "indices", "values"];
/// What `type` says, and the first byte of a row here: places and values follow, or all values.
const SPARSE: u8 = 0;
const DENSE: u8 = 1;
/// Bytes of a place.
const PLACE: usize = 4;

/// One vector for each row.
#[derive(Clone, Debug)]
pub struct Vectors {
    /// The column that they are in.
    pub column: String,
    /// What their numbers become.
    pub kind: Kind,
    /// Numbers of a vector: one axis.
    pub shape: Vec<usize>,
    /// Their bytes.
    pub rows: LargeBinaryArray,
}

impl Vectors {
    /// All numbers of a row, zeros included; nothing where its bytes are not those of such a vector. A row that must not be
    /// used has none, and is zero.
    pub fn write(&self, row: usize, room: &mut [u8]) -> Option<()> {
        let size = self.kind.size();
        let Some((form, bytes)) = self.rows.value(row).split_first() else {
            room.fill(0);
            return Some(());
        };
        match (form, bytes) {
            (&DENSE, values) if values.len() == room.len() => room.copy_from_slice(values),
            (&SPARSE, pairs) => {
                room.fill(0);
                for pair in pairs.chunks_exact(PLACE + size) {
                    let (place, value) = pair.split_at(PLACE);
                    let start = u32::from_le_bytes(place.try_into().ok()?) as usize * size;
                    room.get_mut(start..start + size)?.copy_from_slice(value);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// Whether a column holds such vectors.
pub(super) fn is_vector(column: &DataType) -> bool {
    match column {
        DataType::Struct(fields) => fields.iter().map(|field| field.name().as_str()).eq(FIELDS),
        _ => false,
    }
}

/// The vectors of a column; all that are there have one length.
pub(super) fn vectors(
    array: &ArrayRef,
    column: &str,
    kind: Kind,
    place: &Place,
    bad: &mut BadRows,
) -> Result<Vectors, DataError> {
    let given = Given::of(array, kind, place.clone().column(column))?;
    let size = given.bytes.len() + array.len();
    let mut rows = LargeBinaryBuilder::with_capacity(array.len(), size);
    let (mut width, mut bytes) = (None, Vec::new());
    for row in 0..array.len() {
        bytes.clear();
        if let Some(error) = given.flaw(row) {
            bad.push((row, error));
        }
        if let Some(length) = given.length(row) {
            let first = *width.get_or_insert(length);
            if length != first {
                let why =
                    format!("a vector of {length} values, where the first has {first}: give all one length");
                return Err(given.wrong(row, why));
            }
            given.put(row, length, &mut bytes)?;
        }
        rows.append_value(&bytes);
    }
    Ok(Vectors {
        column: column.to_owned(),
        kind,
        shape: vec![width.unwrap_or(0)],
        rows: rows.finish(),
    })
}

/// A column as Spark has it, with the numbers of all vectors as they are wanted.
struct Given {
    there: Option<NullBuffer>,
    kinds: PrimitiveArray<Int8Type>,
    sizes: PrimitiveArray<Int32Type>,
    places: ListArray,
    values: ListArray,
    kind: Kind,
    bytes: Vec<u8>,
    /// Numbers that are missing, or do not fit.
    missing: Option<NullBuffer>,
    place: Place,
}

impl Given {
    fn of(array: &ArrayRef, kind: Kind, place: Place) -> Result<Self, DataError> {
        let given = array.as_struct();
        let list = |item| DataType::List(Field::new_list_field(item, true).into());
        let values = cast(given.column(3), &list(DataType::Float64))?;
        let values = values.as_list::<i32>().clone();
        let safe = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let mut numbers = cast_with_options(values.values(), &arrow_type(kind), &safe)?;
        if kind == Kind::Bool {
            numbers = cast(&numbers, &DataType::UInt8)?;
        }
        let data = numbers.to_data();
        let bytes = match data.buffers() {
            [buffer] => &buffer[data.offset() * kind.size()..][..numbers.len() * kind.size()],
            _ => &[],
        };
        Ok(Self {
            there: given.nulls().cloned(),
            kinds: cast(given.column(0), &DataType::Int8)?.as_primitive().clone(),
            sizes: cast(given.column(1), &DataType::Int32)?.as_primitive().clone(),
            places: cast(given.column(2), &list(DataType::Int32))?.as_list().clone(),
            values,
            kind,
            bytes: bytes.to_vec(),
            missing: numbers.nulls().cloned(),
            place,
        })
    }

    fn wrong(&self, row: usize, why: String) -> DataError {
        let place = self.place.clone().row(row as u64);
        DataError::WrongValue { place, why }
    }

    fn is_sparse(&self, row: usize) -> bool {
        self.kinds.is_valid(row) && self.kinds.value(row) as u8 == SPARSE
    }

    /// Values of a vector, zeros included; nothing where there is none.
    fn length(&self, row: usize) -> Option<usize> {
        let there = self.there.as_ref().is_none_or(|there| there.is_valid(row));
        (there && self.values.is_valid(row)).then(|| match self.is_sparse(row) {
            true => self.sizes.value(row).max(0) as usize,
            false => self.values.value_length(row) as usize,
        })
    }

    /// Why a row cannot be used, if so.
    fn flaw(&self, row: usize) -> Option<DataError> {
        let null = || DataError::Null {
            place: self.place.clone().row(row as u64),
        };
        if self.length(row).is_none() {
            return Some(null());
        }
        let missing = self.missing.as_ref()?;
        let at = range(&self.values, row).find(|&at| missing.is_null(at))?;
        if self.values.values().is_null(at) {
            return Some(null());
        }
        let why = format!("its value does not fit into {:?}: choose another type", self.kind);
        Some(self.wrong(row, why.to_lowercase()))
    }

    /// A vector as it is kept.
    fn put(&self, row: usize, length: usize, out: &mut Vec<u8>) -> Result<(), DataError> {
        let (size, own) = (self.kind.size(), range(&self.values, row));
        let bytes = &self.bytes[own.start * size..own.end * size];
        if !self.is_sparse(row) {
            out.push(DENSE);
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let places = self.places.values().as_primitive::<Int32Type>();
        let places = &places.values()[range(&self.places, row)];
        if places.len() != own.len() || places.iter().any(|&at| at < 0 || at as usize >= length) {
            let why = format!("a sparse vector of {length} values with other places: make it anew");
            return Err(self.wrong(row, why));
        }
        out.push(SPARSE);
        for (at, value) in places.iter().zip(bytes.chunks_exact(size)) {
            out.extend_from_slice(&(*at as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
        Ok(())
    }
}

fn range(lists: &ListArray, row: usize) -> Range<usize> {
    let offsets = lists.value_offsets();
    offsets[row] as usize..offsets[row + 1] as usize
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int8Array, Int32Array, RecordBatch, StructArray};
    use arrow::datatypes::Float64Type;
    use proptest::prelude::*;

    use super::super::{Output, Packed, Stored, pack};
    use super::*;

    /// A vector as Spark has it: whether it is sparse, and all its values.
    pub(crate) type Row = Option<(bool, Vec<Option<f64>>)>;

    pub(crate) fn column(rows: &[Row]) -> ArrayRef {
        let kept = |sparse: &bool, value: &Option<f64>| !*sparse || *value != Some(0.0);
        let kinds = rows
            .iter()
            .map(|row| row.as_ref().map(|(sparse, _)| i8::from(!sparse)));
        let sizes = rows.iter().map(|row| {
            let (sparse, values) = row.as_ref()?;
            sparse.then_some(values.len() as i32)
        });
        let places = rows.iter().map(|row| {
            let (sparse, values) = row.as_ref().filter(|row| row.0)?;
            let found = (0..values.len()).filter(|&at| kept(sparse, &values[at]));
            Some(found.map(|at| Some(at as i32)).collect::<Vec<_>>())
        });
        let values = rows.iter().map(|row| {
            let (sparse, values) = row.as_ref()?;
            Some(
                values
                    .iter()
                    .copied()
                    .filter(|value| kept(sparse, value))
                    .collect::<Vec<_>>(),
            )
        });
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int8Array::from_iter(kinds)),
            Arc::new(Int32Array::from_iter(sizes)),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(places)),
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(values)),
        ];
        let fields = FIELDS.iter().zip(&columns);
        let fields = fields.map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
        let there = NullBuffer::from_iter(rows.iter().map(Option::is_some));
        Arc::new(StructArray::new(fields.collect(), columns, Some(there)))
    }

    fn packed(column: ArrayRef, kind: Option<Kind>, skip: bool) -> Result<Packed, DataError> {
        let table = RecordBatch::try_from_iter([("v", column)]).unwrap();
        pack(&table, &[Output::new(["v"], kind)], &Place::partition(3, 0), skip)
    }

    fn vectors_of(packed: &Packed) -> &Vectors {
        match &packed.outputs[0] {
            Stored::Vectors(vectors) => vectors,
            _ => panic!("vectors are wanted"),
        }
    }

    fn full(vectors: &Vectors, row: usize) -> Vec<f32> {
        let mut room = vec![7; vectors.shape[0] * 4];
        vectors.write(row, &mut room).unwrap();
        let numbers = room.chunks_exact(4);
        numbers
            .map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect()
    }

    proptest! {
        #[test]
        fn a_vector_has_its_values_whether_it_is_sparse_or_not(
            width in 0..9_usize,
            rows in proptest::collection::vec((any::<bool>(), any::<u64>()), 1..40),
            first in 0..40_usize,
        ) {
            // Half of the values are zero.
            let value = |bits: u64, at: usize| f64::from((bits >> (at * 2)) as u8 & 3) * f64::from((bits >> at) as u8 & 1);
            let rows = rows.into_iter().map(|(sparse, bits)| {
                (sparse, (0..width).map(|at| Some(value(bits, at))).collect::<Vec<_>>())
            });
            let rows: Vec<Row> = rows.map(Some).collect();
            // A part of a batch begins in the middle of what its lists share.
            let first = first % rows.len();
            let found = packed(column(&rows).slice(first, rows.len() - first), None, false).unwrap();
            let vectors = vectors_of(&found);
            prop_assert_eq!(found.outputs[0].form(), (Kind::F32, &[width][..]));
            for (row, wanted) in rows[first..].iter().enumerate() {
                let wanted: Vec<f32> = wanted.iter().flat_map(|row| &row.1).map(|value| value.unwrap() as f32).collect();
                prop_assert_eq!(full(vectors, row), wanted);
            }
        }
    }

    #[test]
    fn a_sparse_vector_takes_little() {
        let mut values = vec![Some(0.0); 100_000];
        values[77_777] = Some(2.5);
        let found = packed(column(&[Some((true, values))]), None, false).unwrap();
        let vectors = vectors_of(&found);
        assert_eq!(vectors.rows.value(0).len(), 1 + PLACE + 4);
        assert_eq!(full(vectors, 0)[77_777], 2.5);
    }

    #[test]
    fn rows_that_cannot_be_used_are_named() {
        let whole = || Some((false, vec![Some(1.0), Some(2.0)]));
        let gap = Some((true, vec![None, Some(3.0)]));
        let rows = [whole(), None, gap, whole()];
        let found = packed(column(&rows), None, true).unwrap();
        let bad: Vec<usize> = found.bad.iter().map(|bad| bad.row).collect();
        assert_eq!(bad, [1, 2]);
        assert_eq!(full(vectors_of(&found), 3), [1.0, 2.0]);
        let error = packed(column(&rows), None, false).unwrap_err().to_string();
        assert!(
            error.starts_with("partition 3, row 1, column \"v\" is null"),
            "{error}"
        );
        let large = Some((false, vec![Some(1.0), Some(300.0)]));
        let error = packed(column(&[large]), Some(Kind::I8), false)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("row 0, column \"v\": its value does not fit into i8"),
            "{error}"
        );
    }

    #[test]
    fn vectors_that_make_no_batch_are_refused() {
        let rows = [
            Some((false, vec![Some(1.0); 3])),
            Some((true, vec![Some(1.0); 4])),
        ];
        let error = packed(column(&rows), None, true).unwrap_err().to_string();
        let wanted = "row 1, column \"v\": a vector of 4 values, where the first has 3";
        assert!(error.contains(wanted), "{error}");
        let table = RecordBatch::try_from_iter([
            ("v", column(&rows[..1])),
            ("a", Arc::new(Float64Array::from(vec![1.0])) as ArrayRef),
        ]);
        let output = Output::new(["v", "a"], None);
        let error = pack(&table.unwrap(), &[output], &Place::partition(3, 0), false).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("it holds vectors, which do not stand side by side"),
            "{error}"
        );
        // A place that is not in it.
        let given = column(&[Some((true, vec![Some(0.0), Some(1.0)]))]);
        let given = given.as_struct();
        let mut columns = given.columns().to_vec();
        columns[1] = Arc::new(Int32Array::from(vec![1]));
        let damaged = StructArray::new(given.fields().clone(), columns, None);
        let error = packed(Arc::new(damaged), None, false).unwrap_err().to_string();
        assert!(
            error.contains("row 0, column \"v\": a sparse vector of 1 values with other places"),
            "{error}"
        );
    }
}
