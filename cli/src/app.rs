//! What every command has at hand: which store, which clock, how to print.
//!
//! The store's URL may hold a password, so it is shown only through [`App::place`].

use std::{env, path::PathBuf, sync::Arc};

use etcetera::BaseStrategy;
use leasehold::{
    clock::{BootClock, Clock},
    store::{SharedStore, connect, http::HttpStore},
};

use crate::{args::Global, exit::Failure, parse};

/// The store, if `--store` does not say it.
const STORE: &str = "LEASEHOLD_STORE";

/// What a server that asks who calls is shown.
const CREDENTIAL: &str = "LEASEHOLD_CREDENTIAL";

/// See the module.
pub(crate) struct App {
    /// What was typed with the command.
    typed: Option<String>,
    /// Whether to print JSON.
    pub(crate) json: bool,
    /// This machine's clock.
    pub(crate) clock: Arc<dyn Clock>,
}

impl App {
    pub(crate) fn new(global: Global) -> Self {
        Self {
            typed: global.store,
            json: global.json,
            clock: BootClock::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            typed: None,
            json: true,
            clock,
        }
    }

    /// Connects to the store. The store makes its file, for its user alone, if it is not there.
    pub(crate) async fn open(&self) -> Result<SharedStore, Failure> {
        let url = self.url()?;
        if !url.starts_with("http") {
            return connect(&url).await.map_err(Failure::from);
        }
        let secret = match env::var_os(CREDENTIAL) {
            Some(secret) => Some(
                secret
                    .into_string()
                    .map_err(|_| Failure::usage(format!("{CREDENTIAL} is not UTF-8")))?,
            ),
            None => None,
        };
        Ok(HttpStore::connect_as(&url, secret.as_deref()).await?)
    }

    /// Where the store is, without a password.
    pub(crate) fn place(&self) -> Result<String, Failure> {
        self.url().map(|url| without_password(&url))
    }

    /// The URL of the store as it was typed with this command; nothing if it comes from elsewhere.
    pub(crate) fn typed_url(&self) -> Option<&str> {
        self.typed.as_deref()
    }

    /// Whether nobody said which store.
    pub(crate) fn is_default(&self) -> bool {
        self.typed.is_none() && env::var_os(STORE).is_none()
    }

    /// The path of the default store, the first time that this user is to be told of it.
    pub(crate) fn first_use_of_the_default(&self) -> Option<String> {
        if !self.is_default() {
            return None;
        }
        let path = default_path().ok()?;
        // Beside the store, whose folder is there by now. If the mark cannot be made, it is said again.
        match std::fs::File::create_new(path.with_extension("said")) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => None,
            _ => Some(path.display().to_string()),
        }
    }

    /// What was typed, else the environment's, else the default.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        match (&self.typed, env::var_os(STORE)) {
            (Some(url), _) => Ok(url.clone()),
            (None, Some(url)) => parse::env(STORE, &url, &parse::store_url()),
            (None, None) => Ok(format!("sqlite:{}", default_path()?.display())),
        }
    }
}

/// A file in the user's state folder.
fn default_path() -> Result<PathBuf, Failure> {
    let unknown = |why: String| {
        Failure::usage(format!(
            "{why}, so there is no default store: say where it is with --store sqlite:PATH or LEASEHOLD_STORE"
        ))
    };
    let home = env::var_os("HOME").map(PathBuf::from);
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    if ![&home, &state]
        .iter()
        .any(|folder| folder.as_ref().is_some_and(|f| f.is_absolute()))
    {
        return Err(unknown("HOME is not set to a folder".to_owned()));
    }
    let folders = etcetera::base_strategy::Xdg::new()
        .map_err(|error| unknown(format!("there is no home folder ({error})")))?;
    let state = folders
        .state_dir()
        .ok_or_else(|| unknown("there is no state folder".to_owned()))?;
    let path = state.join("leasehold").join("leases.db");
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(unknown(format!(
            "the folder {} is not UTF-8",
            state.display()
        ))),
    }
}

/// `scheme://user:password@host/...?password=...` with both passwords taken out.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:…@{host}"),
            None => format!("{user}@{host}"),
        },
        None => authority.to_owned(),
    };
    let (path, query) = tail
        .split_once('?')
        .map_or((tail, None), |(path, query)| (path, Some(query)));
    let query = query.map(|query| {
        let pairs: Vec<String> = query
            .split('&')
            .map(|pair| match pair.split_once('=') {
                Some((name, _)) if name.to_lowercase().contains("pass") => format!("{name}=…"),
                _ => pair.to_owned(),
            })
            .collect();
        format!("?{}", pairs.join("&"))
    });
    format!("{scheme}://{authority}{path}{}", query.unwrap_or_default())
}

/// What the library has to say goes to standard error, if LEASEHOLD_LOG asks for it.
pub(crate) fn log() {
    let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("LEASEHOLD_LOG") else {
        return;
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let cases = [
            ("sqlite:a:b@c", "sqlite:a:b@c"),
            ("postgres://u:s3cret@db:5432/x", "postgres://u:…@db:5432/x"),
            (
                "postgres://u:s3:cr@et@db/x?sslmode=a",
                "postgres://u:…@db/x?sslmode=a",
            ),
            ("postgres://u@db/x", "postgres://u@db/x"),
            (
                "postgres://db/x?password=s3cret&a=b",
                "postgres://db/x?password=…&a=b",
            ),
            ("postgres://u:s3cret@db", "postgres://u:…@db"),
            (
                "etcd://u:s3cret@a:1,b:2/p?ca=f",
                "etcd://u:…@a:1,b:2/p?ca=f",
            ),
        ];
        for (url, shown) in cases {
            assert_eq!(without_password(url), shown);
        }
    }
}
