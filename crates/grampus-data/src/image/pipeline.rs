//! From the bytes of a file to the numbers in a batch.

use grampus_core::Random;
use serde::{Deserialize, Serialize};

use super::output::{Output, Writer};
use super::view::View;
use super::{Decoder, ImageError, Layout, Step};

/// What is done with every image: steps in their order, then the output. Checked when it is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Pipeline {
    steps: Vec<Step>,
    output: Output,
    writer: Writer,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    output: Output,
}

impl From<Pipeline> for Parts {
    fn from(Pipeline { steps, output, .. }: Pipeline) -> Self {
        Self { steps, output }
    }
}

impl TryFrom<Parts> for Pipeline {
    type Error = ImageError;

    fn try_from(Parts { steps, output }: Parts) -> Result<Self, ImageError> {
        Self::new(steps, output)
    }
}

impl Pipeline {
    /// Steps and what they end in, or what is wrong with them.
    pub fn new(steps: Vec<Step>, output: Output) -> Result<Self, ImageError> {
        let wrong_step = steps.iter().enumerate().find_map(|(number, step)| {
            step.problem()
                .map(|reason| (format!("image step {}", number + 1), reason))
        });
        let wrong_output = || output.problem().map(|reason| ("image output".to_owned(), reason));
        if let Some((place, reason)) = wrong_step.or_else(wrong_output) {
            return Err(ImageError::WrongPipeline { place, reason });
        }
        let writer = Writer::new(&output);
        Ok(Self {
            steps,
            output,
            writer,
        })
    }

    /// What the steps end in.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// The shape of one image in the batch, in the order of its layout. `of` is the width and height of the file, which
    /// matter where no step ends in a size of its own: then all files must be equal, and [`run`](Self::run) refuses others.
    pub fn output_shape(&self, of: Option<(u32, u32)>) -> Result<[usize; 3], ImageError> {
        let size = self.steps.iter().fold(of, |size, step| step.size_after(size));
        let (width, height) = size.ok_or(ImageError::NoSize)?;
        let (width, height) = (width as usize, height as usize);
        let channels = self.output.channels.count();
        Ok(match self.output.layout {
            Layout::Chw => [channels, height, width],
            Layout::Hwc => [height, width, channels],
        })
    }

    /// How many bytes one image takes in the batch.
    pub fn output_bytes(&self, of: Option<(u32, u32)>) -> Result<usize, ImageError> {
        Ok(self.output_shape(of)?.iter().product::<usize>() * self.writer.width())
    }

    /// Decodes an image and writes it to its place in a batch, `out`, which must have exactly its size. `random` is the
    /// image's own, see [`Rows`](super::Rows).
    pub fn run(
        &self,
        decoder: &mut Decoder,
        bytes: &[u8],
        random: &mut Random,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        decoder.decode(bytes, self.output.channels.decoded())?;
        let Decoder {
            picture,
            resizer,
            limits,
            ..
        } = decoder;
        let mut view = View::whole(picture.width, picture.height);
        for step in &self.steps {
            let plan = step.plan(&view, random)?;
            view = match plan.resize {
                Some(size) => resizer.resize(picture, &plan.view, size, *limits)?,
                None => plan.view,
            };
        }
        self.writer.write(&self.output, picture, &view, out)
    }
}
