//! How parameters follow their gradients.
//!
//! Parameters and gradients are flat buffers; each tensor has its place in them. An owner updates a range of
//! them: all, or a part where several share the work. Whoever owns what, the result is the same, bit for bit:
//! every element is computed alone, and what is summed over a tensor is summed in an order that owners do not
//! change (see [`squares`]).
//!
//! A step of one who owns everything is [`update_alone`]. Where there are several owners, each of them does
//! this:
//!
//! 1. [`State::begin_step`].
//! 2. To clip by norm: [`squares`] of the gradient, which all send to all; then [`combine`], [`norm`] and
//!    [`Clip::by_norm`].
//! 3. [`prepare`]. If it gives something, all send it to all; [`combine`] it, and compute [`trust_ratios`].
//! 4. [`update`] of its range.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
mod clip;
mod ftrl;
mod lamb;
mod norms;
mod rmsprop;
mod settings;
mod sgd;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod update;

pub use adadelta::Adadelta;
pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use adamax::Adamax;
pub use clip::Clip;
pub use ftrl::Ftrl;
pub use lamb::{Lamb, trust_ratios};
pub use norms::{combine, norm, squares};
pub use rmsprop::RmsProp;
pub use sgd::Sgd;
pub use state::State;
pub use update::{Group, Prepared, Step, prepare, update, update_alone};

use serde::{Deserialize, Serialize};

use crate::error::NativeError;
use crate::real::Real;

use settings::not_negative;
use sweep::Part;

/// What a kind of optimizer has to say.
trait Rule {
    /// What is wrong with its own settings, if anything is; its rate and its decay are looked at elsewhere.
    fn check(&self) -> Result<(), String>;

    /// What it remembers for each parameter, and what that is in the beginning.
    fn slots(&self) -> Vec<(&'static str, f64)>;

    /// How much it pulls parameters towards zero; none if it never does that.
    fn weight_decay(&self) -> Option<f64>;

    /// Updates what lies together in one tensor.
    fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError>;
}

macro_rules! optimizers {
    ($($kind:ident),* $(,)?) => {
        /// Any optimizer.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        #[non_exhaustive]
        pub enum Optimizer {
            $(#[doc = concat!("By the rule of [`", stringify!($kind), "`].")] $kind($kind),)*
        }

        $(impl From<$kind> for Optimizer {
            fn from(optimizer: $kind) -> Self {
                Self::$kind(optimizer)
            }
        })*

        impl Optimizer {
            /// The names of all kinds.
            pub const KINDS: &[&str] = &[$(stringify!($kind)),*];

            /// What it is called.
            pub fn told(&self) -> &'static str {
                match self { $(Self::$kind(_) => stringify!($kind),)* }
            }

            /// The learning rate that a schedule begins with.
            pub fn lr(&self) -> f64 {
                match self { $(Self::$kind(optimizer) => optimizer.lr,)* }
            }

            fn weight_decay(&self) -> Option<f64> {
                match self { $(Self::$kind(optimizer) => optimizer.weight_decay(),)* }
            }

            fn slots(&self) -> Vec<(&'static str, f64)> {
                match self { $(Self::$kind(optimizer) => optimizer.slots(),)* }
            }

            fn check_rule(&self) -> Result<(), String> {
                match self { $(Self::$kind(optimizer) => optimizer.check(),)* }
            }

            fn apply<T: Real>(&self, part: Part<'_, T>) -> Result<(), NativeError> {
                match self { $(Self::$kind(optimizer) => optimizer.apply(part),)* }
            }
        }
    };
}

optimizers!(Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Lamb, RmsProp, Sgd);

impl Optimizer {
    /// What is wrong with its settings, if anything is.
    pub fn check(&self) -> Result<(), NativeError> {
        not_negative("lr", self.lr())
            .and_then(|()| not_negative("weight_decay", self.weight_decay().unwrap_or(0.0)))
            .and_then(|()| self.check_rule())
            .map_err(|wrong| NativeError::Description(format!("{}: {wrong}", self.told())))
    }
}
