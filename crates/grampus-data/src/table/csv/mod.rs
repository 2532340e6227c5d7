//! CSV files.

mod column;
mod cursor;
mod cut;
mod layout;
mod line_ends;
mod missing;
mod options;
mod part;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;

use super::partition::{self, Partition};
use super::{Table, difference, make_batch, whole};
use crate::source::File;
use crate::{DataError, Place, parallel};
use column::{Kind, Seen, is_whole};
use cursor::Unclosed;
use layout::Layout;
use missing::Missing;
pub use options::{CsvOptions, Header, Picked, Types};
use part::{Parsed, Part, Plan};

/// How names of such files end, for [`find`](crate::source::find).
pub const EXTENSIONS: &[&str] = &[
    "csv", "csv.gz", "csv.zst", "tsv", "tsv.gz", "tsv.zst", "txt", "txt.gz", "txt.zst",
];

/// What one thread reads at a time: far more than a row, far less than memory.
const PART_BYTES: usize = 8 << 20;
/// Rows that are looked at before all are read, and parts that they come from.
const SAMPLE_ROWS: usize = 64;
const SAMPLE_PARTS: usize = 16;

/// A text and its name.
struct Input {
    name: String,
    bytes: Bytes,
}

/// Reads files with the same columns, one after the other, into one table; those whose names end in `.gz` or `.zst` are
/// decompressed. The type of a column is the narrowest of bool, int64, uint64, float64 and utf8 that holds all its values;
/// integers that need more than 64 bits are an error. What stands in the names of folders (`year=2024`) is a column too, behind
/// those of the files, unless they have one of that name.
pub fn read(files: &[File], options: &CsvOptions) -> Result<Table, DataError> {
    let dialect = options.dialect()?;
    let read = |file: &File| {
        Ok(Input {
            name: file.name().to_owned(),
            bytes: line_ends::normalize(file.text()?, dialect),
        })
    };
    let threads = if files.iter().any(File::is_remote) {
        super::REQUESTS
    } else {
        parallel::cores()
    };
    read_inputs(&parallel::map(threads, files, read)?, files, options, PART_BYTES)
}

/// Reads a text that is in memory; `name` is what errors call it.
///
/// ```
/// use grampus_data::table::csv::{self, CsvOptions};
/// let table = csv::read_bytes("people", "name,age\nAda,36\n".into(), &CsvOptions::default())?;
/// assert_eq!((table.columns(), table.num_rows()), (vec!["name".to_owned(), "age".to_owned()], 1));
/// # Ok::<(), grampus_data::DataError>(())
/// ```
pub fn read_bytes(name: &str, bytes: Bytes, options: &CsvOptions) -> Result<Table, DataError> {
    let input = Input {
        name: name.to_owned(),
        bytes: line_ends::normalize(bytes, options.dialect()?),
    };
    read_inputs(&[input], &[], options, PART_BYTES)
}

/// Writes a table with the names of its columns; nulls are empty fields. The file appears when it is whole.
pub fn write(table: &Table, path: &Path) -> Result<(), DataError> {
    whole::write(path, |file| {
        let mut writer = WriterBuilder::new().with_header(true).build(file);
        // Names stand there even if there are no rows.
        writer.write(&RecordBatch::new_empty(Arc::clone(table.schema())))?;
        table.batches().iter().try_for_each(|batch| writer.write(batch))?;
        Ok(())
    })
}

