//! What an answer of the API server means for the caller (L14): certainly not applied, perhaps applied, or never.

use crate::StoreError;
pub(super) use crate::store::remote::{unavailable, unknown};

pub(super) fn invalid(what: String) -> StoreError {
    StoreError::Invalid { what }
}

/// Whether the request could have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// A request that got no answer it could use. 404 and 409 of single objects are answers, and do not come here.
pub(super) fn of(error: &kube::Error, kind: Kind, namespace: &str) -> StoreError {
    let kube::Error::Api(status) = error else {
        let what = chain(error);
        return match kind {
            Kind::Read => StoreError::Unavailable { what },
            Kind::Write => StoreError::Unknown { what },
        };
    };
    let (code, message) = (status.code, short(&status.message));
    match code {
        401 => invalid(format!(
            "the API server does not know who asks: {message} (401)"
        )),
        403 => invalid(format!(
            "not allowed: {message} (403); it needs get, list, watch, create and update on leases of coordination.k8s.io in namespace {namespace}"
        )),
        404 => invalid(format!(
            "{message} (404): create it with `kubectl create namespace {namespace}`"
        )),
        400 | 405 | 413 | 415 | 422 => {
            invalid(format!("the API server refused: {message} ({code})"))
        }
        // Turned away at the door, before anything was done.
        429 => unavailable(format!("the API server is busy: {message} (429)")),
        _ if kind == Kind::Read => unavailable(format!("{message} ({code})")),
        _ => unknown(format!("{message} ({code})")),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    short(&text)
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    /// L14: mapping a timeout of a write to `Unavailable` would be the classic mistake.
    #[test]
    fn an_answer_is_sorted_by_what_may_have_happened() {
        let of = |code: u16, kind| {
            let status = Status::failure("words of the server", "Reason").with_code(code);
            of(&kube::Error::Api(status.boxed()), kind, "jobs")
        };
        for code in [401, 403, 404, 422] {
            let error = of(code, Kind::Write);
            assert!(
                matches!(error, StoreError::Invalid { .. }),
                "{code}: {error:?}"
            );
            assert!(error.to_string().contains("words of the server"), "{error}");
        }
        for code in [429, 500, 503, 504] {
            let read = of(code, Kind::Read);
            assert!(
                matches!(read, StoreError::Unavailable { .. }),
                "{code}: {read:?}"
            );
        }
        for code in [500, 502, 503, 504] {
            let write = of(code, Kind::Write);
            assert!(
                matches!(write, StoreError::Unknown { .. }),
                "{code}: {write:?}"
            );
        }
        let busy = of(429, Kind::Write);
        assert!(matches!(busy, StoreError::Unavailable { .. }), "{busy:?}");
    }
}
