//! Layers that go along a series step by step.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::activation::sigmoid;
use crate::description::{Describe, Start, Tensor};
use crate::error::NativeError;
use crate::kernel::{Backward, Forward, Kernel};
use crate::matmul::{Matrix, multiply};
use crate::real::Real;
use crate::shape::Shape;

macro_rules! recurrent {
    ($(#[$doc:meta])* $kind:ident, $gates:expr, $cell:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct $kind {
            /// Length of what comes in at each step.
            pub input: usize,
            /// Length of what is remembered.
            pub hidden: usize,
            /// Whether what is remembered comes out at each step, and not only at the last.
            #[serde(default)]
            pub sequences: bool,
        }

        impl $kind {
            /// Only the last step comes out.
            pub fn new(input: usize, hidden: usize) -> Self {
                Self { input, hidden, sequences: false }
            }

            /// All steps come out.
            pub fn sequences(self) -> Self {
                Self { sequences: true, ..self }
            }
        }

        impl Describe for $kind {
            fn check(&self) -> Result<(), String> {
                match self.input * self.hidden {
                    0 => Err("needs at least one number to come in and to remember".into()),
                    _ => Ok(()),
                }
            }

            fn parameters(&self) -> Vec<Tensor> {
                let start = Start::Uniform(1.0 / (self.hidden as f64).sqrt());
                let wide = $gates * self.hidden;
                vec![
                    Tensor::new("weight_ih_l0", [wide, self.input], start),
                    Tensor::new("weight_hh_l0", [wide, self.hidden], start),
                    Tensor::new("bias_ih_l0", [wide], start),
                    Tensor::new("bias_hh_l0", [wide], start),
                ]
            }

            fn shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
                match *inputs[0].axes() {
                    [steps, input] if input == self.input && steps > 0 => Ok(match self.sequences {
                        true => Shape::from([steps, self.hidden]),
                        false => Shape::from([self.hidden]),
                    }),
                    _ => Err(format!("needs series of steps x {}, and {} came in", self.input, inputs[0])),
                }
            }

            fn kernel<T: Real>(&self, inputs: &[Shape], _rows: usize) -> Box<dyn Kernel<T>> {
                Box::new(Along {
                    steps: inputs[0].axes()[0],
                    input: self.input,
                    hidden: self.hidden,
                    sequences: self.sequences,
                    memory: Memory::default(),
                    cell: PhantomData::<fn() -> $cell>,
                })
            }

            fn told(&self) -> String {
                format!("{}({}, {})", stringify!($kind), self.input, self.hidden)
            }
        }
    };
}

recurrent!(
    /// A long short-term memory.
    Lstm,
    4,
    LstmCell
);
recurrent!(
    /// Gated recurrent units.
    Gru,
    3,
    GruCell
);

/// What is kept of all steps of all rows: row behind row, step behind step.
#[derive(Default)]
struct Memory<T> {
    /// What the input, and what was remembered, say to each gate; then what the gates said.
    from_input: Vec<T>,
    from_hidden: Vec<T>,
    /// What was remembered.
    hidden: Vec<T>,
    cells: Vec<T>,
}

/// One step of one row.
trait Cell<T: Real>: 'static {
    const GATES: usize;

    /// From what comes to the gates (`input`, `hidden`), and what was remembered before, to what is remembered now. The gates stay
    /// in `input`, whatever else the way back needs in `hidden`.
    fn step(input: &mut [T], hidden: &mut [T], before: (&[T], &[T]), now: (&mut [T], &mut [T]));

    /// From the gradients of what is remembered (`d_hidden`, `d_cell`), to those of what came to the gates, which are written over
    /// the gates, and to those of what was remembered before, but for what came through the gates.
    fn back(
        input: &mut [T],
        hidden: &mut [T],
        before: (&[T], &[T]),
        cell: &[T],
        d_hidden: &mut [T],
        d_cell: &mut [T],
    );
}

struct Along<T, C> {
    steps: usize,
    input: usize,
    hidden: usize,
    sequences: bool,
    memory: Memory<T>,
    cell: PhantomData<fn() -> C>,
}

impl<T: Real, C: Cell<T>> Along<T, C> {
    fn wide(&self) -> usize {
        C::GATES * self.hidden
    }