/// Reads texts, and the columns in the folders of their files, where they have some.
fn read_inputs(
    inputs: &[Input],
    files: &[File],
    options: &CsvOptions,
    part_bytes: usize,
) -> Result<Table, DataError> {
    let dialect = options.dialect()?;
    let Some(first) = inputs.first() else {
        return Err(DataError::option("paths", "there is none: give at least one"));
    };
    let layouts: Vec<Layout> = inputs
        .iter()
        .map(|input| Layout::of(input, options, dialect))
        .collect::<Result<_, _>>()?;
    for (input, layout) in inputs.iter().zip(&layouts) {
        if let Some(difference) = difference(&untyped(&layouts[0].names), &untyped(&layout.names)) {
            return Err(DataError::SchemasDiffer {
                first: first.name.clone(),
                other: input.name.clone(),
                difference,
            });
        }
    }
    let own = &layouts[0].names;
    let partitions = partition::find(files.iter(), |name| own.iter().any(|known| known == name));
    let folders = partitions.iter().map(|partition| partition.field.name());
    let names: Vec<String> = own.iter().chain(folders).cloned().collect();
    let mut picked = layout::picked(&names, options)?;
    let mut declared = declared(&names, &picked, options)?;
    let asked = picked
        .split_off(own.len())
        .into_iter()
        .zip(declared.split_off(own.len()));
    let partitions = partitions_as_asked(partitions, asked, inputs)?;
    let parts = cut_all(inputs, &layouts, options, part_bytes)?;
    let marks = [Some(dialect.sep), dialect.quote, dialect.escape, dialect.comment];
    let missing = Missing::new(&options.na_values, options.keep_default_na);
    let mut plan = Plan {
        inputs,
        names: own.clone(),
        dialect,
        // A mark that can stand in a number ends a field earlier than the number.
        quick: !missing.has_numbers()
            && !marks
                .into_iter()
                .flatten()
                .any(|mark| mark.is_ascii_alphanumeric() || b"+-.".contains(&mark)),
        missing,
        row_bytes: 0,
    };
    let sampled = sample(&mut plan, &parts)?;
    let (own, batches) = read_parts(&plan, &parts, &picked, &declared, sampled)?;
    let schema = Arc::new(partition::schema(&own, &partitions));
    let batches = batches.iter().zip(&parts);
    let batches = batches.map(|(batch, part)| partition::append(&schema, batch, &partitions, part.input));
    Table::new(Arc::clone(&schema), batches.collect::<Result<_, _>>()?)
}

/// The columns of folders that are asked for, with the types that are.
fn partitions_as_asked(
    partitions: Vec<Partition>,
    asked: impl Iterator<Item = (bool, Option<DataType>)>,
    inputs: &[Input],
) -> Result<Vec<Partition>, DataError> {
    let pairs = partitions.into_iter().zip(asked);
    let typed = pairs.filter_map(|(partition, (picked, declared))| {
        let name = partition.field.name().clone();
        picked.then(|| match declared {
            None => Ok(partition),
            Some(declared) => partition.with_type(declared.clone()).map_err(|(file, value)| {
                wrong_value(Place::file(&inputs[file].name), &name, &value, &declared)
            }),
        })
    });
    typed.collect()
}

fn untyped(names: &[String]) -> Schema {
    Schema::new(
        names
            .iter()
            .map(|name| Field::new(name, DataType::Null, true))
            .collect::<Vec<_>>(),
    )
}

/// The types that are asked for; every column that is named must be there.
fn declared(
    names: &[String],
    picked: &[bool],
    options: &CsvOptions,
) -> Result<Vec<Option<DataType>>, DataError> {
    if let Some(Types::Each(types)) = &options.dtype
        && let Some(unknown) = types.keys().find(|name| !names.contains(name))
    {
        return Err(DataError::no_column(unknown, names));
    }
    let columns = names.iter().zip(picked);
    columns
        .map(|(name, picked)| if *picked { options.declared(name) } else { Ok(None) })
        .collect()
}

fn cut_all(
    inputs: &[Input],
    layouts: &[Layout],
    options: &CsvOptions,
    part_bytes: usize,
) -> Result<Vec<Part>, DataError> {
    let dialect = options.dialect()?;
    let mut left = options.nrows;
    let mut parts = Vec::new();
    for (number, (input, layout)) in inputs.iter().zip(layouts).enumerate() {
        let mut body = layout.body.clone();
        let open = |Unclosed(at): Unclosed| unclosed(input, layout.body.start + at);
        if let Some(left) = &mut left {
            let (end, found) = cut::first_rows(&input.bytes[body.clone()], dialect, *left).map_err(open)?;
            *left -= found;
            body.end = body.start + end;
        }
        let ranges = cut::cut(&input.bytes[body.clone()], dialect, part_bytes).map_err(open)?;
        parts.extend(ranges.into_iter().map(|range| Part {
            input: number,
            range: body.start + range.start..body.start + range.end,
        }));
    }
    Ok(parts)
}

