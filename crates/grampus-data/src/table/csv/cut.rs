//! Where a file can be cut: between two rows.

use std::ops::Range;

use super::cursor::{Cursor, Unclosed};
use super::options::Dialect;

/// Cuts rows into parts of about `size` bytes.
pub(super) fn cut(body: &[u8], dialect: Dialect, size: usize) -> Result<Vec<Range<usize>>, Unclosed> {
    let marks = [dialect.quote, dialect.escape];
    let is_plain = marks
        .into_iter()
        .flatten()
        .all(|mark| memchr::memchr(mark, body).is_none());
    let mut cursor = Cursor::new(body, dialect);
    let mut parts = Vec::new();
    let mut start = 0;
    while start < body.len() {
        let target = (start + size).min(body.len());
        let end = if is_plain {
            // Without quotes every end of a line ends a row.
            memchr::memchr(b'\n', &body[target - 1..]).map_or(body.len(), |length| target + length)
        } else {
            // Whether a quote opens or closes only the text before it tells.
            while cursor.at() < target && cursor.next_row() {
                cursor.skip_row()?;
            }
            cursor.at()
        };
        parts.push(start..end);
        start = end;
    }
    Ok(parts)
}

/// Where the first `rows` rows end, and how many there are, if fewer.
pub(super) fn first_rows(body: &[u8], dialect: Dialect, rows: u64) -> Result<(usize, u64), Unclosed> {
    let mut cursor = Cursor::new(body, dialect);
    let mut found = 0;
    while found < rows && cursor.next_row() {
        cursor.skip_row()?;
        found += 1;
    }
    Ok((cursor.at(), found))
}
