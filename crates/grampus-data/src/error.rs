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
    // Errors carry it, and should be small.
    file: Option<Box<str>>,
    row_group: Option<usize>,
    line: Option<u64>,
    /// Rows before those that are counted from 0.
    before: u64,
    row: Option<u64>,
    column: Option<Box<str>>,
}

impl Place {
    /// In a file, or whatever else has a name.
    pub fn file(name: impl Into<String>) -> Self {
        Self {
            file: Some(name.into().into()),
            ..Self::default()
        }
    }

    /// In a partition of a frame, from a row on: where rows come in pieces, those of a piece are counted on.
    ///
    /// ```
    /// use grampus_data::Place;
    /// let place = Place::partition(3, 10_000).row(17).column("age");
    /// assert_eq!(place.to_string(), r#"partition 3, row 10017, column "age""#);
    /// ```
    pub fn partition(number: u64, before: u64) -> Self {
        Self {
            before,
            ..Self::file(format!("partition {number}"))
        }
    }

    /// In a row group of it, counted from 0.
    pub fn row_group(mut self, number: usize) -> Self {
        self.row_group = Some(number);
        self
    }

    /// In a line of its text, counted from 1 as editors do.
    pub fn line(mut self, number: u64) -> Self {
        self.line = Some(number);
        self
    }

    /// In a row, counted from 0 where the file, the partition or the row group begins.
    pub fn row(mut self, number: u64) -> Self {
        self.row = Some(self.before + number);
        self
    }

    /// In a column.
    pub fn column(mut self, name: impl Into<String>) -> Self {
        self.column = Some(name.into().into());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.file.as_ref().map(|name| name.to_string()),
            self.row_group.map(|number| format!("row group {number}")),
            self.line.map(|number| format!("line {number}")),
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
    /// A path that leads nowhere.
    #[error("{path}: there is no such file or folder: check the path, and the folder that it starts from")]
    NoSuchPath {
        /// As it was written.
        path: String,
    },
    /// A pattern that no file matches.
    #[error("{pattern}: no file matches this pattern: check it, and the folder that it starts from")]
    EmptyGlob {
        /// As it was written.
        pattern: String,
    },
    /// A folder without files of the kind that is read.
    #[error("{folder}: no file in or below this folder ends in {}: name the files themselves", extensions.join(" or "))]
    EmptyFolder {
        /// As it was written.
        folder: String,
        /// What was looked for.
        extensions: Vec<String>,
    },
    /// A path that cannot be used at all.
    #[error("{url}: {why}")]
    Url {
        /// As it was written.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Files that do not fit together.
    #[error(
        "{first} and {other} do not have the same columns: {difference}: read them apart, or make them alike"
    )]
    SchemasDiffer {
        /// The file whose columns count.
        first: String,
        /// A file whose columns are others.
        other: String,
        /// Where they differ.
        difference: String,
    },
    /// A row that has more fields than there are columns.
    #[error("{place} has {found} fields of at most {wanted}: quote values that hold the separator")]
    TooManyFields {
        /// The line.
        place: Place,
        /// How many it has.
        found: usize,
        /// How many columns there are.
        wanted: usize,
    },
    /// Options that make no sense.
    #[error("{option}: {why}")]
    Option {
        /// Its name.
        option: String,
        /// What is wrong with it.
        why: String,
    },
    /// An object store that does not do what is asked.
    #[error("{url}: {why}")]
    Store {
        /// What was asked for.
        url: String,
        /// What it said.
        why: String,
    },
    /// A file that cannot be opened or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A table that cannot be made.
    #[error("{0}")]
    Table(#[from] arrow::error::ArrowError),
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
    #[error("{place} is null, and a model needs a value: fill it, or leave such rows out (`skip_bad_rows`)")]
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
    /// Rows that a keeper held, and that are gone with it.
    #[error("the keeper on {host}, which held {}, is lost: {why}", listed(partitions))]
    Lost {
        /// Where it was.
        host: String,
        /// What it held, in order.
        partitions: Vec<u64>,
        /// What happened.
        why: String,
    },
    /// A process that cannot be reached, or says no.
    #[error("{0}")]
    Net(#[from] grampus_net::NetError),
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
    /// A wrong option, by its name.
    pub(crate) fn option(name: &str, why: impl Into<String>) -> Self {
        Self::Option {
            option: name.to_owned(),
            why: why.into(),
        }
    }

    /// What the system said of a file.
    pub(crate) fn io(path: impl Into<String>, source: std::io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            std::io::ErrorKind::NotFound => Self::NoSuchPath { path },
            _ => Self::Io { path, source },
        }
    }

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

/// Some partitions in words; of many only the first.
fn listed(partitions: &[u64]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = partitions.iter().take(SHOWN).map(u64::to_string).collect();
    let more = match partitions.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let many = if partitions.len() == 1 { "" } else { "s" };
    format!("partition{many} {}{more}", shown.join(", "))
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
