//! What `doctor` learns of a cluster: whether its versions can be tokens, and which Leases stand in the way.

use super::{Inner, address::Source};
use crate::{
    StoreError,
    store::{Finding, Level},
};

/// Longer than this, a dead holder blocks people for too long (FB-45).
const LONG: i64 = 3600;

pub(super) async fn examine(inner: &Inner) -> Result<Vec<Finding>, StoreError> {
    let version = inner.link.version().await?;
    let mut findings = vec![of_version(&version, inner.source)];
    for object in inner.link.list().await? {
        let name = object.metadata.name.clone().unwrap_or_default();
        let spec = &object.data["spec"];
        let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(0);
        let held = spec["holderIdentity"]
            .as_str()
            .is_some_and(|who| !who.is_empty());
        if held && seconds > LONG {
            findings.push(Finding {
                level: Level::Warning,
                what: format!(
                    "Lease {name} lasts {seconds} s: other programs wait so long for a dead holder (Leasehold waits an hour)"
                ),
                fix: Some(format!("see who wrote it: kubectl get lease {name} -o yaml")),
            });
        }
        if held && seconds < 1 {
            findings.push(Finding {
                level: Level::Warning,
                what: format!("Lease {name} has a holder and no duration; 15 s is assumed"),
                fix: Some("let its holder set leaseDurationSeconds".to_owned()),
            });
        }
    }
    Ok(findings)
}

fn of_version(version: &str, source: Source) -> Finding {
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse::<u32>().ok());
    let (level, what, fix) = match source {
        Source::Transitions => (
            Level::Warning,
            "tokens come from leaseTransitions: they start anew when a Lease is deleted (K3)"
                .to_owned(),
            Some("forbid deletion by RBAC, or use the resourceVersion".to_owned()),
        ),
        Source::Version { .. } if minor.is_some_and(|minor| minor < 35) => (
            Level::Warning,
            format!(
                "Kubernetes {version} does not promise that versions can be compared, though they can with etcd (K4)"
            ),
            Some("Kubernetes 1.35 and later promise it".to_owned()),
        ),
        Source::Version { .. } => (
            Level::Good,
            format!(
                "Kubernetes {version} promises that versions rise, so they are good tokens (K4)"
            ),
            None,
        ),
    };
    Finding { level, what, fix }
}
