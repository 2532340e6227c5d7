//! A text classifier: a vector for each word, an LSTM along them, and a score for each class.
//!
//! Each line of the file is a class, a tab and a text; without a file, lines are made up in which the class is a word that stands
//! somewhere in a text of others.
//!
//! ```text
//! cargo run --release --example text -- reviews.tsv --workers 2
//! ```

use std::collections::HashMap;

use clap::Parser;
use grampus::nn::CrossEntropy;
use grampus::optim::Adam;
use grampus::{Estimator, Fit, Shards, models};

#[derive(Parser)]
struct Options {
    /// A file of classes and texts.
    file: Option<String>,
    #[arg(long, default_value_t = 2)]
    workers: u32,
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    #[arg(long, default_value_t = 32)]
    batch_size: u64,
    /// Words of a text; longer ones are cut, and shorter ones are filled up.
    #[arg(long, default_value_t = 12)]
    length: usize,
}

fn main() -> grampus::Result<()> {
    let cluster = grampus::init()?;
    let options = Options::parse();
    let cluster = cluster.workers(options.workers);
    let lines = match &options.file {
        Some(path) => std::fs::read_to_string(path).map_err(|error| {
            grampus::Error::Asked(format!("{path}: {error}: give a file of classes and texts"))
        })?,
        None => made_up(),
    };
    let (mut classes, mut words) = (Numbers::default(), Numbers::default());
    // 0 stands for no word.
    words.of("");
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (class, text) in lines.lines().filter_map(|line| line.split_once('\t')) {
        y.push(classes.of(class));
        let mut row: Vec<f32> = text.split_whitespace().map(|word| words.of(word)).collect();
        row.resize(options.length, 0.0);
        x.extend(row);
    }
    let data = Shards::arrays((x, [options.length]), (y, []))?;
    let model = models::text_classifier(words.0.len(), classes.0.len(), 16, 32);
    let mut estimator = Estimator::native(model, Adam::new(0.01), CrossEntropy).metric("Accuracy")?;
    estimator.fit(
        &cluster,
        &data,
        Fit::epochs(options.epochs).batch_size(options.batch_size),
    )?;
    let found = estimator.evaluate(&cluster, &data)?;
    let accuracy = found.get("accuracy").unwrap_or(0.0);
    println!(
        "accuracy {accuracy:.4} on {} texts of {} words",
        found.num_samples,
        words.0.len() - 1
    );
    Ok(())
}

/// Numbers for words, in the order in which they come.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn of(&mut self, word: &str) -> f32 {
        let next = self.0.len();
        *self.0.entry(word.to_owned()).or_insert(next) as f32
    }
}

/// Texts of 12 words, one of which is the class.
fn made_up() -> String {
    let classes = ["red", "green", "blue", "grey"];
    let line = |row: usize| {
        let class = classes[row % 4];
        let other = |place: usize| format!("w{}", (row * 31 + place * 17 + row / 7) % 40);
        let text: Vec<String> = (0..12)
            .map(|place| {
                if place == row * 5 % 12 {
                    class.to_owned()
                } else {
                    other(place)
                }
            })
            .collect();
        format!("{class}\t{}\n", text.join(" "))
    };
    (0..600).map(line).collect()
}
