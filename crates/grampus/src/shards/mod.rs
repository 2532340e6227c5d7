//! Rows to train on, to measure with, or to predict.

mod packing;

use std::sync::{Arc, OnceLock};

use grampus_data::batch::{Column, Output};
use grampus_data::image::Pipeline;
use grampus_data::source::{File, find};
use grampus_data::table::csv::{self, CsvOptions};
use grampus_data::table::{Table, json};
use grampus_native::Shape;
use grampus_train::native::{Array, Data, Source};

use crate::error::{Error, Result};
use packing::Pack;

/// Rows, and which of their columns go into a model and which should come out of it.
///
/// Numbers are packed once, into memory that all workers share. Files that are too large for that are [`streamed`](Self::streamed).
///
/// ```no_run
/// use grampus::Shards;
///
/// # fn main() -> grampus::Result<()> {
/// let data = Shards::parquet("data/*.parquet")?.features(["age", "income"]).labels(["bought"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Shards {
    rows: Rows,
    /// What goes into the model, one array for each of its inputs.
    features: Vec<Output>,
    /// What should come out of it.
    labels: Option<Output>,
    window: Option<usize>,
    /// Without what should come out, and with it.
    packed: Arc<[OnceLock<Pack>; 2]>,
}

#[derive(Clone)]
enum Rows {
    Files(Vec<String>),
    Table(Table),
    Arrays(Arc<Pack>),
}

impl Shards {
    /// The rows of Parquet files: a path, a pattern such as `data/*.parquet`, a folder or an address such as `s3://…`.
    pub fn parquet(pattern: &str) -> Result<Self> {
        let files = found(pattern, &["parquet", "pq"])?;
        let names = files.iter().map(|file| file.name().to_owned());
        Ok(Self::of(Rows::Files(names.collect())))
    }

    /// The rows of CSV files with a header.
    pub fn csv(pattern: &str) -> Result<Self> {
        let files = found(pattern, csv::EXTENSIONS)?;
        Ok(Self::table(csv::read(&files, &CsvOptions::default())?))
    }

    /// The rows of files of JSON lines.
    pub fn json(pattern: &str) -> Result<Self> {
        let files = found(pattern, json::EXTENSIONS)?;
        Ok(Self::table(json::read(&files)?))
    }

    /// The rows of a table.
    pub fn table(table: Table) -> Self {
        Self::of(Rows::Table(table))
    }

    /// Rows of numbers in memory: what goes into the model, and what should come out of it.
    ///
    /// ```
    /// use grampus::Shards;
    ///
    /// let rows = Shards::arrays((vec![0.0, 1.0, 2.0, 3.0], [2]), (vec![1.0, 5.0], []))?;
    /// assert_eq!(rows.len()?, 2);
    /// assert!(Shards::arrays((vec![0.0; 3], [2]), (vec![1.0], [])).is_err());
    /// # Ok::<(), grampus::Error>(())
    /// ```
    pub fn arrays(
        features: (Vec<f32>, impl Into<Shape>),
        labels: (Vec<f32>, impl Into<Shape>),
    ) -> Result<Self> {
        Self::of_arrays(vec![
            array(features.0, features.1.into())?,
            array(labels.0, labels.1.into())?,
        ])
    }

    /// The same for rows to predict, of which nobody knows what should come out.
    pub fn inputs(features: (Vec<f32>, impl Into<Shape>)) -> Result<Self> {
        Self::of_arrays(vec![array(features.0, features.1.into())?])
    }

