//! What an error of etcd means for the caller (L14): certainly not applied, perhaps applied, or never.

use etcd_client::Error;

pub(super) use crate::store::remote::{unavailable, unknown};
use crate::{StoreError, store::remote::with_causes};

pub(super) fn invalid(what: impl Into<String>) -> StoreError {
    StoreError::Invalid { what: what.into() }
}

/// Of a call that changes nothing: whatever went wrong, nothing was applied.
pub(super) fn of_read(error: &Error) -> StoreError {
    match of_write(error) {
        StoreError::Unknown { what } => StoreError::Unavailable { what },
        other => other,
    }
}

/// Of a call that changes something: only what the server refused before it proposed it was certainly not applied.
pub(super) fn of_write(error: &Error) -> StoreError {
    let Error::GRpcStatus(status) = error else {
        return match error {
            Error::InvalidArgs(_) | Error::InvalidUri(_) => invalid(error.to_string()),
            _ => unknown(error.to_string()),
        };
    };
    let text = status.message();
    let has = |part: &str| text.contains(part);
    if has("database space exceeded") {
        return unavailable(
            "etcd is out of space (alarm NOSPACE): compact, defragment, then `etcdctl alarm disarm`",
        );
    }
    if has("permission denied") {
        return invalid(
            "etcd: permission denied: the user needs read and write on the leases' prefix",
        );
    }
    let credentials = ["authentication failed", "user name is empty", "role name"];
    if credentials.iter().any(|part| has(part)) {
        return invalid(format!(
            "etcd refused the user or the password: {text}; they stand before the host in the URL"
        ));
    }
    if has("invalid auth token") || has("authentication is not enabled") {
        return unavailable(format!("etcd: {text}"));
    }
    if has("tcp connect error") || has("dns error") {
        return unavailable(format!("etcd cannot be reached: {}", with_causes(status)));
    }
    unknown(format!("etcd: {}", with_causes(status)))
}

/// The lease that was meant is no more.
pub(super) fn is_gone(error: &Error) -> bool {
    match error {
        Error::GRpcStatus(status) => status.message().contains("requested lease not found"),
        Error::LeaseKeepAliveError(text) => text.contains("lease not found"),
        _ => false,
    }
}

/// The lease that was to be made is there already: an earlier try made it.
pub(super) fn is_there(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains("lease already exists"))
}