    /// What all rows remembered at a step, as lines of a matrix.
    fn remembered(&self, step: usize, rows: usize) -> Matrix<'_, T> {
        let lines = &self.memory.hidden[step * self.hidden..];
        Matrix::strided(lines, rows, self.hidden, self.steps * self.hidden)
    }

    /// One step of all rows, whose gates have heard all that is said to them.
    fn go(&mut self, step: usize, rows: usize) {
        let (hidden, wide) = (self.hidden, self.wide());
        let memory = &mut self.memory;
        let nothing = vec![T::zero(); hidden];
        for line in (0..rows).map(|row| row * self.steps + step) {
            let gates = line * wide..(line + 1) * wide;
            let (past, now) = memory.hidden.split_at_mut(line * hidden);
            let (past_cell, cell) = memory.cells.split_at_mut(line * hidden);
            let before = match step {
                0 => (&nothing[..], &nothing[..]),
                _ => (
                    &past[past.len() - hidden..],
                    &past_cell[past_cell.len() - hidden..],
                ),
            };
            C::step(
                &mut memory.from_input[gates.clone()],
                &mut memory.from_hidden[gates],
                before,
                (&mut now[..hidden], &mut cell[..hidden]),
            );
        }
    }

    /// One step back of all rows; `d_hidden` and `d_cell` are of what is remembered after it, then before it.
    fn go_back(&mut self, step: usize, rows: usize, d_output: &[T], d_hidden: &mut [T], d_cell: &mut [T]) {
        let (hidden, wide) = (self.hidden, self.wide());
        let memory = &mut self.memory;
        let nothing = vec![T::zero(); hidden];
        for row in 0..rows {
            let line = row * self.steps + step;
            let own = row * hidden..(row + 1) * hidden;
            let errors = match (self.sequences, step + 1 == self.steps) {
                (true, _) => &d_output[line * hidden..][..hidden],
                (false, true) => &d_output[own.clone()],
                (false, false) => &[],
            };
            for (sum, error) in d_hidden[own.clone()].iter_mut().zip(errors) {
                *sum += *error;
            }
            let before = match step {
                0 => (&nothing[..], &nothing[..]),
                _ => {
                    let past = (line - 1) * hidden..line * hidden;
                    (&memory.hidden[past.clone()], &memory.cells[past])
                }
            };
            let gates = line * wide..(line + 1) * wide;
            C::back(
                &mut memory.from_input[gates.clone()],
                &mut memory.from_hidden[gates],
                before,
                &memory.cells[line * hidden..][..hidden],
                &mut d_hidden[own.clone()],
                &mut d_cell[own],
            );
        }
    }
}

impl<T: Real, C: Cell<T>> Kernel<T> for Along<T, C> {
    fn forward(&mut self, at: Forward<'_, T>) -> Result<(), NativeError> {
        let (steps, hidden, wide) = (self.steps, self.hidden, self.wide());
        let lines = at.rows * steps;
        let [weight_in, weight_hidden, bias_in, bias_hidden] = *at.parameters else {
            return Ok(());
        };
        fill(&mut self.memory.from_input, bias_in, lines);
        fill(&mut self.memory.from_hidden, bias_hidden, lines);
        self.memory.hidden.resize(lines * hidden, T::zero());
        self.memory.cells.resize(lines * hidden, T::zero());
        let input = Matrix::new(at.inputs[0], lines, self.input);
        let weights = Matrix::new(weight_in, wide, self.input).turned();
        multiply(
            input,
            weights,
            true,
            &mut self.memory.from_input,
            wide,
            at.threads,
        );
        let weights = Matrix::new(weight_hidden, wide, hidden).turned();
        for step in 0..steps {
            if step > 0 {
                let mut gates = std::mem::take(&mut self.memory.from_hidden);
                let before = self.remembered(step - 1, at.rows);
                multiply(
                    before,
                    weights,
                    true,
                    &mut gates[step * wide..],
                    steps * wide,
                    at.threads,
                );
                self.memory.from_hidden = gates;
            }
            self.go(step, at.rows);
        }
        if self.sequences {
            at.output.copy_from_slice(&self.memory.hidden);
        } else {
            let series = self.memory.hidden.chunks_exact(steps * hidden);
            for (output, series) in at.output.chunks_exact_mut(hidden).zip(series) {
                output.copy_from_slice(&series[(steps - 1) * hidden..]);
            }
        }
        Ok(())
    }

