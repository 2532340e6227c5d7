//! Which pixels of a picture are meant, before any is moved.

use std::ops::Range;

use super::Picture;

/// A window on a picture, which may reach over its edges (black is there) and be mirrored. Crops and flips only move the
/// window: the pixels are read once, when a resize or the output needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// In pixels of the picture.
    left: i64,
    top: i64,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) mirrored: bool,
    /// Where the picture is seen; what an earlier crop cut away stays black.
    columns: Range<i64>,
    rows: Range<i64>,
}

/// A row as it shall be read: black, pixels, black. A mirrored view is already turned round for the two counts, not for
/// the pixels.
pub(super) struct Row<'a> {
    pub(super) black_before: usize,
    pub(super) pixels: &'a [u8],
}

impl View {
    /// All of a picture.
    pub(super) fn whole(width: u32, height: u32) -> Self {
        Self {
            left: 0,
            top: 0,
            width,
            height,
            mirrored: false,
            columns: 0..i64::from(width),
            rows: 0..i64::from(height),
        }
    }

    /// The part that begins at `left` and `top` of this view, as it is seen.
    pub(super) fn crop(&self, left: i64, top: i64, width: u32, height: u32) -> Self {
        let left = match self.mirrored {
            true => self.left + i64::from(self.width) - left - i64::from(width),
            false => self.left + left,
        };
        let top = self.top + top;
        Self {
            left,
            top,
            width,
            height,
            mirrored: self.mirrored,
            columns: overlap(&self.columns, left, width),
            rows: overlap(&self.rows, top, height),
        }
    }

    /// Left and right exchanged.
    pub(super) fn mirror(&self) -> Self {
        Self {
            mirrored: !self.mirrored,
            ..self.clone()
        }
    }

    /// One row, counted from 0 at the top of the view.
    pub(super) fn row<'a>(&self, picture: &'a Picture, number: usize) -> Row<'a> {
        let y = self.top + number as i64;
        if !self.rows.contains(&y) || self.columns.is_empty() {
            return Row {
                black_before: self.width as usize,
                pixels: &[],
            };
        }
        let channels = usize::from(picture.channels);
        let start = y as usize * picture.width as usize;
        let (first, last) = (
            start + self.columns.start as usize,
            start + self.columns.end as usize,
        );
        let black_before = match self.mirrored {
            true => self.left + i64::from(self.width) - self.columns.end,
            false => self.columns.start - self.left,
        };
        Row {
            black_before: black_before as usize,
            pixels: picture
                .pixels
                .get(first * channels..last * channels)
                .unwrap_or_default(),
        }
    }
}

fn overlap(seen: &Range<i64>, from: i64, length: u32) -> Range<i64> {
    let start = seen.start.max(from);
    start..seen.end.min(from + i64::from(length)).max(start)
}
