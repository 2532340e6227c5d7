//! The values of a column as numbers of one kind, equally many for each row.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;

use super::output::Kind;
use crate::{DataError, Place};

/// Rows that must not be used, and why; a row may be listed more than once.
pub(super) type BadRows = Vec<(usize, DataError)>;

/// Numbers of a column, row behind row.
pub(super) struct Values {
    /// Numbers of a row along each axis.
    pub shape: Vec<usize>,
    pub array: ArrayRef,
}

impl Values {
    /// Numbers of a row.
    pub fn width(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The numbers of a column, and the rows that lack some.
pub(super) fn numbers(
    array: &ArrayRef,
    kind: Kind,
    place: &Place,
    bad: &mut BadRows,
) -> Result<Values, DataError> {
    let (leaf, shape) = flattened(array, place, bad)?;
    fitted(&leaf, shape, kind, place, bad)
}

/// Values as numbers of a kind, and the rows that lack some, or whose numbers are too large for it.
pub(super) fn fitted(
    leaf: &ArrayRef,
    shape: Vec<usize>,
    kind: Kind,
    place: &Place,
    bad: &mut BadRows,
) -> Result<Values, DataError> {
    if Kind::of(leaf.data_type()).is_none() && !leaf.data_type().is_numeric() {
        return Err(not_numbers(place.clone(), leaf.data_type()));
    }
    let safe = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let array = cast_with_options(leaf, &arrow_type(kind), &safe)
        .map_err(|_| not_numbers(place.clone(), leaf.data_type()))?;
    let values = Values { shape, array };
    if let Some(nulls) = values
        .array
        .logical_nulls()
        .filter(|nulls| nulls.null_count() > 0)
    {
        note_missing(&nulls, leaf.as_ref(), values.width(), kind, place, bad);
    }
    Ok(values)
}

fn note_missing(
    nulls: &NullBuffer,
    before: &dyn Array,
    width: usize,
    kind: Kind,
    place: &Place,
    bad: &mut BadRows,
) {
    let mut last = None;
    for at in (0..nulls.len()).filter(|&at| nulls.is_null(at)) {
        let row = at / width;
        // A row of a list is bad once, however much of it is.
        if last == Some(row) {
            continue;
        }
        last = Some(row);
        let here = place.clone().row(row as u64);
        let error = match before.is_null(at) {
            true => DataError::Null { place: here },
            false => DataError::WrongValue {
                place: here,
                why: format!("its value does not fit into {kind:?}: choose another type").to_lowercase(),
            },
        };
        bad.push((row, error));
    }
}

/// A column, or lists within it, whose values are no numbers.
pub(super) fn not_numbers(place: Place, found: &DataType) -> DataError {
    let found = match found {
        found if is_text(found) => "text".to_owned(),
        DataType::Dictionary(_, values) => return not_numbers(place, values),
        other => other.to_string(),
    };
    DataError::NotNumbers { place, found }
}

/// Whether values are text, categories included.
pub(super) fn is_text(values: &DataType) -> bool {
    match values {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// The values within lists, and how many there are along each axis.
pub(super) fn flattened(
    array: &ArrayRef,
    place: &Place,
    bad: &mut BadRows,
) -> Result<(ArrayRef, Vec<usize>), DataError> {
    let (mut leaf, mut shape) = (array.clone(), Vec::new());
    loop {
        // Of lists in lists, so many belong to one row.
        let width = shape.iter().product();
        let Some((values, length)) = unpacked(&leaf, width, place)? else {
            return Ok((leaf, shape));
        };
        if let Some(nulls) = leaf.logical_nulls() {
            for at in (0..leaf.len()).filter(|&at| nulls.is_null(at)) {
                let row = at / width;
                let here = place.clone().row(row as u64);
                bad.push((row, DataError::Null { place: here }));
            }
        }
        shape.push(length);
        leaf = values;
    }
}

/// The values of lists, `width` of which make a row, and their length; nothing where they are no lists.
fn unpacked(array: &ArrayRef, width: usize, place: &Place) -> Result<Option<(ArrayRef, usize)>, DataError> {
    let cut = |values: &ArrayRef, first: usize, end: usize| values.slice(first, end - first);
    Ok(match array.data_type() {
        DataType::FixedSizeList(_, length) => {
            let list = array.as_fixed_size_list();
            let length = *length as usize;
            let first = list.value_offset_at(0);
            Some((cut(list.values(), first, first + array.len() * length), length))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (offsets, rows) = (list.offsets(), array.len());
            let length = common_length(offsets, width, place)?;
            let values = cut(list.values(), offsets[0] as usize, offsets[rows] as usize);
            Some((values, length))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let (offsets, rows) = (list.offsets(), array.len());
            let length = common_length(offsets, width, place)?;
            let values = cut(list.values(), offsets[0] as usize, offsets[rows] as usize);
            Some((values, length))
        }
        _ => None,
    })
}

/// The length of all lists; a missing one has none, and cannot be skipped where it takes no room.
fn common_length<O: Copy + Into<i64>>(
    offsets: &[O],
    width: usize,
    place: &Place,
) -> Result<usize, DataError> {
    let mut lengths = offsets.windows(2).map(|pair| pair[1].into() - pair[0].into());
    let Some(first) = lengths.next() else {
        return Ok(0);
    };
    match lengths.enumerate().find(|(_, length)| *length != first) {
        None => Ok(first as usize),
        Some((before, length)) => Err(DataError::WrongValue {
            place: place.clone().row(((before + 1) / width) as u64),
            why: format!(
                "a list of {length} values, where the first row has {first}: pad them to one length"
            ),
        }),
    }
}

pub(super) fn arrow_type(kind: Kind) -> DataType {
    match kind {
        Kind::F32 => DataType::Float32,
        Kind::F64 => DataType::Float64,
        Kind::I8 => DataType::Int8,
        Kind::I16 => DataType::Int16,
        Kind::I32 => DataType::Int32,
        Kind::I64 => DataType::Int64,
        Kind::U8 => DataType::UInt8,
        Kind::Bool => DataType::Boolean,
    }
}
