//! `completions`: a script that lets a shell complete the command line.

use clap_complete::Shell;

use crate::{
    args,
    exit::{Exit, Failure},
    out,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  eval \"$(leasehold completions bash)\"
  leasehold completions zsh > ~/.zfunc/_leasehold
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut args::command(), "leasehold", &mut script);
        out::bytes(&script)?;
        Ok(Exit::DONE)
    }
}
