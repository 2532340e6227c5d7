//! What is done with the values of a column on their way into a batch.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float32Array, Float64Array, LargeListArray, MutableArrayData, make_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::util::display::array_value_to_string;
use serde::{Deserialize, Serialize};

use super::output::Kind;
use super::values::{BadRows, Values, fitted, flattened, is_text, not_numbers, numbers};
use crate::{DataError, Place};

/// What is done with the values of a column. A value that is missing makes a bad row of its row.
///
/// ```
/// use grampus_data::batch::{Classes, Step};
/// let step: Step = serde_json::from_str(r#"{"one_hot": {"classes": ["Rome", "Oslo"]}}"#)?;
/// let classes = Classes::Texts(vec!["Rome".to_owned(), "Oslo".to_owned()]);
/// assert_eq!(step, Step::OneHot { classes });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Numbers of another kind.
    Cast {
        /// Which.
        kind: Kind,
    },
    /// Each value times a number, and another added.
    Scale {
        /// The factor.
        by: f64,
        /// What is added.
        offset: f64,
    },
    /// Each value less the mean, in standard deviations.
    Normalise {
        /// The mean.
        mean: f64,
        /// The standard deviation, which is not 0.
        std: f64,
    },
    /// For each value as many numbers as there are classes: a 1 at the place of its class, and 0 else.
    OneHot {
        /// The values there are.
        classes: Classes,
    },
    /// Lists of numbers, filled up to one length.
    Pad(Pad),
}

/// How lists come to one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pad {
    /// The length.
    pub length: NonZeroUsize,
    /// What they are filled with, at the end.
    pub value: f64,
    /// Whether longer ones are cut; else they make bad rows.
    pub truncate: bool,
}

/// The values that a column may have, each of which is a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Classes {
    /// The whole numbers from 0 on, so many.
    Count(NonZeroUsize),
    /// These texts.
    Texts(Vec<String>),
    /// These numbers.
    Numbers(Vec<f64>),
}

impl Step {
    /// What the values of such a column become where nobody says otherwise; nothing where it takes no such column.
    pub(super) fn kind(&self, column: &DataType) -> Option<Kind> {
        match self {
            Self::Cast { kind } => Some(*kind),
            Self::Scale { .. } | Self::Normalise { .. } | Self::OneHot { .. } => Some(Kind::F32),
            Self::Pad(_) => Kind::of(column),
        }
    }

    /// The values of a column after the step, as numbers of a kind, and the rows that must not be used.
    pub(super) fn apply(
        &self,
        array: &ArrayRef,
        kind: Kind,
        place: &Place,
        bad: &mut BadRows,
    ) -> Result<Values, DataError> {
        let after = match self {
            Self::Cast { kind } => numbers(array, *kind, place, bad)?,
            Self::Scale { by, offset } => each(array, |value| value * by + offset, place, bad)?,
            Self::Normalise { std: 0.0, .. } => {
                return Err(wrong(
                    place,
                    "std is 0: a column whose values are all equal tells nothing",
                ));
            }
            Self::Normalise { mean, std } => each(array, |value| (value - mean) / std, place, bad)?,
            Self::OneHot { classes } => one_hot(array, classes, place, bad)?,
            Self::Pad(pad) => {
                let filled = pad.filled(array, place, bad)?;
                return fitted(&filled, vec![pad.length.get()], kind, place, bad);
            }
        };
        fitted(&after.array, after.shape, kind, place, bad)
    }
}

fn wrong(place: &Place, why: impl Into<String>) -> DataError {
    DataError::WrongValue {
        place: place.clone(),
        why: why.into(),
    }
}

/// A function of each value, in 64 bits: rounded once, when the batch gets its kind.
fn each(
    array: &ArrayRef,
    function: impl Fn(f64) -> f64,
    place: &Place,
    bad: &mut BadRows,
) -> Result<Values, DataError> {
    let values = numbers(array, Kind::F64, place, bad)?;
    let after: Float64Array = values.array.as_primitive::<Float64Type>().unary(function);
    Ok(Values {
        array: Arc::new(after),
        ..values
    })
}

fn one_hot(
    array: &ArrayRef,
    classes: &Classes,
    place: &Place,
    bad: &mut BadRows,
) -> Result<Values, DataError> {
    let (leaf, mut shape) = flattened(array, place, bad)?;
    let (width, count) = (shape.iter().product::<usize>(), classes.count());
    let nulls = leaf.logical_nulls();
    let mut ones = vec![0_f32; leaf.len() * count];
    for (at, class) in classes.of(&leaf, place)?.into_iter().enumerate() {
        let Some(class) = class else {
            let (row, here) = (at / width, place.clone().row((at / width) as u64));
            bad.push(match nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
                true => (row, DataError::Null { place: here }),
                false => (row, wrong(&here, classes.lack(&leaf, at)?)),
            });
            continue;
        };
        ones[at * count + class] = 1.0;
    }
    shape.push(count);
    Ok(Values {
        shape,
        array: Arc::new(Float32Array::from(ones)),
    })
}

