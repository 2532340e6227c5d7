//! Ends of lines that old programs write: a carriage return without a line feed behind it.

use bytes::Bytes;

use super::options::Dialect;

/// The text with a line feed in the place of each carriage return that stands alone outside of quotes, as pandas takes
/// them; of the same length, and not copied where there is none.
pub(super) fn normalize(text: Bytes, dialect: Dialect) -> Bytes {
    let alone = |at: usize| text.get(at + 1) != Some(&b'\n');
    if !memchr::memchr_iter(b'\r', &text).any(alone) {
        return text;
    }
    let mut made = text.to_vec();
    let (mut at, mut begins_field) = (0, true);
    while at < text.len() {
        let byte = text[at];
        let begins = std::mem::replace(&mut begins_field, false);
        if Some(byte) == dialect.escape {
            at += 2;
            continue;
        }
        if begins && Some(byte) == dialect.quote {
            at = past_quotes(&text, at, dialect);
            continue;
        }
        if byte == b'\r' && alone(at) {
            made[at] = b'\n';
        }
        begins_field = byte == dialect.sep || made[at] == b'\n';
        at += 1;
    }
    made.into()
}

/// Behind the quote that closes the one at `open`; two of them mean a letter.
fn past_quotes(text: &[u8], open: usize, dialect: Dialect) -> usize {
    let mut at = open + 1;
    while let Some(byte) = text.get(at) {
        if Some(*byte) == dialect.escape {
            at += 2;
        } else if Some(*byte) != dialect.quote {
            at += 1;
        } else if text.get(at + 1).copied() == dialect.quote {
            at += 2;
        } else {
            return at + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::super::CsvOptions;
    use super::*;

    #[test]
    fn returns_that_stand_alone_end_lines() {
        let dialect = CsvOptions::default().dialect().unwrap();
        for (text, wanted) in [
            ("a,b\r1,2\r", "a,b\n1,2\n"),
            ("a\r\r\n1\r\r\n", "a\n\r\n1\n\r\n"),
            ("a\r\n1\r\n", "a\r\n1\r\n"),
            ("\"x\ry\",\"\"\"\r\"\r1\"\r2", "\"x\ry\",\"\"\"\r\"\n1\"\n2"),
            ("\"open\r", "\"open\r"),
        ] {
            assert_eq!(normalize(text.into(), dialect), wanted);
        }
    }
}
