//! Models that are ready to be trained; those of Python's `grampus.models` are the same.

use grampus_native::layers::{
    Add, BatchNorm, Conv2d, Dropout, Embedding, Flatten, GlobalAvgPool, Linear, Lstm, MaxPool2d, Relu,
};
use grampus_native::{Model, Sequential};

/// LeNet-5 for pictures of `1 x 28 x 28`.
///
/// ```
/// assert_eq!(grampus::models::lenet(10).nodes.len(), 12);
/// ```
pub fn lenet(classes: usize) -> Model {
    Sequential::new()
        .add(Conv2d::new(1, 6, 5))
        .add(Relu)
        .add(MaxPool2d::new(2))
        .add(Conv2d::new(6, 16, 5))
        .add(Relu)
        .add(MaxPool2d::new(2))
        .add(Flatten)
        .add(Linear::new(256, 120))
        .add(Relu)
        .add(Linear::new(120, 84))
        .add(Relu)
        .add(Linear::new(84, classes))
        .model()
}

/// Linear layers of these sizes, from what comes in to what goes out, with a ReLU between them, and a dropout of this share where
/// it is above zero.
///
/// ```
/// assert_eq!(grampus::models::mlp(&[4, 8, 2], 0.0).nodes.len(), 3);
/// ```
pub fn mlp(sizes: &[usize], dropout: f64) -> Model {
    let mut model = Sequential::new();
    for (number, pair) in sizes.windows(2).enumerate() {
        if number > 0 {
            model = model.add(Relu);
            if dropout > 0.0 {
                model = model.add(Dropout::new(dropout));
            }
        }
        model = model.add(Linear::new(pair[0], pair[1]));
    }
    model.model()
}

/// A vector for each word, a memory along them, and a score for each class.
///
/// ```
/// assert_eq!(grampus::models::text_classifier(1000, 4, 64, 128).nodes.len(), 3);
/// ```
pub fn text_classifier(words: usize, classes: usize, size: usize, hidden: usize) -> Model {
    Sequential::new()
        .add(Embedding::new(words, size).padding(0))
        .add(Lstm::new(size, hidden))
        .add(Linear::new(hidden, classes))
        .model()
}

/// ResNet-18 for pictures of `3 x 32 x 32`: its first convolution is 3 x 3, and no pool follows it. Names are torchvision's.
///
/// ```
/// assert!(grampus::models::resnet18(10).check().is_ok());
/// ```
pub fn resnet18(classes: usize) -> Model {
    let mut net = Wiring {
        model: Model::new(),
        relus: 0,
    };
    let x = net.model.input("input");
    let mut last = net.convolution("conv1", "bn1", &x, Conv2d::new(3, 64, 3).padding(1));
    last = net.relu(&last);
    let mut before = 64;
    for (number, size) in [64, 128, 256, 512].into_iter().enumerate() {
        for place in 0..2 {
            let stride = if place == 0 && number > 0 { 2 } else { 1 };
            last = net.block(
                &format!("layer{}.{place}", number + 1),
                &last,
                (before, size),
                stride,
            );
            before = size;
        }
    }
    let Wiring { mut model, .. } = net;
    let pooled = model.add("pool", GlobalAvgPool, [&last]);
    let scores = model.add("fc", Linear::new(512, classes), [&pooled]);
    model.output(&scores);
    model
}

/// A model under way.
struct Wiring {
    model: Model,
    relus: usize,
}

impl Wiring {
    fn relu(&mut self, x: &String) -> String {
        self.relus += 1;
        let name = format!("relu{}", self.relus);
        self.model.add(&name, Relu, [x])
    }

    /// A convolution without a bias, and what keeps its numbers in bounds.
    fn convolution(&mut self, name: &str, norm: &str, x: &String, layer: Conv2d) -> String {
        let channels = layer.out_channels;
        let inner = self.model.add(name, layer.without_bias(), [x]);
        self.model.add(norm, BatchNorm::new(channels), [&inner])
    }

    /// Two convolutions beside a way round them.
    fn block(&mut self, name: &str, x: &String, (before, size): (usize, usize), stride: usize) -> String {
        let part = |part: &str| format!("{name}.{part}");
        let layer = Conv2d::new(before, size, 3).stride(stride).padding(1);
        let mut inner = self.convolution(&part("conv1"), &part("bn1"), x, layer);
        inner = self.relu(&inner);
        let layer = Conv2d::new(size, size, 3).padding(1);
        inner = self.convolution(&part("conv2"), &part("bn2"), &inner, layer);
        let mut round = x.clone();
        if stride != 1 || before != size {
            let layer = Conv2d::new(before, size, 1).stride(stride);
            round = self.convolution(&part("downsample.0"), &part("downsample.1"), x, layer);
        }
        let sum = self.model.add(&part("add"), Add, [&inner, &round]);
        self.relu(&sum)
    }
}
