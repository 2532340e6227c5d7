//! One schema for files whose columns are the same, but stand in another order or are stored in another width.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use super::super::{other_names, other_types};

/// The columns of the first schema, each of a type that holds what both hold; or where they differ.
pub(super) fn join(first: &Schema, other: &Schema) -> Result<Schema, String> {
    if let Some(difference) = other_names(first, other) {
        return Err(difference);
    }
    let places = places(first, other);
    let fields = first.fields().iter().zip(places).map(|(one, place)| {
        let two = other.field(place);
        match widened(one.data_type(), two.data_type()) {
            Some(joined) => Ok(Arc::new(one.as_ref().clone().with_data_type(joined))),
            None => Err(other_types(one, two)),
        }
    });
    Ok(Schema::new(fields.collect::<Result<Vec<_>, _>>()?))
}

/// Where the columns of the first schema stand in another that has all of them.
pub(super) fn places(first: &Schema, other: &Schema) -> Vec<usize> {
    let fields = other.fields();
    let place = |(number, field): (usize, &Arc<Field>)| {
        // Of columns with one name, each is that in its place.
        let same = |other: &Arc<Field>| other.name() == field.name();
        match fields.get(number) {
            Some(other) if same(other) => number,
            _ => fields.iter().position(same).unwrap_or(number),
        }
    };
    first.fields().iter().enumerate().map(place).collect()
}

/// The narrowest type that holds all values of both, where it is of the same sort.
fn widened(one: &DataType, two: &DataType) -> Option<DataType> {
    if one == two || *two == DataType::Null {
        return Some(one.clone());
    }
    if *one == DataType::Null {
        return Some(two.clone());
    }
    if let (Some(one), Some(two)) = (integer(one), integer(two)) {
        return widened_integer(one, two);
    }
    let both = |sort: fn(&DataType) -> bool| sort(one) && sort(two);
    if both(DataType::is_floating) {
        let wide = [one, two].contains(&&DataType::Float64);
        return Some(if wide {
            DataType::Float64
        } else {
            DataType::Float32
        });
    }
    if both(is_text) {
        return Some(DataType::LargeUtf8);
    }
    both(is_binary).then_some(DataType::LargeBinary)
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

/// Whether an integer has a sign, and how many bits it has.
fn integer(kind: &DataType) -> Option<(bool, usize)> {
    let bits = 8 * kind.primitive_width()?;
    kind.is_integer().then(|| (kind.is_signed_integer(), bits))
}

fn widened_integer(one: (bool, usize), two: (bool, usize)) -> Option<DataType> {
    let signed = one.0 || two.0;
    // Beside negative numbers, those without a sign need a bit more.
    let bits = |(own, bits): (bool, usize)| if signed && !own { 2 * bits } else { bits };
    Some(match (signed, bits(one).max(bits(two))) {
        (true, 16) => DataType::Int16,
        (true, 32) => DataType::Int32,
        (true, 64) => DataType::Int64,
        (false, 16) => DataType::UInt16,
        (false, 32) => DataType::UInt32,
        (false, 64) => DataType::UInt64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_type_that_holds_both() {
        use DataType::*;
        for (one, two, wanted) in [
            (Int32, Int64, Some(Int64)),
            (UInt8, Int8, Some(Int16)),
            (UInt32, Int8, Some(Int64)),
            (UInt64, Int64, None),
            (UInt16, UInt64, Some(UInt64)),
            (Float32, Float64, Some(Float64)),
            (Null, Utf8, Some(Utf8)),
            (Utf8, LargeUtf8, Some(LargeUtf8)),
            (BinaryView, Binary, Some(LargeBinary)),
            (Int64, Float64, None),
            (Int64, Utf8, None),
        ] {
            assert_eq!(widened(&one, &two), wanted, "{one} and {two}");
            assert_eq!(widened(&two, &one), wanted, "{two} and {one}");
        }
    }
}
