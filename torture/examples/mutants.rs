//! `make mutants`: breaks the code on purpose, and shows which test sees each fault.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let scratch = arguments
        .next()
        .unwrap_or_else(|| "target/mutants".to_owned());
    let filter = arguments.next().unwrap_or_default();
    let root = leasehold_torture::tree::root();
    leasehold_torture::mutants::run(root, &root.join(Path::new(&scratch)), &filter)
}
