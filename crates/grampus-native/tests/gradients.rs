//! Every layer and loss against differences: what is computed on the way back is how the way forth changes.
#![expect(clippy::unwrap_used, reason = "a test ends where something is wrong")]

use grampus_core::Random;
use grampus_native::layers::*;
use grampus_native::{Judged, Loss, Model, Network, Rows, Shape};

/// Even between -1 and 1.
fn draw(random: &mut Random, count: usize) -> Vec<f64> {
    (0..count)
        .map(|_| (random.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
        .collect()
}

/// A layer behind linear ones, whose gradients say all about those of its inputs.
fn behind_linear(layer: Layer, shapes: &[Shape]) -> Model {
    let mut model = Model::new();
    let mut inputs = Vec::new();
    for (number, shape) in shapes.iter().enumerate() {
        let size = shape.size();
        let x = model.input(&format!("x{number}"));
        let flat = model.add(&format!("flat{number}"), Flatten, [&x]);
        let linear = model.add(&format!("linear{number}"), Linear::new(size, size), [&flat]);
        let axes: Vec<isize> = shape.axes().iter().map(|axis| *axis as isize).collect();
        inputs.push(model.add(&format!("back{number}"), Reshape::new(axes), [&linear]));
    }
    let out = model.add("layer", layer, &inputs);
    model.output(&out);
    model
}

struct Case {
    network: Network<f64>,
    shapes: Vec<Shape>,
    inputs: Vec<Vec<f64>>,
    rows: usize,
    /// What each number of the output counts for.
    counts: Vec<f64>,
}

impl Case {
    fn new(model: &Model, shapes: &[Shape], inputs: Vec<Vec<f64>>, rows: usize) -> Self {
        let mut random = Random::new(7);
        let network = Network::new(model, 3, 1).unwrap();
        let size = network.output_shapes(shapes).unwrap()[0].size();
        let counts = draw(&mut random, rows * size);
        Self {
            network,
            shapes: shapes.to_vec(),
            inputs,
            rows,
            counts,
        }
    }

    fn value(&mut self) -> f64 {
        let (inputs, shapes) = (self.inputs.clone(), self.shapes.clone());
        let rows: Vec<Rows<'_, f64>> = inputs
            .iter()
            .zip(&shapes)
            .map(|(values, shape)| Rows { values, shape })
            .collect();
        // What layers keep must not change from one look to the next.
        let buffers = self.network.buffers().to_vec();
        self.network.forward(&rows, self.rows, true, 5).unwrap();
        self.network.buffers_mut().copy_from_slice(&buffers);
        let (output, _) = self.network.output(&rows, 0).unwrap();
        assert_eq!(output.len(), self.counts.len());
        output
            .iter()
            .zip(&self.counts)
            .map(|(value, count)| value * count)
            .sum()
    }

    fn check(mut self, name: &str) {
        self.value();
        let mut gradient = vec![0.0; self.network.parameters().len()];
        let (inputs, shapes, counts) = (self.inputs.clone(), self.shapes.clone(), self.counts.clone());
        let rows: Vec<Rows<'_, f64>> = inputs
            .iter()
            .zip(&shapes)
            .map(|(values, shape)| Rows { values, shape })
            .collect();
        let mut ready = Vec::new();
        self.network
            .backward(&rows, &[&counts], &mut gradient, |place| ready.push(place));
        let places = self.network.parameter_places().to_vec();
        assert!(ready.iter().copied().eq(0..places.len()), "{name}: {ready:?}");
        for placed in &places {
            let (start, count) = (placed.place.start, placed.place.len());
            for at in (0..count).step_by((count / 12).max(1)).map(|at| start + at) {
                let wanted = self.slope(at);
                let found = gradient[at];
                let allowed = 1e-6 * (1.0 + wanted.abs());
                assert!(
                    (found - wanted).abs() < allowed,
                    "{name}, {} at {}: {found} {wanted}",
                    placed.name,
                    at - start
                );
            }
        }
    }

    fn slope(&mut self, at: usize) -> f64 {
        let (before, step) = (self.network.parameters()[at], 1e-5);
        let mut look = |value: f64| {
            self.network.parameters_mut()[at] = value;
            self.value()
        };
        let slope = (look(before + step) - look(before - step)) / (2.0 * step);
        self.network.parameters_mut()[at] = before;
        slope
    }
}

fn check(layer: impl Into<Layer>, shapes: &[&[usize]], rows: usize) {
    let layer = layer.into();
    let shapes: Vec<Shape> = shapes.iter().map(|axes| Shape::from(*axes)).collect();
    let model = behind_linear(layer.clone(), &shapes);
    let mut random = Random::new(11);
    let inputs = shapes
        .iter()
        .map(|shape| draw(&mut random, rows * shape.size()))
        .collect();
    Case::new(&model, &shapes, inputs, rows).check(&layer.told());
}

#[test]
fn linear() {
    check(Linear::new(5, 3), &[&[5]], 4);
    check(Linear::new(1, 1), &[&[1]], 1);
    check(Linear::new(4, 7).without_bias(), &[&[3, 4]], 2);
}

#[test]
fn convolutions() {
    check(Conv2d::new(1, 1, 1), &[&[1, 1, 1]], 1);
    check(Conv2d::new(2, 3, 3), &[&[2, 5, 6]], 3);
    check(Conv2d::new(2, 9, 3).padding(1), &[&[2, 4, 5]], 2);
    check(Conv2d::new(3, 4, 3).padding(1).stride(2), &[&[3, 5, 7]], 3);
    check(Conv2d::new(1, 2, 2).stride(3), &[&[1, 7, 8]], 2);
    check(Conv2d::new(2, 2, 3).dilation(2).padding(2), &[&[2, 6, 5]], 2);
    check(Conv2d::new(4, 6, 3).groups(2).padding(2), &[&[4, 3, 4]], 2);
    check(
        Conv2d::new(3, 3, 3).groups(3).padding(1).without_bias(),
        &[&[3, 4, 4]],
        2,
    );
    check(
        Conv2d {
            kernel: [1, 3],
            stride: [2, 1],
            padding: [0, 2],
            ..Conv2d::new(2, 2, 1)
        },
        &[&[2, 5, 4]],
        2,
    );
    check(Conv2d::new(1, 1, 1).padding(3), &[&[1, 2, 2]], 2);
    check(Conv1d::new(2, 3, 3), &[&[2, 7]], 3);
    check(
        Conv1d {
            stride: 2,
            padding: 1,
            dilation: 2,
            ..Conv1d::new(3, 2, 3)
        },
        &[&[3, 9]],
        2,
    );
}

#[test]
fn convolutions_the_other_way_round() {
    check(ConvTranspose2d::new(2, 3, 3), &[&[2, 3, 4]], 2);
    check(ConvTranspose2d::new(3, 2, 2).stride(2), &[&[3, 3, 2]], 2);
    let padded = ConvTranspose2d {
        output_padding: [1, 0],
        ..ConvTranspose2d::new(2, 4, 3).stride(2).padding(1)
    };
    check(padded, &[&[2, 3, 3]], 2);
    check(
        ConvTranspose2d {
            groups: 2,
            bias: false,
            ..ConvTranspose2d::new(4, 2, 3)
        },
        &[&[4, 2, 2]],
        2,
    );
}

#[test]
fn pools() {
    check(MaxPool2d::new(2), &[&[2, 4, 6]], 2);
    check(MaxPool2d::new(2), &[&[1, 5, 5]], 2);
    check(MaxPool2d::new(3).stride(2).padding(1), &[&[2, 5, 4]], 2);
    check(AvgPool2d::new(2), &[&[2, 4, 5]], 2);
    check(
        AvgPool2d {
            padding: [1, 1],
            stride: [2, 1],
            ..AvgPool2d::new(3)
        },
        &[&[2, 4, 5]],
        2,
    );
    check(AdaptiveAvgPool2d::new(3), &[&[2, 5, 7]], 2);
    check(GlobalAvgPool, &[&[3, 2, 3]], 2);
}

#[test]
fn norms() {
    check(BatchNorm::new(3), &[&[3]], 5);
    check(BatchNorm::new(2), &[&[2, 3, 3]], 2);
    check(LayerNorm::new(5), &[&[3, 5]], 2);
    check(
        LayerNorm {
            shape: vec![2, 3],
            eps: 1e-5,
        },
        &[&[4, 2, 3]],
        2,
    );
}

#[test]
fn functions() {
    for shape in [[7].as_slice(), &[2, 3]] {
        check(Relu, &[shape], 3);
        check(LeakyRelu::default(), &[shape], 3);
        check(Elu { alpha: 0.7 }, &[shape], 3);
        check(Sigmoid, &[shape], 3);
        check(Tanh, &[shape], 3);
        check(Gelu { tanh: false }, &[shape], 3);
        check(Gelu { tanh: true }, &[shape], 3);
        check(Silu, &[shape], 3);
        check(Softmax::default(), &[shape], 3);
        check(LogSoftmax { axis: 0 }, &[shape], 3);
        check(Dropout::new(0.4), &[shape], 3);
    }
}

#[test]
fn shapes_and_merges() {
    check(Permute::new([2, 0, 1]), &[&[2, 3, 4]], 2);
    check(Reshape::new([3, -1]), &[&[2, 6]], 2);
    check(Flatten, &[&[2, 2]], 2);
    check(Add, &[&[2, 3], &[2, 3], &[2, 3]], 2);
    check(Multiply, &[&[2, 3], &[2, 3], &[2, 3]], 2);
    check(Concat { axis: 0 }, &[&[2, 3], &[1, 3]], 2);
    check(Concat { axis: -1 }, &[&[2, 3], &[2, 1], &[2, 2]], 2);
}

#[test]
fn series() {
    check(Lstm::new(3, 4), &[&[5, 3]], 3);
    check(Lstm::new(2, 3).sequences(), &[&[4, 2]], 2);
    check(Lstm::new(1, 1), &[&[1, 1]], 1);
    check(Gru::new(3, 4), &[&[5, 3]], 3);
    check(Gru::new(2, 3).sequences(), &[&[4, 2]], 2);
    check(MultiHeadAttention::new(4, 2), &[&[3, 4]], 2);
    check(MultiHeadAttention::new(6, 3).causal(), &[&[4, 6]], 2);
    check(MultiHeadAttention::new(4, 2), &[&[3, 4], &[5, 4], &[5, 4]], 2);
}

#[test]
fn numbers_have_vectors() {
    for padding in [None, Some(2)] {
        let mut model = Model::new();
        let x = model.input("x");
        let out = model.add(
            "layer",
            Embedding {
                padding,
                ..Embedding::new(5, 3)
            },
            [&x],
        );
        model.output(&out);
        let inputs = vec![vec![0.0, 2.0, 4.0, 4.0, 1.0, 0.0]];
        Case::new(&model, &[[3].into()], inputs, 2).check("Embedding");
    }
}

#[test]
fn a_value_that_several_layers_take() {
    let mut model = Model::new();
    let x = model.input("x");
    let hidden = model.add("hidden", Linear::new(3, 3), [&x]);
    let active = model.add("active", Tanh, [&hidden]);
    let square = model.add("square", Multiply, [&active, &active]);
    let sum = model.add("sum", Add, [&square, &active, &hidden]);
    let out = model.add("out", Linear::new(3, 2), [&sum]);
    model.output(&out);
    let inputs = vec![draw(&mut Random::new(1), 12)];
    Case::new(&model, &[[3].into()], inputs, 4).check("a graph");
}

#[test]
fn activations_that_others_take_over() {
    let layers: [Layer; 5] = [
        Relu.into(),
        Tanh.into(),
        Sigmoid.into(),
        Elu::default().into(),
        LeakyRelu { slope: 0.2 }.into(),
    ];
    for activation in layers {
        let mut model = Model::new();
        let mut last = model.input("x");
        last = model.add("conv", Conv2d::new(1, 3, 3).padding(1), [&last]);
        last = model.add("norm", BatchNorm::new(3), [&last]);
        last = model.add("first", activation.clone(), [&last]);
        last = model.add("second conv", Conv2d::new(3, 2, 3), [&last]);
        last = model.add("second", activation.clone(), [&last]);
        last = model.add("flat", Flatten, [&last]);
        last = model.add("linear", Linear::new(12, 4), [&last]);
        last = model.add("third", activation.clone(), [&last]);
        model.output(&last);
        let inputs = vec![draw(&mut Random::new(1), 3 * 20)];
        Case::new(&model, &[[1, 4, 5].into()], inputs, 3).check(&activation.told());
    }
}

fn check_loss(
    loss: &Loss,
    output: Vec<f64>,
    output_shape: &[usize],
    target: &[f64],
    target_shape: &[usize],
    rows: usize,
) {
    let (output_shape, target_shape) = (Shape::from(output_shape), Shape::from(target_shape));
    let look = |output: &[f64], gradient: &mut [f64]| {
        let judged = Judged {
            output,
            output_shape: &output_shape,
            target,
            target_shape: &target_shape,
            rows,
        };
        loss.apply(judged, 0.3, gradient).unwrap()
    };
    let mut gradient = vec![f64::NAN; output.len()];
    look(&output, &mut gradient);
    let mut other = output.clone();
    for at in 0..output.len() {
        let step = 1e-6;
        other[at] = output[at] + step;
        let above = look(&other, &mut vec![0.0; output.len()]);
        other[at] = output[at] - step;
        let below = look(&other, &mut vec![0.0; output.len()]);
        other[at] = output[at];
        let wanted = 0.3 * (above - below) / (2.0 * step);
        assert!(
            (gradient[at] - wanted).abs() < 1e-7,
            "{} at {at}: {} {wanted}",
            loss.told(),
            gradient[at]
        );
    }
}

#[test]
fn losses() {
    let mut random = Random::new(2);
    let weights = Some(vec![0.5, 2.0, 1.0]);
    for label_smoothing in [0.0, 0.1] {
        for (weights, ignore_index) in [(None, None), (weights.clone(), None), (weights.clone(), Some(1))] {
            let loss = Loss::CrossEntropy {
                weights,
                label_smoothing,
                ignore_index,
            };
            check_loss(&loss, draw(&mut random, 12), &[3], &[0.0, 2.0, 1.0, 2.0], &[], 4);
            check_loss(
                &loss,
                draw(&mut random, 12),
                &[3, 2],
                &[0.0, 2.0, 1.0, 2.0],
                &[2],
                2,
            );
        }
    }
    check_loss(
        &Loss::Nll {
            weights,
            ignore_index: Some(0),
        },
        draw(&mut random, 6),
        &[3],
        &[2.0, 0.0],
        &[],
        2,
    );
    let target = draw(&mut random, 6);
    for loss in [
        Loss::Mse,
        Loss::L1,
        Loss::SmoothL1 { beta: 0.4 },
        Loss::Cosine,
        Loss::Poisson,
    ] {
        check_loss(&loss, draw(&mut random, 6), &[3], &target, &[3], 2);
    }
    let shares = [0.1, 0.7, 0.2, 0.0, 1.0, 0.0];
    for loss in [Loss::BceWithLogits, Loss::Kl] {
        check_loss(&loss, draw(&mut random, 6), &[3], &shares, &[3], 2);
    }
    check_loss(
        &Loss::Bce,
        vec![0.2, 0.9, 0.5, 0.4, 0.6, 0.01],
        &[3],
        &shares,
        &[3],
        2,
    );
    check_loss(
        &Loss::Hinge { margin: 1.0 },
        draw(&mut random, 4),
        &[2],
        &[1.0, -1.0, -1.0, 1.0],
        &[2],
        2,
    );
}

#[test]
fn shapes_that_only_have_as_many_numbers_are_refused() {
    let apply = |loss: &Loss, output: &[usize], target: &[usize]| {
        let (output, target) = (Shape::from(output), Shape::from(target));
        let judged = Judged {
            output: &[1.0_f64; 12],
            output_shape: &output,
            target: &[2.0; 12],
            target_shape: &target,
            rows: 12 / output.size(),
        };
        loss.apply(judged, 1.0, &mut [0.0; 12])
    };
    // Columns of tables may lack the axis that models with one output have.
    assert_eq!(apply(&Loss::Mse, &[1], &[]), Ok(1.0));
    assert_eq!(apply(&Loss::Mse, &[], &[1]), Ok(1.0));
    let error = apply(&Loss::Mse, &[2, 3], &[3, 2]).unwrap_err().to_string();
    assert!(
        error.contains("2 x 3 came out, and targets of 3 x 2 came"),
        "{error}"
    );
}

#[test]
fn a_lane_whose_labels_are_all_ignored_has_no_gradient() {
    let loss = Loss::CrossEntropy {
        weights: None,
        label_smoothing: 0.0,
        ignore_index: Some(-1),
    };
    let shape = Shape::from([3]);
    let judged = Judged {
        output: &[1.0_f64, 2.0, 3.0],
        output_shape: &shape,
        target: &[-1.0],
        target_shape: &Shape::default(),
        rows: 1,
    };
    let mut gradient = [9.0; 3];
    loss.apply(judged, 0.0, &mut gradient).unwrap();
    assert_eq!(gradient, [0.0; 3]);
    assert_eq!(loss.weight(judged.target, 1), 0.0);
}
