//! Event files that TensorBoard reads: a file of framed records, each of them one event.
//!
//! ```
//! use grampus_train::events::EventWriter;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let mut writer = EventWriter::create(folder.path(), "my-host", 1_700_000_000.0)?;
//! writer.scalar("train/loss", 0.5, 1, 1_700_000_001.0)?;
//! writer.flush()?;
//! # Ok(())
//! # }
//! ```

mod event;
mod record;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use event::Image;
use event::{Event, What};

/// Files of one second, host and process are told apart by a number; this many are more than anybody starts.
const MOST_FILES: u32 = 10_000;

/// An event file that cannot be made or written.
#[derive(Debug, Error)]
#[error("cannot write the TensorBoard events {}: {source}: check the folder and the space on its disk", path.display())]
pub struct EventError {
    /// The file, or the folder where there is no file yet.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Writes one event file. What was written is in the file after `flush`, and when the writer is dropped.
#[derive(Debug)]
pub struct EventWriter {
    file: BufWriter<File>,
    path: PathBuf,
}

impl EventWriter {
    /// Starts a new file in a folder, which is made where it is missing. Never touches a file that is there.
    ///
    /// `wall_time` is in seconds since 1970; TensorBoard reads the files of a folder in the order of their
    /// times, which are part of their names.
    ///
    /// # Errors
    ///
    /// If the folder or the file cannot be made.
    pub fn create(folder: &Path, host: &str, wall_time: f64) -> Result<Self, EventError> {
        let (file, path) = new_file(folder, host, wall_time).map_err(|source| EventError {
            path: folder.to_path_buf(),
            source,
        })?;
        let mut writer = Self {
            file: BufWriter::new(file),
            path,
        };
        writer.write(&Event {
            wall_time,
            step: 0,
            what: What::Version,
        })?;
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that a run begins with this step: what older files of the folder hold from there on was not
    /// continued, and TensorBoard leaves it out.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn begin(&mut self, step: u64, wall_time: f64) -> Result<(), EventError> {
        self.write(&Event {
            wall_time,
            step,
            what: What::SessionStart,
        })
    }

    /// Adds a point to the curve `tag`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn scalar(&mut self, tag: &str, value: f32, step: u64, wall_time: f64) -> Result<(), EventError> {
        self.write(&Event {
            wall_time,
            step,
            what: What::Scalar { tag, value },
        })
    }

    /// Adds a picture to those of the name `tag`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn image(
        &mut self,
        tag: &str,
        image: &Image<'_>,
        step: u64,
        wall_time: f64,
    ) -> Result<(), EventError> {
        self.write(&Event {
            wall_time,
            step,
            what: What::Image { tag, image },
        })
    }

    /// Adds the model, as the bytes of TensorFlow's `GraphDef`.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn graph(&mut self, graph: &[u8], wall_time: f64) -> Result<(), EventError> {
        self.write(&Event {
            wall_time,
            step: 0,
            what: What::Graph(graph),
        })
    }

    /// Writes to the file what still lies in memory.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn flush(&mut self) -> Result<(), EventError> {
        let done = self.file.flush();
        self.told(done)
    }

    fn write(&mut self, event: &Event<'_>) -> Result<(), EventError> {
        let done = record::write(&mut self.file, &event.encode());
        self.told(done)
    }

    fn told(&self, done: io::Result<()>) -> Result<(), EventError> {
        done.map_err(|source| EventError {
            path: self.path.clone(),
            source,
        })
    }
}

fn new_file(folder: &Path, host: &str, wall_time: f64) -> io::Result<(File, PathBuf)> {
    fs::create_dir_all(folder)?;
    // A host's name comes from outside and must not lead to another folder.
    let host = host.replace(['/', '\0'], "_");
    let process = std::process::id();
    for number in 0..MOST_FILES {
        let name = format!(
            "events.out.tfevents.{:010}.{host}.{process}.{number}",
            wall_time as u64
        );
        let path = folder.join(name);
        match File::create_new(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many event files of one second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_its_version_and_then_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(&folder.path().join("new/deep"), "host", 12.5).unwrap();
        writer.scalar("a", 1.0, 7, 13.0).unwrap();
        let before = fs::read(writer.path()).unwrap();
        writer.flush().unwrap();
        let events = record::read_all(&fs::read(writer.path()).unwrap());
        assert!(before.is_empty(), "written only when it is flushed");
        assert_eq!(events.len(), 2);
        assert_eq!(
            events[0]
                .windows(13)
                .filter(|part| part == b"brain.Event:2")
                .count(),
            1
        );
        let scalar = Event {
            wall_time: 13.0,
            step: 7,
            what: What::Scalar { tag: "a", value: 1.0 },
        };
        assert_eq!(events[1], scalar.encode());
    }

    #[test]
    fn pictures_and_the_model_are_records_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path(), "host", 1.0).unwrap();
        let image = Image {
            png: &[7; 3000],
            width: 2,
            height: 1,
            channels: 1,
        };
        writer.image("seen", &image, 5, 2.0).unwrap();
        writer.graph(b"the model", 3.0).unwrap();
        writer.flush().unwrap();
        let events = record::read_all(&fs::read(writer.path()).unwrap());
        assert_eq!(events.len(), 3);
        assert!(events[1].ends_with(&[7; 3000]));
        assert!(events[2].ends_with(b"the model"));
    }

    #[test]
    fn two_writers_of_one_second_have_two_files_and_a_dropped_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = EventWriter::create(folder.path(), "a/b", 1e9).unwrap();
        let second = EventWriter::create(folder.path(), "a/b", 1e9).unwrap();
        assert_ne!(first.path(), second.path());
        let name = first.path().file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("events.out.tfevents.1000000000.a_b."), "{name}");
        first.begin(3, 1e9).unwrap();
        let path = first.path().to_path_buf();
        drop(first);
        assert_eq!(record::read_all(&fs::read(path).unwrap()).len(), 2);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = EventWriter::create(&file.join("logs"), "host", 0.0).unwrap_err();
        assert!(error.to_string().contains("file/logs"), "{error}");
    }
}
