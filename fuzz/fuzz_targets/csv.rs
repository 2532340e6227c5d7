//! Any bytes as a CSV file: refused, or read as rows that the file has room for.

#![no_main]

use grampus_data::table::csv::{CsvOptions, read_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else { return };
    let mark = |bit: u8, text: &str| (choice & bit != 0).then(|| text.to_owned());
    let options = CsvOptions {
        header: CsvOptions::default().header.filter(|_| choice & 1 == 0),
        sep: mark(2, ";").unwrap_or(",".to_owned()),
        quotechar: mark(4, "'").or(mark(8, "\"")),
        escapechar: mark(16, "\\"),
        comment: mark(32, "#"),
        nrows: (choice & 64 != 0).then_some(3),
        na_values: mark(128, "1").into_iter().collect(),
        ..CsvOptions::default()
    };
    if let Ok(table) = read_bytes("fuzz", text.to_vec().into(), &options) {
        assert!(table.num_rows() <= text.len());
        let rows: usize = table.batches().iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(rows, table.num_rows());
    }
});
