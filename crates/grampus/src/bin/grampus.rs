//! The `grampus` command without Python around it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = grampus::cli::main(std::env::args().collect(), None);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
