//! Metrics as states that merge: the value at seven workers is the value at one.
//!
//! A [`Metric`] says what is measured. Its [`State`] takes batches and merges with other states; counts are integers
//! and sums are exact, so a value has the same bits however the rows were cut and in whatever order states met.
//!
//! ```
//! use grampus_train::metrics::{Metric, Value, Values};
//!
//! let accuracy = Metric::named("Accuracy", &Default::default())?;
//! let (mut here, mut there) = (accuracy.state(), accuracy.state());
//! here.update(&Values::of(&[2, 2], &[0.9f32, 0.1, 0.2, 0.8])?, &Values::of(&[2], &[0i64, 1])?)?;
//! there.update(&Values::of(&[1, 2], &[0.6f32, 0.4])?, &Values::of(&[1], &[1i64])?)?;
//! here.merge(&there)?;
//! assert_eq!(here.value(), Value::Number(2.0 / 3.0));
//! # Ok::<(), grampus_train::metrics::MetricError>(())
//! ```

mod area;
mod boxes;
mod curve;
mod direction;
mod error;
mod exact;
mod explained;
mod fit;
mod groups;
mod mean;
mod median;
mod metric;
mod options;
mod precision;
mod ranking;
mod ratio;
mod relative;
mod share;
mod state;
#[cfg(test)]
mod tests;
mod values;

pub use curve::Curve;
pub use direction::{VALIDATED, higher_is_better};
pub use error::{Described, MetricError};
pub use exact::ExactSum;
pub use groups::{Groups, Recommended};
pub use mean::Mean;
pub use median::Median;
pub use metric::Metric;
pub use options::Setting;
pub use precision::AveragePrecision;
pub use ratio::{Average, Ratio};
pub use share::Share;
pub use state::{State, Value};
pub use values::Values;
