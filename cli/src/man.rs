//! `man`: the manual, from the same texts as the help.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap_mangen::Man as Page;

use crate::{
    args,
    exit::{Exit, Failure},
    out,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold man | man -l -
  leasehold man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// A folder for the pages of all commands
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match &self.folder {
            Some(folder) => write_all(folder).map_err(|error| {
                Failure::failed(format!("cannot write to {}: {error}", folder.display()))
            })?,
            None => {
                let page = page(args::command())
                    .map_err(|error| Failure::failed(format!("cannot make the page: {error}")))?;
                out::bytes(&page)?;
            }
        }
        Ok(Exit::DONE)
    }
}

fn write_all(folder: &Path) -> io::Result<()> {
    let mut command = args::command();
    command.build();
    fs::create_dir_all(folder)?;
    let mut all = vec![("leasehold".to_owned(), command)];
    while let Some((name, command)) = all.pop() {
        for inner in command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set())
        {
            if inner.get_name() != "help" {
                all.push((format!("{name}-{}", inner.get_name()), inner.clone()));
            }
        }
        fs::write(folder.join(format!("{name}.1")), page(command)?)?;
    }
    Ok(())
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Page::new(command).render(&mut page)?;
    Ok(page)
}
