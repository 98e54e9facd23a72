//! What can be typed: the commands, the options that all of them have, and the help that groups them by purpose.
//!
//! A new command is a file with a `clap::Args`, a line in [`Command`], a word in [`GROUPS`] and an arm in `main.rs`.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

use crate::{
    exit::{self, Failure},
    out, parse,
};

/// Leases with fencing tokens: one actor at a time, and the late one cannot write.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the help shows the options of every command.
const GLOBAL: &str = "Options of every command";

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Where the leases are: sqlite:PATH, postgres://USER@HOST/DATABASE, etcd://HOST:PORT or http://HOST:PORT; by default a file of this user on this machine [env: LEASEHOLD_STORE]
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        value_name = "URL",
        value_parser = parse::store_url()
    )]
    pub(crate) store: Option<String>,
    /// Print JSON, one object a line; errors too, on standard error
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a lease, and stop it in time when the lease is lost
    Run(crate::run::Run),
    /// Show the idea with three real processes: one freezes, and its late write is refused
    Demo(crate::demo::Demo),
    /// Take a lease by hand and print its token and session
    Acquire(crate::acquire::Acquire),
    /// Keep a lease for another ttl
    Renew(crate::renew::Renew),
    /// Give a lease back
    Release(crate::release::Release),
    /// Ask whether a token is the lease's own and still valid
    Check(crate::check::Check),
    /// Show who holds what
    List(crate::list::List),
    /// Show one lease
    Status(crate::status::Status),
    /// Print what happens, as it happens
    Watch(crate::watch::Watch),
    /// Print what happened: grants, losses, refusals
    History(crate::history::History),
    /// Store a value, plain or under a lease
    Put(crate::put::Put),
    /// Print a value
    Get(crate::get::Get),
    /// Remove a value, plain or under a lease
    Delete(crate::delete::Delete),
    /// Serve the store over HTTP, for programs in every language
    Serve(crate::serve::Serve),
    /// Make credentials for callers of a server
    #[command(subcommand)]
    Token(crate::token::Token),
    /// Tell what this setup guarantees and what in it breaks a promise
    Doctor(crate::doctor::Doctor),
    /// Step in as an operator; every act only raises tokens
    #[command(subcommand)]
    Admin(crate::admin::Admin),
    /// Print the tables and functions of a database store, for review
    Sql(crate::sql::Sql),
    /// Create or update the tables and functions in the database of --store
    Migrate(crate::migrate::Migrate),
    /// Print completions for a shell
    Completions(crate::completions::Completions),
    /// Print the manual page, or write all of them to a folder
    Man(crate::man::Man),
}

/// How `leasehold help` groups the commands.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run a job", &["run", "demo"]),
    ("Hold by hand", &["acquire", "renew", "release", "check"]),
    ("Look", &["list", "status", "watch", "history"]),
    ("Store data", &["put", "get", "delete"]),
    (
        "Operate",
        &[
            "serve",
            "token",
            "doctor",
            "admin",
            "sql",
            "migrate",
            "completions",
            "man",
            "help",
        ],
    ),
];

const AFTER: &str = "\
`leasehold help COMMAND` says more, with examples.

Exit codes: 0 done, 1 nothing found, or a fault found by doctor, 2 wrong usage, 75 busy, 76 refused, 77 unknown outcome, \
125 leasehold or the store failed.";

/// The whole command, with its help.
pub(crate) fn command() -> clap::Command {
    let mut command = Cli::command();
    command.build();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{}\n{{options}}{{after-help}}",
        groups(&command),
        heading("Options"),
    );
    Cli::command().help_template(template).after_help(AFTER)
}

fn groups(command: &clap::Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let lines: Vec<String> = names
            .iter()
            .filter_map(|name| command.find_subcommand(name))
            .map(|command| {
                let about = command.get_about().map(ToString::to_string);
                format!(
                    "  {:<12} {}\n",
                    command.get_name(),
                    about.unwrap_or_default()
                )
            })
            .collect();
        if !lines.is_empty() {
            text += &format!("{}\n{}\n", heading(title), lines.concat());
        }
    }
    text
}

/// As clap prints its own headings; where there are no colours, clap takes them off again.
fn heading(title: &str) -> String {
    let style = *clap::builder::Styles::styled().get_header();
    format!("{style}{title}:{style:#}")
}

/// Reads the arguments. Help and version are printed here; the exit code comes back as the failure's.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, Failure> {
    command()
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                match out::text_as_it_is(&error.render().ansi().to_string()) {
                    Ok(()) => Failure::silent(exit::DONE),
                    Err(failure) => failure,
                }
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _ = error.print();
                Failure::silent(exit::USAGE)
            }
            ErrorKind::MissingSubcommand => {
                Failure::usage("a command is missing; `leasehold help` lists all commands")
            }
            ErrorKind::InvalidSubcommand => {
                let text = one_line(&error.render().to_string());
                let said = text.split("; usage: ").next().unwrap_or_default();
                Failure::usage(format!("{said}; `leasehold help` lists all commands"))
            }
            _ => Failure::usage(one_line(&error.render().to_string())),
        })
}

/// Whether errors must be JSON, also when the arguments cannot be read.
pub(crate) fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    args.skip(1)
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json")
}

/// What clap says in several lines, in one, with nothing in it that a terminal would obey.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim) {
        if part.is_empty() || part.starts_with("For more information") {
            continue;
        }
        if !line.is_empty() {
            line += if line.ends_with(':') { " " } else { "; " };
        }
        line += part.strip_prefix("error: ").unwrap_or(part);
    }
    parse::printable(&line.replace("; Usage: ", "; usage: "), 600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        command().debug_assert();
    }

    /// A command that no group names would be missing from the help.
    #[test]
    fn every_visible_command_is_in_one_group() {
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let mut command = command();
        command.build();
        for command in command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let times = grouped
                .iter()
                .filter(|name| **name == command.get_name())
                .count();
            assert_eq!(times, 1, "{}", command.get_name());
        }
    }

    #[test]
    fn every_command_has_examples() {
        for command in command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("  ")).collect();
            let name = command.get_name();
            assert!(
                examples.iter().any(|line| line.contains("leasehold ")),
                "{name}"
            );
            for line in examples {
                assert!(line.len() <= 78, "{name}: too wide for a terminal: {line}");
            }
        }
    }
}
