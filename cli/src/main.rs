//! The command `leasehold`.

mod supervise;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = supervise::inner_stage() {
        return code;
    }
    ExitCode::SUCCESS
}
