//! Which buffers of one call may share memory.

use crate::CollectiveError;
use crate::call::Kind;
use crate::request::RawPart;

/// The bytes from one address up to another.
pub(crate) type Span = (usize, usize);

/// The memory of a part.
pub(crate) fn span(part: RawPart, size: usize) -> Span {
    let start = part.0 as usize;
    (start, start + part.1 * size)
}

/// Refuses memory that a call would write twice, or write before it has read it. `own` is what it reads and may write in its
/// place: this rank's part of a whole.
pub(crate) fn check_apart(
    kind: Kind,
    mut written: Vec<Span>,
    read: &[Span],
    own: Option<Span>,
) -> Result<(), CollectiveError> {
    written.retain(|span| span.0 < span.1);
    written.sort_unstable();
    let twice = written.windows(2).any(|pair| pair[1].0 < pair[0].1);
    let too_early = read.iter().filter(|span| span.0 < span.1).any(|span| {
        let first = written.partition_point(|other| other.1 <= span.0);
        let met = written[first..].iter().take_while(|other| other.0 < span.1);
        met.into_iter().any(|other| Some(*other) != own)
    });
    if twice || too_early {
        return Err(CollectiveError::Argument(format!(
            "buffers of {} share memory, so that one would overwrite another: pass copies",
            kind.name()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(written: &[Span], read: &[Span], own: Option<Span>) -> bool {
        check_apart(Kind::AllGather, written.to_vec(), read, own).is_ok()
    }

    #[test]
    fn what_is_written_is_apart() {
        assert!(apart(&[(0, 8), (8, 16)], &[], None));
        assert!(!apart(&[(8, 16), (0, 9)], &[], None));
        assert!(!apart(&[(0, 8), (0, 8)], &[], None));
        assert!(apart(&[(4, 4), (0, 8)], &[], None), "nothing overlaps nothing");
    }

    #[test]
    fn what_is_read_is_apart_from_what_is_written() {
        assert!(apart(&[(0, 8)], &[(8, 16), (8, 16)], None), "read twice is well");
        assert!(!apart(&[(0, 8)], &[(7, 9)], None));
        assert!(!apart(&[(0, 8)], &[(2, 4)], None));
        assert!(apart(&[(0, 8)], &[(4, 4)], None));
        assert!(
            apart(&[(0, 8), (8, 16)], &[(8, 16)], Some((8, 16))),
            "in its place"
        );
        assert!(!apart(&[(0, 8), (8, 16)], &[(0, 8)], Some((8, 16))));
        assert!(!apart(&[(0, 8), (8, 16)], &[(4, 12)], Some((4, 12))));
    }
}
