//! `token create`: a credential for callers of a server. The secret is printed once; the file keeps its hash.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use leasehold::Holder;
use leasehold_server::{Credential, Right, Rule};
use serde::Serialize;

use crate::{
    app::App,
    exit::{Exit, Failure},
    out, parse,
};

/// See the module.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  leasehold token create ci --hold ci/ --write ci/ --file callers.jsonl
  leasehold token create admin --admin '' --file callers.jsonl")]
pub(crate) enum Token {
    /// Make a credential, add its hash to a file, and print the secret, which nothing keeps
    Create(Create),
}

/// What a caller may do, by the prefixes of names.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rights go by the first letters of lease names, keys, resources and scopes; '' is all of them. Every right
includes to read. Start the server anew after a change of the file.

Examples:
  leasehold token create ci --hold ci/ --write ci/ --file callers.jsonl
  leasehold token create admin --admin '' --file callers.jsonl
  leasehold serve --credentials callers.jsonl
  LEASEHOLD_CREDENTIAL=leasehold_... \\
    leasehold --store http://127.0.0.1:4850 run ci/deploy -- ./deploy.sh")]
pub(crate) struct Create {
    /// Who it is for, for the audit log
    #[arg(value_parser = parse::holder())]
    name: Holder,
    /// May look at names with this prefix; may be given several times, as the others
    #[arg(long, value_name = "PREFIX")]
    read: Vec<String>,
    /// May take, keep and give back leases with this prefix
    #[arg(long, value_name = "PREFIX")]
    hold: Vec<String>,
    /// May write pairs, fences and ledger lines with this prefix
    #[arg(long, value_name = "PREFIX")]
    write: Vec<String>,
    /// May do everything to names with this prefix
    #[arg(long, value_name = "PREFIX")]
    admin: Vec<String>,
    /// The file that `serve --credentials` reads; made, for its user alone, if it is not there
    #[arg(long)]
    file: PathBuf,
}

/// A secret, for programs.
#[derive(Serialize)]
struct Secret<'a> {
    name: &'a str,
    secret: &'a str,
}

impl Token {
    pub(crate) fn run(self, app: &App) -> Result<Exit, Failure> {
        let Token::Create(create) = self;
        create.run(app)
    }
}

impl Create {
    fn run(self, app: &App) -> Result<Exit, Failure> {
        let kinds = [
            (Right::Read, &self.read),
            (Right::Hold, &self.hold),
            (Right::Write, &self.write),
            (Right::Admin, &self.admin),
        ];
        let rules = kinds.iter().flat_map(|(right, prefixes)| {
            prefixes.iter().map(|prefix| Rule {
                right: *right,
                prefix: prefix.clone(),
            })
        });
        let rules: Vec<Rule> = rules.collect();
        if rules.is_empty() {
            return Err(Failure::usage(
                "a credential without a right is of no use: give --read, --hold, --write or --admin a prefix, '' for all names",
            ));
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| {
            Failure::failed(format!("the kernel gives no random bits: {error}"))
        })?;
        let (credential, secret) = Credential::new(self.name.as_str(), rules, &random);
        let line = serde_json::to_string(&credential)
            .map_err(|error| Failure::failed(error.to_string()))?;
        append(&self.file, &line).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", self.file.display()))
        })?;
        let name = self.name.as_str();
        match app.json {
            true => out::json(&Secret {
                name,
                secret: &secret,
            })?,
            false => out::line(&secret)?,
        }
        Ok(Exit::DONE)
    }
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(file)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_all()
}