    fn of_arrays(arrays: Vec<Array<f32>>) -> Result<Self> {
        let counts: Vec<usize> = arrays.iter().map(count).collect();
        if counts.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(Error::Asked(format!(
                "{} rows of features and {} of labels do not belong together: give as many of both",
                counts[0], counts[1]
            )));
        }
        Ok(Self::of(Rows::Arrays(Arc::new(Pack::arrays(&arrays)?))))
    }

    fn of(rows: Rows) -> Self {
        Self {
            rows,
            features: Vec::new(),
            labels: None,
            window: None,
            packed: Arc::default(),
        }
    }

    /// These columns, side by side, are what goes into the model; once more for a further input. Without it, it is a column `x`.
    pub fn features<C: Into<Column>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.features.push(Output::new(columns, None));
        self.anew()
    }

    /// This column holds pictures as files' bytes; what is done with them is what goes into the model.
    pub fn images(mut self, column: &str, pipeline: Pipeline) -> Self {
        let mut output = Output::new([column], None);
        output.images = Some(Arc::new(pipeline));
        self.features.push(output);
        self.anew()
    }

    /// These columns, side by side, are what should come out; one alone is a number for each row, which losses such as
    /// [`Loss::Mse`](grampus_native::Loss::Mse) compare with a model that ends in one number. Without it, it is a column `y`, where there is one.
    pub fn labels<C: Into<Column>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.labels = Some(Output::new(columns, None));
        self.anew()
    }

    /// Do not keep all rows in memory: read the files in each epoch, and shuffle the rows of so many row groups among
    /// themselves.
    pub fn streamed(mut self, window: usize) -> Self {
        self.window = Some(window.max(1));
        self
    }

    /// What was packed was packed for other columns.
    fn anew(mut self) -> Self {
        self.packed = Arc::default();
        self
    }

    /// How many rows there are.
    pub fn len(&self) -> Result<u64> {
        match &self.rows {
            Rows::Table(table) => Ok(table.num_rows() as u64),
            Rows::Arrays(pack) => Ok(pack.rows()),
            Rows::Files(paths) => Ok(packing::dataset(paths)?.num_rows()),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// As workers get them, and the shapes of what goes into the model where they are known here.
    pub(crate) fn data(&self, batch_size: u64, labelled: bool) -> Result<(Data, Option<Vec<Shape>>)> {
        let mut outputs = self.features.clone();
        if outputs.is_empty() {
            outputs.push(Output::new(["x"], None));
        }
        let inputs = match &self.rows {
            Rows::Arrays(_) => 1,
            _ => outputs.len(),
        };
        if labelled {
            outputs.push(self.labels.clone().unwrap_or_else(|| Output::new(["y"], None)));
        }
        let pictures = outputs.iter().any(|output| output.images.is_some());
        if let (Rows::Files(paths), true) = (&self.rows, pictures || self.window.is_some()) {
            let source = Source::Files {
                paths: paths.clone(),
                outputs,
                window: self.window,
            };
            let data = Data {
                source,
                inputs,
                batch_size,
            };
            return Ok((data, None));
        }
        let pack = self.pack(outputs, labelled)?;
        let shapes = pack.arrays.iter().take(inputs).map(|array| array.row());
        let shapes = Some(shapes.collect());
        let data = Data {
            source: pack.source(inputs + usize::from(labelled))?,
            inputs,
            batch_size,
        };
        Ok((data, shapes))
    }

    /// The numbers of these columns.
    fn pack(&self, outputs: Vec<Output>, labelled: bool) -> Result<&Pack> {
        match &self.rows {
            Rows::Arrays(pack) => Ok(pack),
            Rows::Files(paths) => self.once(labelled, || Pack::files(paths, outputs)),
            Rows::Table(table) => self.once(labelled, || Pack::table(table, outputs)),
        }
    }

    /// What was packed before, or is now; with what should come out it serves without, too.
    fn once(&self, labelled: bool, make: impl FnOnce() -> Result<Pack>) -> Result<&Pack> {
        let [without, with] = &*self.packed;
        let place = if labelled { with } else { without };
        match with.get().or_else(|| place.get()) {
            Some(pack) => Ok(pack),
            None => {
                let made = make()?;
                Ok(place.get_or_init(|| made))
            }
        }
    }
}

fn found(pattern: &str, extensions: &[&str]) -> Result<Vec<File>> {
    Ok(find(&[pattern.to_owned()], extensions)?)
}

fn count(array: &Array<f32>) -> usize {
    array.values.len() / array.shape.size().max(1)
}

fn array(values: Vec<f32>, shape: Shape) -> Result<Array<f32>> {
    if shape.size() == 0 || !values.len().is_multiple_of(shape.size()) {
        return Err(Error::Asked(format!(
            "{} numbers do not make rows of shape {:?}: give whole rows",
            values.len(),
            shape.axes()
        )));
    }
    Ok(Array { values, shape })
}
