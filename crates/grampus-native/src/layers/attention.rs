//! Attention: each place of a series looks at all places of another.

use serde::{Deserialize, Serialize};

use crate::description::{Describe, Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::matmul::{Matrix, multiply};
use crate::real::Real;
use crate::shape::Shape;

/// Attention with several heads; with one input, of a series to itself; with three: who asks, who answers, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MultiHeadAttention {
    /// Length of the vectors.
    pub size: usize,
    /// How many heads share them.
    pub heads: usize,
    /// Whether places look only at those before them, and at themselves.
    #[serde(default)]
    pub causal: bool,
}

impl MultiHeadAttention {
    /// Everything may be looked at.
    pub fn new(size: usize, heads: usize) -> Self {
        Self {
            size,
            heads,
            causal: false,
        }
    }

    /// Only what comes before may be looked at.
    pub fn causal(self) -> Self {
        Self { causal: true, ..self }
    }
}

impl Describe for MultiHeadAttention {
    fn takes(&self) -> (usize, usize) {
        (1, 3)
    }

    fn check(&self) -> Result<(), String> {
        match self.size > 0 && self.heads > 0 && self.size.is_multiple_of(self.heads) {
            true => Ok(()),
            false => Err(format!(
                "cannot share vectors of {} among {} heads",
                self.size, self.heads
            )),
        }
    }

    fn parameters(&self) -> Vec<Tensor> {
        let size = self.size;
        // As PyTorch: the first by the rule of Xavier, the last as a linear layer.
        let first = Start::Uniform((6.0 / (4 * size) as f64).sqrt());
        let last = Start::Uniform(1.0 / (size as f64).sqrt());
        vec![
            Tensor::new("in_proj_weight", [3 * size, size], first),
            Tensor::new("in_proj_bias", [3 * size], Start::Constant(0.0)),
            Tensor::new("out_proj.weight", [size, size], last),
            Tensor::new("out_proj.bias", [size], Start::Constant(0.0)),
        ]
    }

    fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        for shape in inputs {
            match *shape.axes() {
                [_, size] if size == self.size => {}
                _ => {
                    return Err(format!(
                        "needs series of places x {}, and {shape} came in",
                        self.size
                    ));
                }
            }
        }
        match inputs {
            [_, _] => Err("takes one input, or three: who asks, who answers, and with what".into()),
            [_, keys, values] if keys != values => Err(format!(
                "needs as many answers as places to ask, and {keys} and {values} came in"
            )),
            _ => Ok(inputs[0].clone()),
        }
    }

    fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
        let places = inputs[0].axes()[0];
        let others = inputs.get(1).map_or(places, |shape| shape.axes()[0]);
        Box::new(Looking::<T> {
            of: self.clone(),
            places,
            others,
            ..Looking::default()
        })
    }

    fn told(&self) -> String {
        format!("MultiHeadAttention({}, {})", self.size, self.heads)
    }
}

impl Default for MultiHeadAttention {
    fn default() -> Self {
        Self::new(1, 1)
    }
}

#[derive(Default)]
struct Looking<T> {
    of: MultiHeadAttention,
    /// Places of those who ask, and of those who answer.
    places: usize,
    others: usize,
    /// Questions, keys and values, row behind row.
    projected: [Vec<T>; 3],
    /// How much each place looks at each other, for every row and head.
    looks: Vec<T>,
    /// What was seen, before the last product.
    seen: Vec<T>,
}

/// One row and head: where its part of a projection lies.
#[derive(Clone, Copy)]
struct Head {
    row: usize,
    head: usize,
    width: usize,
    size: usize,
}

impl Head {
    fn start(self, places: usize) -> usize {
        self.row * places * self.size + self.head * self.width
    }

    fn of<T>(self, values: &[T], places: usize) -> Matrix<'_, T> {
        Matrix::strided(&values[self.start(places)..], places, self.width, self.size)
    }
}

impl<T: Real> Looking<T> {
    fn heads(&self, rows: usize) -> impl Iterator<Item = Head> + use<T> {
        let (heads, size) = (self.of.heads, self.of.size);
        let one = move |row| {
            (0..heads).map(move |head| Head {
                row,
                head,
                width: size / heads,
                size,
            })
        };
        (0..rows).flat_map(one)
    }

    fn lengths(&self) -> [usize; 3] {
        [self.places, self.others, self.others]
    }

    /// From the gradient of what a head has seen to those of what it was asked, told and given.
    fn head_back(
        &self,
        head: Head,
        looks: &[T],
        d_seen: &[T],
        d_projected: &mut [Vec<T>; 3],
        threads: usize,
    ) {
        let (size, places, others) = (self.of.size, self.places, self.others);
        let [questions, keys, values] = &self.projected;
        let [d_questions, d_keys, d_values] = d_projected;
        let errors = head.of(d_seen, places);
        let shares = Matrix::new(looks, places, others);
        multiply(
            shares.turned(),
            errors,
            false,
            &mut d_values[head.start(others)..],
            size,
            threads,
        );
        let mut d_looks = vec![T::zero(); places * others];
        multiply(
            errors,
            head.of(values, others).turned(),
            false,
            &mut d_looks,
            others,
            threads,
        );
        let scale = T::of(1.0 / ((size / self.of.heads) as f64).sqrt());
        for (errors, shares) in d_looks.chunks_exact_mut(others).zip(looks.chunks_exact(others)) {
            let sum = errors
                .iter()
                .zip(shares)
                .map(|(error, share)| *error * *share)
                .sum::<T>();
            for (error, share) in errors.iter_mut().zip(shares) {
                *error = *share * (*error - sum) * scale;
            }
        }
        let errors = Matrix::new(&d_looks, places, others);
        let into = &mut d_questions[head.start(places)..];
        multiply(errors, head.of(keys, others), false, into, size, threads);
        let into = &mut d_keys[head.start(others)..];
        multiply(
            errors.turned(),
            head.of(questions, places),
            false,
            into,
            size,
            threads,
        );
    }

