//! What `doctor` learns about an etcd: each finding names what was seen, and what mends it.

use etcd_client::{AlarmAction, AlarmType};

use super::{Inner, address::Address};
use crate::{
    StoreError,
    store::{Finding, Level},
};

/// Versions from which on a keep-alive of a revoked lease is refused (ET3).
const SOUND: [(u32, u32, u32); 3] = [(3, 4, 38), (3, 5, 23), (3, 6, 5)];

impl Inner {
    pub(super) async fn examine(&self, address: &Address) -> Result<Vec<Finding>, StoreError> {
        let mut client = self.link.client();
        let status = self.link.read(client.status()).await?;
        let mut findings = vec![version(status.version())];
        findings.extend(status.errors().iter().map(|error| {
            finding(
                Level::Fault,
                format!("etcd says of itself: {error}"),
                "etcdctl endpoint status -w table; etcdctl alarm list",
            )
        }));
        if let Ok(members) = self.link.read(client.member_list()).await {
            findings.push(quorum(members.members().len()));
        }
        let alarms = client.alarm(AlarmAction::Get, AlarmType::None, None);
        if let Ok(alarms) = self.link.read(alarms).await {
            findings.extend(alarms.alarms().iter().map(|alarm| match alarm.alarm() {
                AlarmType::Nospace => finding(
                    Level::Fault,
                    "etcd is out of space: nobody gets a lease any more, holders can still renew (ET11)".into(),
                    "etcdctl compact REVISION; etcdctl defrag; etcdctl alarm disarm",
                ),
                other => finding(Level::Fault, format!("etcd raised an alarm: {other:?}"), "etcdctl alarm list"),
            }));
        }
        if address.plain {
            findings.push(finding(
                Level::Warning,
                "what is said to etcd can be read and changed on the way".into(),
                "use TLS: etcd://…?ca=FILE",
            ));
        }
        Ok(findings)
    }
}

/// Warns of servers whose keep-alives are known to tell what is not true (ET3, FB-21).
pub(super) fn version(text: &str) -> Finding {
    let numbers: Vec<u32> = text
        .split('.')
        .filter_map(|part| part.parse().ok())
        .collect();
    let sound = match numbers[..] {
        [major, minor, patch, ..] => {
            let same = SOUND
                .iter()
                .find(|sound| (sound.0, sound.1) == (major, minor));
            same.map_or((major, minor) > (3, 6), |sound| patch >= sound.2)
        }
        _ => false,
    };
    match sound {
        true => finding(Level::Good, format!("etcd {text}"), ""),
        false => finding(
            Level::Warning,
            format!(
                "etcd {text} may answer a keep-alive for a lease that is over; every renewal is confirmed by a read"
            ),
            "use etcd 3.4.38, 3.5.23, 3.6.5 or later; or add renew=raft to the URL",
        ),
    }
}

fn quorum(members: usize) -> Finding {
    match members {
        0..=2 => finding(
            Level::Warning,
            format!("etcd has {members} member: when it is away nobody gets or keeps a lease"),
            "run three members",
        ),
        _ => finding(Level::Good, format!("{members} members"), ""),
    }
}

fn finding(level: Level, what: String, fix: &str) -> Finding {
    let fix = (!fix.is_empty()).then(|| fix.to_owned());
    Finding { level, what, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_known_faults_are_warned_of() {
        for (text, level) in [
            ("3.4.23", Level::Warning),
            ("3.4.38", Level::Good),
            ("3.5.22", Level::Warning),
            ("3.5.23", Level::Good),
            ("3.6.4", Level::Warning),
            ("3.6.16", Level::Good),
            ("3.7.0", Level::Good),
            ("3.3.99", Level::Warning),
            ("4.0.0", Level::Good),
            ("", Level::Warning),
            ("not.a.version", Level::Warning),
        ] {
            assert_eq!(version(text).level, level, "{text}");
        }
    }
}