/// What the first rows of some parts suggest. It need not be right, only cheap: what does not fit is read again.
fn sample(plan: &mut Plan<'_>, parts: &[Part]) -> Result<Vec<Seen>, DataError> {
    let mut seen = vec![Seen::default(); plan.names.len()];
    let (mut rows, mut bytes) = (0, 0);
    for part in parts.iter().step_by(parts.len().div_ceil(SAMPLE_PARTS).max(1)) {
        let (taken, length) = part.sample(plan, SAMPLE_ROWS, &mut seen)?;
        (rows, bytes) = (rows + taken, bytes + length);
    }
    plan.row_bytes = bytes / rows.max(1);
    Ok(seen)
}

fn read_parts(
    plan: &Plan<'_>,
    parts: &[Part],
    picked: &[bool],
    declared: &[Option<DataType>],
    sampled: Vec<Seen>,
) -> Result<(Schema, Vec<RecordBatch>), DataError> {
    let kind = |place: usize, seen: Seen| match &declared[place] {
        Some(declared) => base(declared),
        None => seen.kind(),
    };
    let kinds = |seen: &[Seen]| -> Vec<Option<Kind>> {
        (0..picked.len())
            .map(|place| picked[place].then(|| kind(place, seen[place])))
            .collect()
    };
    let guessed = kinds(&sampled);
    let parsed = parallel::map(parallel::cores(), parts, |part| part.parse(plan, &guessed))?;
    let seen: Vec<Seen> = (0..picked.len())
        .map(|place| {
            parsed
                .iter()
                .fold(sampled[place], |seen, part| seen.and(part.seen[place]))
        })
        .collect();
    let known = kinds(&seen);
    for place in (0..picked.len()).filter(|place| declared[*place].is_none() && seen[*place].is_long()) {
        let has_it = |(_, parsed): &(&Part, &Parsed)| parsed.seen[place].is_long();
        if let (Some(kind), Some((part, _))) = (known[place], parts.iter().zip(&parsed).find(has_it)) {
            return Err(misfit(plan, part, place, kind, declared));
        }
    }
    let places = (0..picked.len()).filter(|place| picked[*place]);
    let fields: Vec<Field> = places
        .filter_map(|place| Some((place, known[place]?)))
        .map(|(place, kind)| {
            let data_type = declared[place].clone().unwrap_or_else(|| kind.data_type());
            Field::new(&plan.names[place], data_type, true)
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let items: Vec<(&Part, Parsed)> = parts.iter().zip(parsed).collect();
    let batches = parallel::map(parallel::cores(), &items, |(part, parsed)| {
        let columns = complete(plan, part, parsed, &known, declared)?;
        make_batch(&schema, columns, parsed.rows)
    })?;
    Ok((schema.as_ref().clone(), batches))
}

/// Brings the columns of a part to the kinds that all parts together have.
fn complete(
    plan: &Plan<'_>,
    part: &Part,
    parsed: &Parsed,
    known: &[Option<Kind>],
    declared: &[Option<DataType>],
) -> Result<Vec<ArrayRef>, DataError> {
    let fits = |column: &Option<ArrayRef>, kind: Kind| {
        let found = column.as_ref().map(|column| column.data_type());
        found == Some(&kind.data_type()) || (found == Some(&DataType::Int64) && kind == Kind::Float)
    };
    let nulls_only = |column: &Option<ArrayRef>| {
        column
            .as_ref()
            .is_some_and(|column| column.null_count() == column.len())
    };
    let again: Vec<Option<Kind>> = known
        .iter()
        .zip(&parsed.columns)
        .map(|(kind, column)| kind.filter(|kind| !fits(column, *kind) && !nulls_only(column)))
        .collect();
    let read_again = match again.iter().any(Option::is_some) {
        true => Some(part.parse(plan, &again)?),
        false => None,
    };
    let mut columns = Vec::new();
    for (place, kind) in known.iter().enumerate() {
        let Some(kind) = kind else { continue };
        let found = match (&read_again, again[place]) {
            (Some(read), Some(_)) => &read.columns[place],
            _ => &parsed.columns[place],
        };
        let Some(column) = found else {
            return Err(misfit(plan, part, place, *kind, declared));
        };
        let column = match column.null_count() == column.len() {
            true => new_null_array(&kind.data_type(), column.len()),
            false => cast(column, &kind.data_type())?,
        };
        columns.push(match &declared[place] {
            Some(declared) if *declared != kind.data_type() => narrow(plan, part, place, &column, declared)?,
            _ => column,
        });
    }
    Ok(columns)
}

/// The kind that holds all values of a type.
fn base(declared: &DataType) -> Kind {
    match declared {
        DataType::Boolean => Kind::Bool,
        DataType::Float32 | DataType::Float64 => Kind::Float,
        DataType::Utf8 => Kind::Text,
        DataType::UInt64 => Kind::UInt,
        _ => Kind::Int,
    }
}

/// A column as the type that is asked for.
fn narrow(
    plan: &Plan<'_>,
    part: &Part,
    place: usize,
    column: &ArrayRef,
    declared: &DataType,
) -> Result<ArrayRef, DataError> {
    let cast = cast_with_options(
        column,
        declared,
        &CastOptions {
            safe: true,
            ..CastOptions::default()
        },
    )?;
    if cast.null_count() == column.null_count() {
        return Ok(cast);
    }
    let row = (0..cast.len()).find(|row| cast.is_null(*row) && column.is_valid(*row));
    let value = arrow::util::display::array_value_to_string(column, row.unwrap_or(0))?;
    Err(wrong_value(
        part.row_place(plan, row.unwrap_or(0)),
        &plan.names[place],
        &value,
        declared,
    ))
}

/// A value that the type does not hold that was asked for, or that most integers of the column have.
fn misfit(
    plan: &Plan<'_>,
    part: &Part,
    place: usize,
    kind: Kind,
    declared: &[Option<DataType>],
) -> DataError {
    // Read as text, the column shows which one it is.
    let mut kinds = vec![None; plan.names.len()];
    kinds[place] = Some(Kind::Text);
    let text = match part.parse(plan, &kinds) {
        Ok(parsed) => parsed.columns[place].clone(),
        Err(error) => return error,
    };
    let text = text
        .as_ref()
        .and_then(|text| text.as_any().downcast_ref::<arrow::array::StringArray>());
    let found = text.and_then(|text| {
        let fits = |row: usize| {
            let field = text.value(row).as_bytes();
            // Of a column whose type is not asked for, integers alone can be at fault.
            text.is_null(row) || kind.holds(field) || (declared[place].is_none() && !is_whole(field))
        };
        let row = (0..text.len()).find(|row| !fits(*row))?;
        Some((row, text.value(row)))
    });
    let (row, value) = found.unwrap_or_default();
    let at = part.row_place(plan, row);
    match &declared[place] {
        Some(declared) => wrong_value(at, &plan.names[place], value, declared),
        None => DataError::WrongValue {
            place: at.column(&plan.names[place]),
            why: format!(
                "{value} does not fit, with the other integers of the column, into {}: give the column the dtype \
                 float64 or str",
                kind.data_type()
            ),
        },
    }
}

fn wrong_value(place: Place, column: &str, value: &str, wanted: &DataType) -> DataError {
    DataError::WrongValue {
        place: place.column(column),
        why: format!(
            "{value:?} is no {wanted}: give the column another dtype, or name the value in na_values"
        ),
    }
}

/// The line in which a byte stands.
fn place_of(input: &Input, at: usize) -> Place {
    let before = memchr::memchr_iter(b'\n', &input.bytes[..at]).count();
    Place::file(&input.name).line(before as u64 + 1)
}

fn unclosed(input: &Input, at: usize) -> DataError {
    DataError::Damaged {
        place: place_of(input, at),
        why: "a quote that opens in this line is never closed".to_owned(),
    }
}
