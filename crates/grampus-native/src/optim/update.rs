//! A step of an optimizer.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::NativeError;
use crate::real::Real;

use super::Optimizer;
use super::clip::Clip;
use super::lamb::{Direction, trust_ratios};
use super::norms::{combine, common, pieces};
use super::settings::not_negative;
use super::state::State;
use super::sweep::Part;

/// Tensors with settings of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Which: their places among all tensors.
    pub tensors: Vec<usize>,
    /// What their learning rate is multiplied with.
    #[serde(default = "one")]
    pub lr_factor: f64,
    /// Their decay, where it is not the optimizer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// What is the same for all owners in one step.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The learning rate, as the schedule has it now.
    pub lr: f64,
    /// Where tensors are in the flat buffers, the first first.
    pub tensors: &'a [Range<usize>],
    /// Tensors with settings of their own.
    pub groups: &'a [Group],
    /// What is done to gradients before they are used.
    pub clip: Clip,
    /// The trust ratio of each tensor, for [`update`] by an optimizer that asks for it (see [`prepare`]).
    pub trust: &'a [f64],
    /// How many steps each tensor has missed, since it had no gradient; none, where this is empty.
    pub missed: &'a [u64],
}

impl<'a> Step<'a> {
    /// Without groups, clipping and trust ratios, of tensors that have missed nothing.
    pub fn new(lr: f64, tensors: &'a [Range<usize>]) -> Self {
        Self {
            lr,
            tensors,
            groups: &[],
            clip: Clip::NONE,
            trust: &[],
            missed: &[],
        }
    }

    /// Which step of a tensor it is: with its first, an optimizer that corrects its means begins.
    fn number<T: Real>(&self, tensor: usize, state: &State<T>) -> u64 {
        let missed = self.missed.get(tensor).copied().unwrap_or(0);
        state.steps().saturating_sub(missed).max(1)
    }
}

/// What one owner sends to the others before they can update: see [`squares`](super::squares).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prepared {
    /// For the sums of squares of parameters.
    pub parameters: Vec<f64>,
    /// For the sums of squares of directions.
    pub directions: Vec<f64>,
}

/// What holds for one tensor.
#[derive(Clone, Copy)]
struct Setting {
    lr_factor: f64,
    weight_decay: f64,
    is_set: bool,
}

impl Optimizer {
    /// What is wrong with groups of so many tensors, if anything is.
    pub fn check_groups(&self, groups: &[Group], tensors: usize) -> Result<(), NativeError> {
        self.settings(groups, tensors).map(drop)
    }

    fn settings(&self, groups: &[Group], tensors: usize) -> Result<Vec<Setting>, NativeError> {
        let wrong = |reason: String| NativeError::Description(format!("group of tensors: {reason}"));
        let usual = Setting {
            lr_factor: 1.0,
            weight_decay: self.weight_decay().unwrap_or(0.0),
            is_set: false,
        };
        let mut settings = vec![usual; tensors];
        for group in groups {
            not_negative("lr_factor", group.lr_factor).map_err(wrong)?;
            not_negative("weight_decay", group.weight_decay.unwrap_or(0.0)).map_err(wrong)?;
            if group.weight_decay.is_some() && self.weight_decay().is_none() {
                return Err(wrong(format!(
                    "{} knows no weight_decay: leave it out",
                    self.told()
                )));
            }
            for tensor in &group.tensors {
                let Some(setting) = settings.get_mut(*tensor) else {
                    return Err(wrong(format!(
                        "there is no tensor {tensor}: {tensors} are counted from 0"
                    )));
                };
                if setting.is_set {
                    return Err(wrong(format!(
                        "tensor {tensor} is in more than one place: name it once"
                    )));
                }
                let weight_decay = group.weight_decay.unwrap_or(usual.weight_decay);
                *setting = Setting {
                    lr_factor: group.lr_factor,
                    weight_decay,
                    is_set: true,
                };
            }
        }
        Ok(settings)
    }
}

