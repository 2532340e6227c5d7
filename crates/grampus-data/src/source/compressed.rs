//! Texts that are compressed, as the ends of their names say.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use crate::{DataError, Place};

/// Ends of names of files that cannot be read.
const UNKNOWN: [&str; 4] = ["bz2", "xz", "zip", "tar"];

/// What a file of this name holds.
pub(super) fn decompress(name: &str, bytes: Bytes) -> Result<Bytes, DataError> {
    // An address may have a query behind its name.
    let path = match name.split_once("://") {
        Some((_, rest)) => rest.split(['?', '#']).next().unwrap_or(rest),
        None => name,
    };
    let end = path.rsplit('.').next().unwrap_or_default().to_lowercase();
    let mut text = Vec::new();
    let found = match end.as_str() {
        "gz" => MultiGzDecoder::new(&bytes[..])
            .read_to_end(&mut text)
            .map(|_| text),
        "zst" => zstd::decode_all(&bytes[..]),
        end if UNKNOWN.contains(&end) => {
            return Err(DataError::Damaged {
                place: Place::file(name),
                why: format!("Grampus does not read .{end}: compress it with gzip or zstd (.gz, .zst)"),
            });
        }
        _ => return Ok(bytes),
    };
    found
        .map(Bytes::from)
        .map_err(|error: io::Error| DataError::Damaged {
            place: Place::file(name),
            why: format!("it does not decompress: {error}"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::GzEncoder;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut made = Vec::new();
        GzEncoder::new(text, Compression::fast())
            .read_to_end(&mut made)
            .unwrap();
        made
    }

    #[test]
    fn the_name_says_how_it_is_compressed() {
        let text = Bytes::from_static(b"a,b\n1,2\n");
        let zipped = gzip(&text);
        // Files of gzip may stand one behind the other.
        let twice = [&zipped[..], &zipped].concat();
        assert_eq!(decompress("a.csv", text.clone()).unwrap(), text);
        assert_eq!(decompress("a.csv.GZ", zipped.clone().into()).unwrap(), text);
        let address = "https://host/a.csv.gz?version=1.0";
        assert_eq!(decompress(address, twice.into()).unwrap(), text.repeat(2));
        let packed = zstd::encode_all(&text[..], 1).unwrap();
        assert_eq!(decompress("a.csv.zst", packed.into()).unwrap(), text);
        for (name, why) in [
            ("a.csv.gz", "it does not decompress"),
            ("a.csv.bz2", "does not read .bz2"),
        ] {
            let cut = Bytes::from(zipped[..zipped.len() - 9].to_vec());
            let error = decompress(name, cut).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains(why), "{error}");
        }
    }
}
