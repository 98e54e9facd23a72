//! From a URL to a store. A URL that names none is refused with the ones that do.

#[cfg(target_os = "linux")]
use super::sqlite::SqliteStore;
use super::{SharedStore, StoreError, memory::MemoryStore};

/// What `sqlite:PATH` and the others are, for errors and help.
fn known() -> String {
    let known = [
        ("memory:", true),
        ("sqlite:PATH", true),
        ("postgres://USER@HOST/DATABASE", cfg!(feature = "postgres")),
        ("etcd://HOST:PORT", cfg!(feature = "etcd")),
        ("kubernetes:NAMESPACE", cfg!(feature = "kubernetes")),
        ("http://HOST:PORT", cfg!(feature = "http")),
    ];
    let built = known.iter().filter(|(_, built)| *built);
    let mut names: Vec<_> = built.map(|(name, _)| *name).collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

/// Opens the store that `url` names; see PRODUCT's table of stores. Files and folders are made if they are missing.
///
/// `Invalid` if the URL or what it points to cannot be used, `Unavailable` if it may work later.
pub async fn connect(url: &str) -> Result<SharedStore, StoreError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(MemoryStore::new()),
        #[cfg(target_os = "linux")]
        Some(("sqlite", path)) => Ok(SqliteStore::open(sqlite_path(url, path)?).await?),
        Some(("memory", _)) => Err(refuse(url, "memory: takes nothing after the colon")),
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            Ok(super::postgres::PostgresStore::connect(url).await?)
        }
        #[cfg(not(feature = "postgres"))]
        Some(("postgres" | "postgresql", _)) => Err(refuse(url, "this build has no such store")),
        #[cfg(feature = "http")]
        Some(("http" | "https", _)) => Ok(super::http::HttpStore::connect(url).await?),
        #[cfg(not(feature = "http"))]
        Some(("http" | "https", _)) => Err(refuse(url, "this build has no such store")),
        #[cfg(feature = "kubernetes")]
        Some(("kubernetes", _)) => Ok(super::kubernetes::KubernetesStore::connect(url).await?),
        #[cfg(not(feature = "kubernetes"))]
        Some(("kubernetes", _)) => Err(refuse(url, "this build has no such store")),
        #[cfg(feature = "etcd")]
        Some(("etcd", _)) => Ok(super::etcd::EtcdStore::connect(url).await?),
        #[cfg(not(feature = "etcd"))]
        Some(("etcd", _)) => Err(refuse(url, "this build has no such store")),
        Some(("raft", _)) => Err(refuse(url, "this build has no such store")),
        Some(_) => Err(refuse(url, "there is no such kind of store")),
        None => Err(refuse(url, "a store begins with its kind and a colon")),
    }
}

/// `sqlite:relative.db`, `sqlite:/absolute.db` or, as some write it, `sqlite:///absolute.db`.
#[cfg(target_os = "linux")]
fn sqlite_path<'a>(url: &str, path: &'a str) -> Result<&'a str, StoreError> {
    let hosted = path.starts_with("//") && !path.starts_with("///");
    match path {
        "" => Err(refuse(url, "a path is missing")),
        ":memory:" => Err(refuse(url, "for a store in memory write memory:")),
        _ if hosted => Err(refuse(url, "sqlite: takes a path, not a host")),
        _ if path.contains('?') => Err(refuse(url, "sqlite: takes no options")),
        _ => Ok(path),
    }
}

fn refuse(url: &str, why: &str) -> StoreError {
    StoreError::Invalid {
        what: format!(
            "store \"{}\" is not allowed: {why}; use {}",
            shown(url),
            known()
        ),
    }
}

/// The URL as an error may repeat it: short, printable, without user and password.
fn shown(url: &str) -> String {
    let without = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    };
    without
        .chars()
        .take(100)
        .flat_map(char::escape_debug)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_that_names_no_store_is_refused_with_those_that_do() {
        for bad in [
            "",
            "memory",
            "memory:x",
            "redis://localhost",
            #[cfg(not(feature = "postgres"))]
            "postgres://u:secret@h/db",
            #[cfg(not(feature = "etcd"))]
            "etcd://h:2379",
            ":",
            "\u{1b}[2J:",
        ] {
            let error = connect(bad).await.expect_err(bad);
            assert!(matches!(error, StoreError::Invalid { .. }), "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains(&known()) && !text.contains('\u{1b}'),
                "{text}"
            );
            assert!(!text.contains("secret"), "{text}");
        }
        assert_eq!(connect("memory:").await.unwrap().profile().scheme, "memory");
    }
}