/// First half of a step for optimizers that have to know whole tensors, which is LAMB: takes the gradients of
/// a range into the state. All owners exchange what comes back, [`combine`] it, and go on with
/// [`trust_ratios`]. None comes back, and nothing is done, for optimizers without such a half.
pub fn prepare<T: Real>(
    optimizer: &Optimizer,
    step: Step<'_>,
    state: &mut State<T>,
    range: Range<usize>,
    parameters: &[T],
    gradient: &[T],
) -> Result<Option<Prepared>, NativeError> {
    let Optimizer::Lamb(lamb) = optimizer else {
        return Ok(None);
    };
    let settings = check(optimizer, step, state, &range, parameters.len(), gradient.len())?;
    let mut prepared = Prepared::default();
    for piece in pieces(step.tensors, &range) {
        let number = step.number(piece.tensor, state);
        let direction = Direction::new(lamb, settings[piece.tensor].weight_decay, number);
        let clip = step.clip.rounded();
        direction.prepare(
            &piece,
            clip,
            state.raw_slots(),
            parameters,
            gradient,
            &mut prepared,
        )?;
    }
    Ok(Some(prepared))
}

/// Updates a range of the parameters by their gradients. The rest of both is not looked at.
pub fn update<T: Real>(
    optimizer: &Optimizer,
    step: Step<'_>,
    state: &mut State<T>,
    range: Range<usize>,
    parameters: &mut [T],
    gradient: &[T],
) -> Result<(), NativeError> {
    let settings = check(optimizer, step, state, &range, parameters.len(), gradient.len())?;
    if matches!(optimizer, Optimizer::Lamb(_)) && step.trust.len() != step.tensors.len() {
        let reason = "Lamb needs the trust ratio of each tensor: call prepare first, on all owners";
        return Err(NativeError::Input(reason.into()));
    }
    for (tensor, setting) in settings.into_iter().enumerate() {
        let here = common(&step.tensors[tensor], &range);
        if here.is_empty() {
            continue;
        }
        optimizer.apply(part(step, (tensor, setting), state, here, parameters, gradient))?;
    }
    Ok(())
}

/// A whole step of one who owns all parameters.
pub fn update_alone<T: Real>(
    optimizer: &Optimizer,
    step: Step<'_>,
    state: &mut State<T>,
    parameters: &mut [T],
    gradient: &[T],
) -> Result<(), NativeError> {
    state.begin_step();
    let all = 0..parameters.len();
    let Some(prepared) = prepare(optimizer, step, state, all.clone(), parameters, gradient)? else {
        return update(optimizer, step, state, all, parameters, gradient);
    };
    let of_parameters = combine(step.tensors, &[(all.clone(), prepared.parameters)])?;
    let of_directions = combine(step.tensors, &[(all.clone(), prepared.directions)])?;
    let trust = trust_ratios(&of_parameters, &of_directions);
    update(
        optimizer,
        Step {
            trust: &trust,
            ..step
        },
        state,
        all,
        parameters,
        gradient,
    )
}

fn part<'a, T: Real>(
    step: Step<'_>,
    (tensor, setting): (usize, Setting),
    state: &'a mut State<T>,
    place: Range<usize>,
    parameters: &'a mut [T],
    gradient: &'a [T],
) -> Part<'a, T> {
    Part {
        lr: step.lr * setting.lr_factor,
        weight_decay: setting.weight_decay,
        trust: step.trust.get(tensor).copied().unwrap_or(1.0),
        steps: step.number(tensor, state),
        clip: step.clip,
        parameters: &mut parameters[place.clone()],
        gradient: &gradient[place.clone()],
        slots: state.raw_slots(),
        place,
    }
}

/// Whether all fits together; what holds for each tensor.
fn check<T: Real>(
    optimizer: &Optimizer,
    step: Step<'_>,
    state: &State<T>,
    range: &Range<usize>,
    parameters: usize,
    gradients: usize,
) -> Result<Vec<Setting>, NativeError> {
    not_negative("the learning rate", step.lr).map_err(NativeError::Description)?;
    if gradients != parameters {
        let reason = format!("{gradients} gradients came for {parameters} parameters");
        return Err(NativeError::Input(reason));
    }
    let end = step.tensors.last().map_or(0, |place| place.end);
    let ordered = step.tensors.windows(2).all(|pair| pair[0].end <= pair[1].start);
    if !ordered || end > parameters || range.end > parameters {
        let reason = "tensors must lie in the parameters one behind the other, and the range within them";
        return Err(NativeError::Input(reason.into()));
    }
    state.check(optimizer, parameters)?;
    optimizer.settings(step.groups, step.tensors.len())
}
