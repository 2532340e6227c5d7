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
        } else if let (Some(quote), None, None) = (dialect.quote, dialect.escape, dialect.comment) {
            past_quotes(body, dialect.sep, quote, start, target)?
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

/// Where the first row ends that ends at `target` or behind it; a row begins at `start`. It looks at quotes only, as whether one opens
/// or closes only those before it tell.
fn past_quotes(body: &[u8], sep: u8, quote: u8, start: usize, target: usize) -> Result<usize, Unclosed> {
    let find = |byte: u8, from: usize| memchr::memchr(byte, &body[from..]).map(|length| from + length);
    // A quote opens where a field begins; elsewhere it is a letter.
    let opens = |at: usize| at == start || body[at - 1] == sep || body[at - 1] == b'\n';
    let mut outside = start;
    loop {
        let mut open = find(quote, outside);
        while let Some(at) = open.filter(|at| !opens(*at)) {
            open = find(quote, at + 1);
        }
        let plain = outside.max(target - 1)..open.unwrap_or(body.len());
        if let Some(length) = body
            .get(plain.clone())
            .and_then(|plain| memchr::memchr(b'\n', plain))
        {
            return Ok(plain.start + length + 1);
        }
        let Some(open) = open else { return Ok(body.len()) };
        let mut close = find(quote, open + 1).ok_or(Unclosed(open))?;
        // Two quotes mean one.
        while body.get(close + 1) == Some(&quote) {
            close = find(quote, close + 2).ok_or(Unclosed(open))?;
        }
        outside = close + 1;
    }
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
