//! A place in a text of rows and fields.

use super::column::LONG_DIGITS;
use super::options::Dialect;

/// What ended a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Field,
    Row,
}

/// A quote that is never closed; where it stands.
#[derive(Debug)]
pub(super) struct Unclosed(pub usize);

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    dialect: Dialect,
    /// Whether a byte ends a run of plain ones.
    special: [bool; 256],
    /// A field that does not stand in the text as it is meant.
    scratch: Vec<u8>,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], dialect: Dialect) -> Self {
        let mut special = [false; 256];
        let marks = [Some(dialect.sep), Some(b'\n'), dialect.escape, dialect.comment];
        for mark in marks.into_iter().flatten() {
            special[usize::from(mark)] = true;
        }
        Self {
            bytes,
            at: 0,
            dialect,
            special,
            scratch: Vec::new(),
        }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// Moves to where the next row begins, over empty lines and remarks; false where there is none.
    pub fn next_row(&mut self) -> bool {
        loop {
            let rest = &self.bytes[self.at..];
            let Some(first) = rest.first().copied() else {
                return false;
            };
            let is_blank = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r') && byte != self.dialect.sep;
            if Some(first) == self.dialect.comment {
                self.end_line();
            } else if first == b'\n' {
                self.at += 1;
            } else if is_blank(first) {
                match rest.iter().position(|byte| !is_blank(*byte)) {
                    Some(length) if rest[length] == b'\n' => self.at += length + 1,
                    Some(_) => return true,
                    None => self.at = self.bytes.len(),
                }
            } else {
                return true;
            }
        }
    }

    pub fn skip_row(&mut self) -> Result<(), Unclosed> {
        while self.field()?.1 == End::Field {}
        Ok(())
    }

    /// The next field as it is meant, and what ended it.
    #[inline]
    pub fn field(&mut self) -> Result<(&[u8], End), Unclosed> {
        let start = self.at;
        if self.dialect.quote.is_some() && self.bytes.get(start).copied() == self.dialect.quote {
            return self.quoted_field();
        }
        let mut at = start;
        while let Some(byte) = self.bytes.get(at)
            && !self.special[usize::from(*byte)]
        {
            at += 1;
        }
        if self.dialect.escape.is_some() && self.bytes.get(at).copied() == self.dialect.escape {
            self.scratch.clear();
            return self.pieced_field(start);
        }
        self.at = at;
        let end = self.pass_end();
        let stop = if end == End::Row {
            without_return(&self.bytes[start..at])
        } else {
            at - start
        };
        Ok((&self.bytes[start..start + stop], end))
    }

    /// Passes what ended a field: a separator, the end of a line, a remark or the end of the text.
    fn pass_end(&mut self) -> End {
        match self.bytes.get(self.at) {
            Some(byte) if *byte == self.dialect.sep => {
                self.at += 1;
                End::Field
            }
            _ => {
                self.end_line();
                End::Row
            }
        }
    }

    fn end_line(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += memchr::memchr(b'\n', rest).map_or(rest.len(), |length| length + 1);
    }

    fn quoted_field(&mut self) -> Result<(&[u8], End), Unclosed> {
        let start = self.at + 1;
        if self.dialect.escape.is_none()
            && let Some(quote) = self.dialect.quote
        {
            // The usual one: up to the next quote, which ends the field.
            let length = memchr::memchr(quote, &self.bytes[start..]).ok_or(Unclosed(self.at))?;
            let behind = start + length + 1;
            let ends = match &self.bytes[behind..] {
                [] | [b'\n', ..] | [b'\r', b'\n', ..] => true,
                [byte, ..] => *byte == self.dialect.sep,
            };
            if ends {
                self.at = behind;
                let end = self.pass_end();
                return Ok((&self.bytes[start..start + length], end));
            }
        }
        self.scratch.clear();
        self.pieced_field(self.at)
    }

    /// A field byte by byte: quotes inside, escapes, text behind a quote. Quotes open only where a field begins, as in pandas.
    fn pieced_field(&mut self, start: usize) -> Result<(&[u8], End), Unclosed> {
        let mut at = start;
        let mut inside = self
            .bytes
            .get(at)
            .is_some_and(|byte| Some(*byte) == self.dialect.quote);
        at += usize::from(inside);
        loop {
            let Some(byte) = self.bytes.get(at).copied() else {
                if inside {
                    return Err(Unclosed(start));
                }
                break;
            };
            let is_quote = Some(byte) == self.dialect.quote;
            if Some(byte) == self.dialect.escape && at + 1 < self.bytes.len() {
                self.scratch.push(self.bytes[at + 1]);
                at += 2;
            } else if inside && is_quote {
                // Two quotes mean one.
                let twice = self.bytes.get(at + 1) == Some(&byte);
                if twice {
                    self.scratch.push(byte);
                }
                inside = twice;
                at += 1 + usize::from(twice);
            } else if !inside && self.special[usize::from(byte)] && Some(byte) != self.dialect.escape {
                break;
            } else {
                self.scratch.push(byte);
                at += 1;
            }
        }
        self.at = at;
        let end = self.pass_end();
        if end == End::Row && self.scratch.last() == Some(&b'\r') && self.bytes[at - 1] == b'\r' {
            self.scratch.pop();
        }
        Ok((&self.scratch, end))
    }

    /// The next field if it is a plain integer, without looking at it twice; else nothing happens.
    #[inline]
    pub fn int(&mut self) -> Option<(i64, End)> {
        let negative = self.bytes.get(self.at) == Some(&b'-');
        let start = self.at + usize::from(negative);
        let (mut at, mut value) = (start, 0u64);
        while let Some(digit) = self.bytes.get(at).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        // 18 digits always fit.
        if at == start || at - start > 18 {
            return None;
        }
        let end = self.plain_end(at)?;
        Some((if negative { -(value as i64) } else { value as i64 }, end))
    }

    /// The next field if it is a plain number, without looking at it twice; else nothing happens.
    #[inline]
    pub fn float(&mut self) -> Option<(f64, End)> {
        let (value, length) = fast_float2::parse_partial::<f64, _>(&self.bytes[self.at..]).ok()?;
        let text = &self.bytes[self.at..self.at + length];
        // What is written as "nan" may stand for no value at all, and an integer may be too long.
        if value.is_nan() || (length >= LONG_DIGITS && !text.contains(&b'.')) {
            return None;
        }
        let end = self.plain_end(self.at + length)?;
        Some((value, end))
    }

    /// Passes the end of a field at `at`, if a field ends there.
    #[inline]
    fn plain_end(&mut self, at: usize) -> Option<End> {
        match self.bytes.get(at) {
            Some(byte) if *byte == self.dialect.sep => {
                self.at = at + 1;
                Some(End::Field)
            }
            Some(b'\n') => {
                self.at = at + 1;
                Some(End::Row)
            }
            Some(b'\r') if self.bytes.get(at + 1) == Some(&b'\n') => {
                self.at = at + 2;
                Some(End::Row)
            }
            None => {
                self.at = at;
                Some(End::Row)
            }
            Some(_) => None,
        }
    }
}

fn without_return(field: &[u8]) -> usize {
    field.len() - usize::from(field.last() == Some(&b'\r'))
}
