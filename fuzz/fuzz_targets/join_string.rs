//! Any text as a join string or address: refused, or read as what writes itself back.

#![no_main]

use grampus_core::{Address, JobKey, JoinString};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(join) = text.parse::<JoinString>() {
        assert_eq!(join.reveal().parse(), Ok(join));
    }
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    if let Ok(key) = JobKey::from_hex(text) {
        assert_eq!(key.to_hex(), text.to_ascii_lowercase());
    }
});