impl Classes {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Count(count) => count.get(),
            Self::Texts(texts) => texts.len(),
            Self::Numbers(numbers) => numbers.len(),
        }
    }

    /// The class of each value; none where it has no class, or is missing.
    fn of(&self, values: &ArrayRef, place: &Place) -> Result<Vec<Option<usize>>, DataError> {
        let text = is_text(values.data_type());
        if let Self::Texts(texts) = self {
            if !text {
                let why = format!("it holds {}, and the classes are texts", values.data_type());
                return Err(wrong(place, why));
            }
            let places: HashMap<&str, usize> = texts.iter().map(String::as_str).zip(0..).collect();
            let values = cast(values, &DataType::LargeUtf8)?;
            let values = values.as_string::<i64>().iter();
            return Ok(values.map(|text| places.get(text?).copied()).collect());
        }
        if text {
            let why = "it holds text: name its classes, such as classes=[\"red\", \"green\"]";
            return Err(wrong(place, why));
        }
        // Rows with missing values are found by whoever asked.
        let values = fitted(values, Vec::from([1]), Kind::F64, place, &mut BadRows::new())?;
        let values = values.array.as_primitive::<Float64Type>().iter();
        Ok(match self {
            Self::Numbers(numbers) => {
                // Zero has two faces, of which the sum is one.
                let bits = |number: f64| (number + 0.0).to_bits();
                let places: HashMap<u64, usize> = numbers.iter().copied().map(bits).zip(0..).collect();
                values.map(|value| places.get(&bits(value?)).copied()).collect()
            }
            _ => {
                let whole = 0.0..self.count() as f64;
                values
                    .map(|value| value.filter(|value| whole.contains(value) && value.fract() == 0.0))
                    .map(|value| value.map(|value| value as usize))
                    .collect()
            }
        })
    }

    /// What is wrong with a value that has no class.
    fn lack(&self, values: &ArrayRef, at: usize) -> Result<String, DataError> {
        let value = array_value_to_string(values, at)?;
        Ok(match self {
            Self::Count(count) => format!(
                "its value {value} is no class: with classes={count} they are whole numbers from 0 to {}",
                count.get() - 1
            ),
            Self::Texts(_) => format!("its value {value:?} is none of the {} classes", self.count()),
            Self::Numbers(_) => format!("its value {value} is none of the {} classes", self.count()),
        })
    }
}

impl Pad {
    /// The values of lists, `length` for each row.
    fn filled(&self, array: &ArrayRef, place: &Place, bad: &mut BadRows) -> Result<ArrayRef, DataError> {
        let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) =
            array.data_type()
        else {
            let why = format!("it holds {}, and only lists are padded", array.data_type());
            return Err(wrong(place, why));
        };
        let filler = self.filler(item.data_type(), place)?;
        let lists = cast(array, &DataType::LargeList(Arc::clone(item)))?;
        let lists: &LargeListArray = lists.as_list();
        let (items, filler) = (lists.values().to_data(), filler.to_data());
        let length = self.length.get();
        let mut filled = MutableArrayData::new(vec![&items, &filler], false, lists.len() * length);
        for row in 0..lists.len() {
            let start = lists.value_offsets()[row] as usize;
            let mut found = lists.value_length(row) as usize;
            let here = || place.clone().row(row as u64);
            if lists.is_null(row) {
                bad.push((row, DataError::Null { place: here() }));
                found = 0;
            } else if found > length && !self.truncate {
                let why = format!(
                    "a list of {found} values, where {length} have room: pad to more, or cut it with truncate=True"
                );
                bad.push((row, wrong(&here(), why)));
            }
            let taken = found.min(length);
            filled.try_extend(0, start, start + taken)?;
            filled.try_extend(1, 0, length - taken)?;
        }
        Ok(make_array(filled.freeze()))
    }

    /// A row of nothing but what lists are filled with.
    fn filler(&self, item: &DataType, place: &Place) -> Result<ArrayRef, DataError> {
        if Kind::of(item).is_none() {
            return Err(not_numbers(place.clone(), item));
        }
        if item.is_nested() {
            return Err(wrong(
                place,
                "it holds lists in lists, and lists of numbers are padded",
            ));
        }
        let row: ArrayRef = Arc::new(Float64Array::from(vec![self.value; self.length.get()]));
        let whole = !item.is_integer() || self.value.fract() == 0.0;
        match cast(&row, item) {
            Ok(filler) if whole && filler.null_count() == 0 => Ok(filler),
            _ => Err(wrong(
                place,
                format!(
                    "it holds {item}, and {} is none: pad with another value",
                    self.value
                ),
            )),
        }
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