    /// Scores to shares, line by line.
    fn share(&self, looks: &mut [T]) {
        let scale = T::of(1.0 / ((self.of.size / self.of.heads) as f64).sqrt());
        for (place, line) in looks.chunks_exact_mut(self.others).enumerate() {
            let seen = if self.of.causal {
                (place + 1).min(self.others)
            } else {
                self.others
            };
            let (line, hidden) = line.split_at_mut(seen);
            hidden.fill(T::zero());
            let greatest = line.iter().copied().fold(T::neg_infinity(), T::max);
            for value in line.iter_mut() {
                *value = ((*value - greatest) * scale).exp();
            }
            let sum = line.iter().copied().sum::<T>();
            line.iter_mut().for_each(|value| *value /= sum);
        }
    }
}

/// `out = values * weights + bias`, line by line.
fn project<T: Real>(values: &[T], weights: &[T], bias: &[T], out: &mut Vec<T>, threads: usize) {
    let size = bias.len();
    out.clear();
    for _ in 0..values.len() / size {
        out.extend_from_slice(bias);
    }
    let (lines, weights) = (
        Matrix::new(values, values.len() / size, size),
        Matrix::new(weights, size, size),
    );
    multiply(lines, weights.turned(), true, out, size, threads);
}

/// Adds to the gradients of a projection, and to that of its input where there is one.
fn unproject<T: Real>(
    errors: &[T],
    values: &[T],
    weights: &[T],
    (d_weights, d_bias): (&mut [T], &mut [T]),
    d_values: Option<(&mut [T], bool)>,
    threads: usize,
) {
    let size = d_bias.len();
    let lines = errors.len() / size;
    let matrix = Matrix::new(errors, lines, size);
    multiply(
        matrix.turned(),
        Matrix::new(values, lines, size),
        true,
        d_weights,
        size,
        threads,
    );
    for line in errors.chunks_exact(size) {
        for (sum, error) in d_bias.iter_mut().zip(line) {
            *sum += *error;
        }
    }
    if let Some((d_values, adds)) = d_values {
        multiply(
            matrix,
            Matrix::new(weights, size, size),
            adds,
            d_values,
            size,
            threads,
        );
    }
}

impl<T: Real> Kernel<T> for Looking<T> {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let size = self.of.size;
        let [weights, bias, last, last_bias] = *at.parameters else {
            return Ok(());
        };
        for number in 0..3 {
            let input = at.inputs.get(number).unwrap_or(&at.inputs[0]);
            let weights = &weights[number * size * size..][..size * size];
            let bias = &bias[number * size..][..size];
            project(input, weights, bias, &mut self.projected[number], at.threads);
        }
        let square = self.places * self.others;
        self.seen.resize(at.rows * self.places * size, T::zero());
        let mut looks = std::mem::take(&mut self.looks);
        looks.resize(at.rows * self.of.heads * square, T::zero());
        for (head, looks) in self.heads(at.rows).zip(looks.chunks_exact_mut(square.max(1))) {
            let [questions, keys, values] = &self.projected;
            let (questions, keys) = (head.of(questions, self.places), head.of(keys, self.others));
            multiply(questions, keys.turned(), false, looks, self.others, at.threads);
            self.share(looks);
            let shares = Matrix::new(looks, self.places, self.others);
            let into = &mut self.seen[head.start(self.places)..];
            multiply(
                shares,
                head.of(values, self.others),
                false,
                into,
                size,
                at.threads,
            );
        }
        self.looks = looks;
        let mut output = Vec::new();
        project(&self.seen, last, last_bias, &mut output, at.threads);
        at.output.copy_from_slice(&output);
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let (size, threads) = (self.of.size, at.threads);
        let [d_weights, d_bias, d_last, d_last_bias] = at.d_parameters else {
            return;
        };
        let mut d_seen = vec![T::zero(); self.seen.len()];
        let into = Some((&mut d_seen[..], false));
        unproject(
            at.d_output,
            &self.seen,
            at.parameters[2],
            (d_last, d_last_bias),
            into,
            threads,
        );
        let mut d_projected = self
            .lengths()
            .map(|places| vec![T::zero(); at.rows * places * size]);
        let square = (self.places * self.others).max(1);
        for (head, looks) in self.heads(at.rows).zip(self.looks.chunks_exact(square)) {
            self.head_back(head, looks, &d_seen, &mut d_projected, threads);
        }
        // With one input, all three come from it, and their gradients add up.
        let alone = at.inputs.len() == 1;
        for (number, errors) in d_projected.iter().enumerate() {
            let own = if alone { 0 } else { number };
            let (weights, bias) = (number * size * size, number * size);
            let gradients = (
                &mut d_weights[weights..weights + size * size],
                &mut d_bias[bias..bias + size],
            );
            let into = at.d_inputs[own].as_deref_mut();
            let into = into.map(|into| (into, alone && number > 0));
            let weights = &at.parameters[0][weights..weights + size * size];
            unproject(errors, at.inputs[own], weights, gradients, into, threads);
        }
    }
}
