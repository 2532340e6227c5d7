//! The columns of a file, and where its rows begin.

use std::ops::Range;

use super::cursor::{Cursor, End, Unclosed};
use super::options::{CsvOptions, Dialect, Picked};
use super::{Input, place_of};
use crate::DataError;

/// What a file holds besides rows.
pub(super) struct Layout {
    pub names: Vec<String>,
    /// Where its rows stand.
    pub body: Range<usize>,
}

impl Layout {
    pub fn of(input: &Input, options: &CsvOptions, dialect: Dialect) -> Result<Self, DataError> {
        let mark = b"\xef\xbb\xbf";
        let start = if input.bytes.starts_with(mark) {
            mark.len()
        } else {
            0
        };
        let mut cursor = Cursor::new(&input.bytes[start..], dialect);
        let unclosed = |Unclosed(at): Unclosed| super::unclosed(input, start + at);
        let header = options.header_row()?;
        let mut found = Vec::new();
        for row in 0..=header.unwrap_or(0) {
            let is_header = header == Some(row);
            if !cursor.next_row() {
                return match &options.names {
                    Some(names) if !is_header || row == 0 => {
                        Ok(Self::new(names.clone(), input.bytes.len()..input.bytes.len()))
                    }
                    _ => Err(DataError::Damaged {
                        place: crate::Place::file(&input.name),
                        why: format!(
                            "it has {row} rows, and row {row} should name the columns: give header=None or names"
                        ),
                    }),
                };
            }
            if header.is_none() {
                // The first row only says how many columns there are.
                let body = start + cursor.at()..input.bytes.len();
                let count = texts(&mut cursor, input)?.map_err(unclosed)?.len();
                let names = options.names.clone();
                return Ok(Self::new(
                    names.unwrap_or_else(|| (0..count).map(|place| place.to_string()).collect()),
                    body,
                ));
            }
            found = texts(&mut cursor, input)?.map_err(unclosed)?;
        }
        let body = start + cursor.at()..input.bytes.len();
        Ok(Self::new(
            options.names.clone().unwrap_or_else(|| distinct(found)),
            body,
        ))
    }

    fn new(names: Vec<String>, body: Range<usize>) -> Self {
        Self { names, body }
    }
}

/// Which columns to read; all others are passed over.
pub(super) fn picked(have: &[String], options: &CsvOptions) -> Result<Vec<bool>, DataError> {
    let mut picked = vec![options.usecols.is_none(); have.len()];
    match &options.usecols {
        None => {}
        Some(Picked::Places(places)) => {
            for place in places {
                let column = picked.get_mut(*place).ok_or_else(|| {
                    let why = format!(
                        "there is no column {place}: there are {}, counted from 0",
                        have.len()
                    );
                    DataError::option("usecols", why)
                })?;
                *column = true;
            }
        }
        Some(Picked::Names(names)) => {
            for name in names {
                let place = have.iter().position(|known| known == name);
                picked[place.ok_or_else(|| DataError::no_column(name, have))?] = true;
            }
        }
    }
    Ok(picked)
}

/// The fields of a row.
fn texts(cursor: &mut Cursor<'_>, input: &Input) -> Result<Result<Vec<String>, Unclosed>, DataError> {
    let mut fields = Vec::new();
    loop {
        let at = cursor.at();
        let (field, end) = match cursor.field() {
            Ok(found) => found,
            Err(unclosed) => return Ok(Err(unclosed)),
        };
        let text = std::str::from_utf8(field).map_err(|_| DataError::Damaged {
            place: place_of(input, at),
            why: "the name of a column is no UTF-8: save the file as UTF-8".to_owned(),
        })?;
        fields.push(text.to_owned());
        if end == End::Row {
            return Ok(Ok(fields));
        }
    }
}

/// Names that are not there, or twice, as pandas makes them: a number is added, and none that the file has itself.
fn distinct(found: Vec<String>) -> Vec<String> {
    let is_unnamed: Vec<bool> = found.iter().map(String::is_empty).collect();
    let found: Vec<String> = (0..)
        .zip(found)
        .map(|(place, name)| {
            if name.is_empty() {
                format!("Unnamed: {place}")
            } else {
                name
            }
        })
        .collect();
    let mut names: Vec<String> = vec![String::new(); found.len()];
    // Those that the file names come before those that it does not.
    let order = (0..found.len()).filter(|place| !is_unnamed[*place]);
    for place in order.chain((0..found.len()).filter(|place| is_unnamed[*place])) {
        let mut name = found[place].clone();
        let mut number = 0;
        while names.contains(&name) || (number > 0 && found.contains(&name)) {
            number += 1;
            name = format!("{}.{number}", found[place]);
        }
        names[place] = name;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_pandas() {
        for (found, wanted) in [
            ("a,a,a.1", "a,a.2,a.1"),
            ("a,a,a.1,a", "a,a.2,a.1,a.3"),
            ("a.1,a,a", "a.1,a,a.2"),
            (",,Unnamed: 1", "Unnamed: 0,Unnamed: 1.1,Unnamed: 1"),
            ("a,,", "a,Unnamed: 1,Unnamed: 2"),
        ] {
            let found = found.split(',').map(str::to_owned).collect();
            assert_eq!(distinct(found).join(","), wanted);
        }
    }
}
