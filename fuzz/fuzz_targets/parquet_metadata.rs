//! Any bytes as the end of a Parquet file: refused, or row groups that lie within the file.

#![no_main]

use grampus_data::table::parquet::check_footer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let size = bytes.len() as u64;
    let _ = check_footer(&bytes.to_vec().into(), size);
});
