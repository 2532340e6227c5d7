//! TensorBoard's `Event` message, as far as it is written here, in the bytes of protocol buffers.
//!
//! By hand: some ten fields of four messages do not need a generator in the build.

/// What is needed to tell TensorBoard which fields to expect.
const VERSION: &str = "brain.Event:2";

/// One event.
pub(super) struct Event<'a> {
    /// Seconds since 1970.
    pub(super) wall_time: f64,
    /// Step of the training.
    pub(super) step: u64,
    /// What happened.
    pub(super) what: What<'a>,
}

/// What an event says.
pub(super) enum What<'a> {
    /// The first event of a file.
    Version,
    /// A run begins.
    SessionStart,
    /// A point of a curve.
    Scalar {
        /// The curve's name.
        tag: &'a str,
        /// The value.
        value: f32,
    },
    /// A picture.
    Image {
        /// Its name.
        tag: &'a str,
        /// The picture.
        image: &'a Image<'a>,
    },
    /// The model, as the bytes of a `GraphDef`.
    Graph(&'a [u8]),
}

/// A picture, as the bytes of a PNG file.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// The file.
    pub png: &'a [u8],
    /// Pixels in a row.
    pub width: u32,
    /// Rows of pixels.
    pub height: u32,
    /// Values of a pixel: 1 for grey, 3 for colours.
    pub channels: u32,
}

impl Event<'_> {
    /// The message's bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut event = Message::default();
        event.fixed64(1, self.wall_time.to_bits());
        event.varint(2, self.step);
        match &self.what {
            What::Version => event.bytes(3, VERSION.as_bytes()),
            What::SessionStart => {
                let mut session = Message::default();
                session.varint(1, 1);
                event.bytes(7, &session.0);
            }
            What::Scalar { tag, value } => {
                let mut point = Message::default();
                point.bytes(1, tag.as_bytes());
                point.fixed32(2, value.to_bits());
                event.summary(&point);
            }
            What::Image { tag, image } => {
                let mut picture = Message::default();
                picture.varint(1, image.height.into());
                picture.varint(2, image.width.into());
                picture.varint(3, image.channels.into());
                picture.bytes(4, image.png);
                let mut point = Message::default();
                point.bytes(1, tag.as_bytes());
                point.bytes(4, &picture.0);
                event.summary(&point);
            }
            What::Graph(graph) => event.bytes(4, graph),
        }
        event.0
    }
}

/// A protocol-buffers message that grows field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, field: u8, value: u64) {
        self.key(field, 0);
        self.number(value);
    }

    fn fixed64(&mut self, field: u8, bits: u64) {
        self.key(field, 1);
        self.0.extend(bits.to_le_bytes());
    }

    fn fixed32(&mut self, field: u8, bits: u32) {
        self.key(field, 5);
        self.0.extend(bits.to_le_bytes());
    }

    fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.key(field, 2);
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// A summary of one value, which is how an event carries what a run measures.
    fn summary(&mut self, value: &Message) {
        let mut summary = Message::default();
        summary.bytes(1, &value.0);
        self.bytes(5, &summary.0);
    }

    fn key(&mut self, field: u8, kind: u8) {
        self.number(u64::from(field) << 3 | u64::from(kind));
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_is_encoded_as_the_format_says() {
        let event = Event {
            wall_time: 1.0,
            step: 300,
            what: What::Scalar {
                tag: "ab",
                value: 0.5,
            },
        };
        let point = [0x0a, 2, b'a', b'b', 0x15, 0, 0, 0, 0x3f];
        let mut expected = vec![0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0xac, 0x02];
        expected.extend([0x2a, 2 + 9, 0x0a, 9]);
        expected.extend(point);
        assert_eq!(event.encode(), expected);
    }

    #[test]
    fn an_image_has_its_size_and_the_file() {
        let image = Image {
            png: b"png",
            width: 300,
            height: 2,
            channels: 3,
        };
        let event = Event {
            wall_time: 0.0,
            step: 1,
            what: What::Image {
                tag: "ab",
                image: &image,
            },
        };
        let mut expected = vec![0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 1];
        expected.extend([0x2a, 2 + 18, 0x0a, 18, 0x0a, 2, b'a', b'b']);
        expected.extend([
            0x22, 12, 0x08, 2, 0x10, 0xac, 0x02, 0x18, 3, 0x22, 3, b'p', b'n', b'g',
        ]);
        assert_eq!(event.encode(), expected);
    }

    #[test]
    fn a_graph_is_carried_as_it_is() {
        let event = Event {
            wall_time: 0.0,
            step: 0,
            what: What::Graph(b"graph"),
        };
        assert!(event.encode().ends_with(&[0x22, 5, b'g', b'r', b'a', b'p', b'h']));
    }

    #[test]
    fn a_long_tag_has_a_length_of_several_bytes() {
        let tag = "x".repeat(200);
        let event = Event {
            wall_time: 0.0,
            step: 0,
            what: What::Scalar {
                tag: &tag,
                value: 0.0,
            },
        };
        let encoded = event.encode();
        assert!(encoded.windows(3).any(|part| part == [0x0a, 0xc8, 0x01]));
    }
}
