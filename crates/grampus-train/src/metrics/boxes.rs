//! Boxes around objects: those that were found beside those that are there.

use super::error::MetricError;
use super::fit;
use super::values::Values;

pub(super) const NAME: &str = "MeanAveragePrecisionObjectDetection";

/// Class, score and corners of a box that was found.
const FOUND: usize = 6;

/// Class and corners of a box that is there.
const THERE: usize = 5;

/// A box of a class; one that is there has no score.
pub(super) struct Outline {
    pub class: u32,
    pub score: f64,
    corners: [f64; 4],
}

/// The boxes of one row.
pub(super) struct Image {
    found: Vec<Outline>,
    pub there: Vec<Outline>,
}

/// Checks shapes, classes and scores.
pub(super) fn check(predictions: &Values<'_>, targets: &Values<'_>, classes: u32) -> Result<(), MetricError> {
    let fits = matches!(
        (predictions.shape(), targets.shape()),
        ([rows, _, FOUND], [others, _, THERE]) if rows == others
    );
    if !fits {
        let needs = "predictions of shape [rows, boxes, 6] with class, score, x1, y1, x2, y2 and targets of shape [rows, \
                     boxes, 5] with class, x1, y1, x2, y2, a class below 0 being no box";
        return Err(MetricError::misfit(NAME, predictions, targets, needs));
    }
    for (values, width, side) in [(predictions, FOUND, "predictions"), (targets, THERE, "targets")] {
        for position in (0..values.count()).step_by(width) {
            let class = values.number(position);
            if class < 0.0 {
                continue;
            }
            if !fit::is_label(class, classes as usize, 0) {
                return Err(MetricError::Box {
                    metric: NAME,
                    class,
                    position,
                    side,
                    classes,
                });
            }
            if width == FOUND {
                fit::check_score(NAME, position + 1, values.number(position + 1))?;
            }
        }
    }
    Ok(())
}

/// The rows of predictions and targets that were checked.
pub(super) fn images(predictions: &Values<'_>, targets: &Values<'_>) -> impl Iterator<Item = Image> {
    let rows = predictions.shape()[0];
    let (found, there) = (predictions.count() / rows.max(1), targets.count() / rows.max(1));
    (0..rows).map(move |row| Image {
        found: outlines(&predictions.row(row, found), FOUND),
        there: outlines(&targets.row(row, there), THERE),
    })
}

fn outlines(row: &[f64], width: usize) -> Vec<Outline> {
    let outline = |values: &[f64]| match values {
        [class, before @ .., left, top, right, bottom] if *class >= 0.0 => Some(Outline {
            class: *class as u32,
            score: before.first().copied().unwrap_or_default(),
            corners: [*left, *top, *right, *bottom],
        }),
        _ => None,
    };
    row.chunks_exact(width).filter_map(outline).collect()
}

impl Image {
    /// Each box that was found, and whether it is right: of the boxes of its class, it covers one well enough more
    /// than the others, and none with a higher score did before.
    pub fn compared(&self, iou: f64) -> Vec<(&Outline, bool)> {
        let mut found: Vec<&Outline> = self.found.iter().collect();
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        let mut taken = vec![false; self.there.len()];
        let compared = found.into_iter().map(|outline| {
            let mut nearest = (0.0, None);
            for (at, there) in self.there.iter().enumerate() {
                let overlap = outline.overlap(there);
                if outline.class == there.class && overlap > nearest.0 {
                    nearest = (overlap, Some(at));
                }
            }
            let right = match nearest {
                (overlap, Some(at)) if overlap >= iou => !std::mem::replace(&mut taken[at], true),
                _ => false,
            };
            (outline, right)
        });
        compared.collect()
    }
}

impl Outline {
    /// What both cover, as a share of what one of them covers.
    fn overlap(&self, other: &Self) -> f64 {
        let ([left, top, right, bottom], [l, t, r, b]) = (self.corners, other.corners);
        let both = area([left.max(l), top.max(t), right.min(r), bottom.min(b)]);
        both / (area(self.corners) + area(other.corners) - both)
    }
}

fn area([left, top, right, bottom]: [f64; 4]) -> f64 {
    (right - left).max(0.0) * (bottom - top).max(0.0)
}
