//! What can be wrong with data, and where.

use std::fmt;

/// Where in the data something stands.
///
/// ```
/// use grampus_data::Place;
/// let place = Place::file("a.parquet").row_group(3).row(17).column("age");
/// assert_eq!(place.to_string(), r#"a.parquet, row group 3, row 17, column "age""#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    file: Option<String>,
    row_group: Option<usize>,
    row: Option<u64>,
    column: Option<String>,
}

impl Place {
    /// In a file, or whatever else has a name.
    pub fn file(name: impl Into<String>) -> Self {
        Self {
            file: Some(name.into()),
            ..Self::default()
        }
    }

    /// In a row group of it, counted from 0.
    pub fn row_group(mut self, number: usize) -> Self {
        self.row_group = Some(number);
        self
    }

    /// In a row, counted from 0 where the file, or the row group, begins.
    pub fn row(mut self, number: u64) -> Self {
        self.row = Some(number);
        self
    }

    /// In a column.
    pub fn column(mut self, name: impl Into<String>) -> Self {
        self.column = Some(name.into());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.file.clone(),
            self.row_group.map(|number| format!("row group {number}")),
            self.row.map(|number| format!("row {number}")),
            self.column.as_ref().map(|name| format!("column {name:?}")),
        ];
        let known: Vec<String> = parts.into_iter().flatten().collect();
        match known.is_empty() {
            true => to.write_str("the data"),
            false => to.write_str(&known.join(", ")),
        }
    }
}

/// What is wrong with data.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A column that is not there.
    #[error("there is no column {name:?}: {}", hint(nearest, have))]
    NoColumn {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        nearest: Option<String>,
        /// What is there.
        have: Vec<String>,
    },
    /// A column whose values are no numbers.
    #[error("{place} holds {found}, and a model takes numbers: leave it out, or turn it into numbers")]
    NotNumbers {
        /// The column.
        place: Place,
        /// The type of its values.
        found: String,
    },
    /// A row that has no value where a model needs one.
    #[error("{place} is null, and a model needs a value: fill it, or skip such rows (on_error=\"skip\")")]
    Null {
        /// The row and the column.
        place: Place,
    },
    /// A value that is not what it must be.
    #[error("{place}: {why}")]
    WrongValue {
        /// The row and the column.
        place: Place,
        /// What it is and what it must be.
        why: String,
    },
    /// A file that cannot be read.
    #[error("{place} is damaged: {why}")]
    Damaged {
        /// The file.
        place: Place,
        /// What is wrong with it.
        why: String,
    },
}

impl DataError {
    /// A column that is not there, with the one whose name is nearest.
    pub fn no_column<'a>(name: &str, have: impl IntoIterator<Item = &'a String>) -> Self {
        let have: Vec<String> = have.into_iter().cloned().collect();
        // A name that shares less than half of its letters means something else.
        let near = have
            .iter()
            .map(|known| (edits(name, known), known))
            .filter(|(edits, known)| 2 * edits <= known.chars().count().max(name.chars().count()))
            .min_by_key(|(edits, _)| *edits);
        Self::NoColumn {
            name: name.to_owned(),
            nearest: near.map(|(_, known)| known.clone()),
            have,
        }
    }
}

/// How many letters to change, add or leave out.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (number, letter) in from.to_lowercase().chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], number + 1);
        for at in 0..to.len() {
            let replaced = corner + usize::from(letter != to[at]);
            corner = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(corner + 1);
        }
    }
    row[to.len()]
}

fn hint(nearest: &Option<String>, have: &[String]) -> String {
    match nearest {
        Some(name) => format!("do you mean {name:?}?"),
        None if have.is_empty() => "there is none at all".to_owned(),
        None => format!("there are {}", have.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let have = ["age".to_owned(), "income".to_owned()];
        let error = DataError::no_column("incom", &have);
        assert_eq!(
            error.to_string(),
            r#"there is no column "incom": do you mean "income"?"#
        );
        let error = DataError::no_column("label", &have);
        assert_eq!(
            error.to_string(),
            r#"there is no column "label": there are age, income"#
        );
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("Age", "age"), 0);
    }
}