    fn backward(&mut self, at: Backward<'_, T>) {
        let (steps, hidden, wide, rows) = (self.steps, self.hidden, self.wide(), at.rows);
        let weight_hidden = Matrix::new(at.parameters[1], wide, hidden);
        let mut d_hidden = vec![T::zero(); rows * hidden];
        let mut d_cell = vec![T::zero(); rows * hidden];
        for step in (0..steps).rev() {
            self.go_back(step, rows, at.d_output, &mut d_hidden, &mut d_cell);
            let gates = &self.memory.from_hidden[step * wide..];
            let errors = Matrix::strided(gates, rows, wide, steps * wide);
            multiply(errors, weight_hidden, true, &mut d_hidden, hidden, at.threads);
            if step > 0 {
                let before = self.remembered(step - 1, rows);
                multiply(
                    errors.turned(),
                    before,
                    true,
                    at.d_parameters[1],
                    hidden,
                    at.threads,
                );
            }
        }
        let memory = &self.memory;
        let errors = Matrix::new(&memory.from_input, rows * steps, wide);
        let input = Matrix::new(at.inputs[0], rows * steps, self.input);
        multiply(
            errors.turned(),
            input,
            true,
            at.d_parameters[0],
            self.input,
            at.threads,
        );
        for (place, errors) in [(2, &memory.from_input), (3, &memory.from_hidden)] {
            for line in errors.chunks_exact(wide) {
                for (sum, error) in at.d_parameters[place].iter_mut().zip(line) {
                    *sum += *error;
                }
            }
        }
        if let Some(d_input) = &mut at.d_inputs[0] {
            let weights = Matrix::new(at.parameters[0], wide, self.input);
            multiply(errors, weights, false, d_input, self.input, at.threads);
        }
    }
}

/// So many times the same.
fn fill<T: Real>(into: &mut Vec<T>, line: &[T], times: usize) {
    into.clear();
    for _ in 0..times {
        into.extend_from_slice(line);
    }
}

/// Gates for what comes in, what is forgotten, what is new, and what comes out.
struct LstmCell;

impl<T: Real> Cell<T> for LstmCell {
    const GATES: usize = 4;

    fn step(input: &mut [T], hidden: &mut [T], before: (&[T], &[T]), now: (&mut [T], &mut [T])) {
        let count = now.0.len();
        for at in 0..count {
            let gate = |number: usize| input[number * count + at] + hidden[number * count + at];
            let (i, f, g, o) = (
                sigmoid(gate(0)),
                sigmoid(gate(1)),
                gate(2).tanh(),
                sigmoid(gate(3)),
            );
            let cell = f * before.1[at] + i * g;
            for (number, value) in [i, f, g, o].into_iter().enumerate() {
                input[number * count + at] = value;
            }
            now.1[at] = cell;
            now.0[at] = o * cell.tanh();
        }
    }

    fn back(
        input: &mut [T],
        hidden: &mut [T],
        before: (&[T], &[T]),
        cell: &[T],
        d_hidden: &mut [T],
        d_cell: &mut [T],
    ) {
        let (count, one) = (cell.len(), T::one());
        for at in 0..count {
            let [i, f, g, o] = [0, 1, 2, 3].map(|number| input[number * count + at]);
            let bent = cell[at].tanh();
            let d = d_cell[at] + d_hidden[at] * o * (one - bent * bent);
            let errors = [
                d * g * i * (one - i),
                d * before.1[at] * f * (one - f),
                d * i * (one - g * g),
                d_hidden[at] * bent * o * (one - o),
            ];
            for (number, error) in errors.into_iter().enumerate() {
                input[number * count + at] = error;
                hidden[number * count + at] = error;
            }
            d_cell[at] = d * f;
            d_hidden[at] = T::zero();
        }
    }
}

/// Gates for what is reset, what is kept, and what is new.
struct GruCell;

impl<T: Real> Cell<T> for GruCell {
    const GATES: usize = 3;

    fn step(input: &mut [T], hidden: &mut [T], before: (&[T], &[T]), now: (&mut [T], &mut [T])) {
        let count = now.0.len();
        for at in 0..count {
            let gate = |number: usize| input[number * count + at] + hidden[number * count + at];
            let (r, z) = (sigmoid(gate(0)), sigmoid(gate(1)));
            let n = (input[2 * count + at] + r * hidden[2 * count + at]).tanh();
            for (number, value) in [r, z, n].into_iter().enumerate() {
                input[number * count + at] = value;
            }
            now.0[at] = (T::one() - z) * n + z * before.0[at];
        }
    }

    fn back(
        input: &mut [T],
        hidden: &mut [T],
        before: (&[T], &[T]),
        cell: &[T],
        d_hidden: &mut [T],
        _d_cell: &mut [T],
    ) {
        let (count, one) = (cell.len(), T::one());
        for at in 0..count {
            let [r, z, n] = [0, 1, 2].map(|number| input[number * count + at]);
            let d = d_hidden[at];
            let d_n = d * (one - z) * (one - n * n);
            let d_z = d * (before.0[at] - n) * z * (one - z);
            let d_r = d_n * hidden[2 * count + at] * r * (one - r);
            for (number, error) in [d_r, d_z, d_n].into_iter().enumerate() {
                input[number * count + at] = error;
            }
            for (number, error) in [d_r, d_z, d_n * r].into_iter().enumerate() {
                hidden[number * count + at] = error;
            }
            d_hidden[at] = d * z;
        }
    }
}
