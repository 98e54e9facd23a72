//! `get`: prints a value, its bytes and nothing else.

use leasehold::Key;
use serde::Serialize;

use crate::{
    app::App,
    exit::{Exit, Failure},
    out, parse,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The bytes come as they were stored, without a line end. Exit code 1: there is no such key. With \
--json the value is text, or null and an array of bytes if it is not UTF-8.

Examples:
  leasehold get report
  leasehold get report --json")]
pub(crate) struct Get {
    /// The key
    #[arg(value_parser = parse::key())]
    key: Key,
}

#[derive(Serialize)]
struct View<'a> {
    key: &'a str,
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a [u8]>,
    lease: Option<String>,
    token: Option<String>,
}

impl Get {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        let Some(pair) = store.pair(&self.key).await? else {
            return Err(
                Failure::missing(format!("there is no value under {}", self.key))
                    .with("key", self.key.as_str()),
            );
        };
        let bytes = pair.value.as_bytes();
        if !app.json {
            out::bytes(bytes)?;
            return Ok(Exit::DONE);
        }
        let value = std::str::from_utf8(bytes).ok();
        let fence = pair.fence.as_ref();
        out::json(&View {
            key: self.key.as_str(),
            value,
            bytes: value.is_none().then_some(bytes),
            lease: fence.map(|fence| fence.lease.to_string()),
            token: fence.map(|fence| fence.token.to_string()),
        })?;
        Ok(Exit::DONE)
    }
}
