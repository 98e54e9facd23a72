//! What `doctor` learns about a store file: each finding names what was seen and what to do.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::{
    columns::RowError,
    place::Place,
    read::Tables,
    schema::About,
    side::{Side, SideFile},
};
use crate::store::{Finding, Level};

/// A file larger than this is worth a look: a million leases take about a quarter of it.
const LARGE: u64 = 1 << 30;

/// What the reading thread can see. Damage that a full check would find in a large file may be missed by this quick one.
pub(super) fn examine(
    tables: &Tables<'_>,
    place: &Place,
    watched: bool,
) -> Result<Vec<Finding>, RowError> {
    let db = tables.db;
    let mut findings = vec![good(format!(
        "SQLite {}, file {}",
        rusqlite::version(),
        place.database().display()
    ))];
    let check: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if check != "ok" {
        findings.push(finding(
            Level::Fault,
            format!("the file is damaged: {check}"),
            "stop everything that uses it and put back a copy; tokens go on above all that were issued",
        ));
        return Ok(findings);
    }
    findings.push(good("the file is sound (quick check)".into()));
    findings.push(good(format!(
        "the clock is the boot time of boot {}, without what a time namespace adds",
        tables.boot()
    )));
    findings.push(disk(place));
    findings.push(restored(About::load(db)?, place));
    let foreign: i64 = db.query_row(
        "SELECT count(*) FROM lease WHERE boot <> ?1 AND token IS NOT NULL AND released IS NOT 1",
        [tables.boot()],
        |row| row.get(0),
    )?;
    if foreign > 0 {
        findings.push(finding(
            Level::Warning,
            format!(
                "{foreign} leases were written before a reboot, or on another machine: each is kept for its full \
                 time from when somebody asks for it"
            ),
            "nothing, if there was a reboot; otherwise see that only one machine uses the file",
        ));
    }
    findings.extend(modes(place));
    if !watched {
        findings.push(finding(
            Level::Warning,
            "the wake file cannot be watched, so waiters learn of a release only when they ask again".into(),
            "raise fs.inotify.max_user_instances",
        ));
    }
    Ok(findings)
}

/// A store on a shared file system does not open; one may have been mounted over it since.
fn disk(place: &Place) -> Finding {
    match place.file_system() {
        Ok((magic, None)) => good(format!("the file system is a local one ({magic:#x})")),
        Ok((_, Some(kind))) => finding(
            Level::Fault,
            format!("the file is on {kind}, which several machines may see"),
            "put it on a local disk",
        ),
        Err(error) => finding(
            Level::Warning,
            format!("the file system cannot be asked what it is: {error}"),
            "see that the store is on a local disk",
        ),
    }
}

fn restored(about: Option<About>, place: &Place) -> Finding {
    let side = side(place);
    match (about, side) {
        (None, _) => finding(
            Level::Fault,
            "the file has lost its description of itself".into(),
            "put back a copy",
        ),
        (Some(about), Ok((side, inode))) if about.was_restored(side.as_ref(), inode) => finding(
            Level::Warning,
            "the file was put back from a copy, or its side file (.lock) was removed".into(),
            "nothing: the next write puts every lease in quarantine for its ttl and goes on with larger tokens",
        ),
        (Some(about), Ok(_)) => good(format!(
            "{} commits, and the side file agrees",
            about.commits
        )),
        (Some(_), Err(error)) => finding(
            Level::Fault,
            format!("the side file (.lock) cannot be read: {error}"),
            "make it readable and writable for all who use the store",
        ),
    }
}

fn side(place: &Place) -> std::io::Result<(Option<Side>, u64)> {
    let file = SideFile::new(fs::File::open(place.side())?)?;
    Ok((file.read()?, file.inode()))
}

/// Who else may write, and how large it is.
fn modes(place: &Place) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others = |path: &Path| fs::metadata(path).is_ok_and(|about| about.mode() & 0o002 != 0);
    for path in [place.database(), &place.side(), &place.wake()] {
        if others(path) {
            findings.push(finding(
                Level::Fault,
                format!("every user of this machine may write {}", path.display()),
                "chmod o-w, or move the store where only its users may write",
            ));
        }
    }
    let folder = fs::metadata(place.folder()).map_or(0, |about| about.mode());
    if folder & 0o1002 == 0o002 {
        findings.push(finding(
            Level::Fault,
            format!(
                "every user of this machine may replace files in {}",
                place.folder().display()
            ),
            "chmod o-w the folder, or move the store",
        ));
    }
    let size = fs::metadata(place.database()).map_or(0, |about| about.len());
    findings.push(match size > LARGE {
        true => finding(
            Level::Warning,
            format!("the file has {} MB", size >> 20),
            "run `leasehold admin gc`; then see what `leasehold list` shows",
        ),
        false => good(format!("the file has {} kB", size >> 10)),
    });
    findings
}

fn good(what: String) -> Finding {
    Finding {
        level: Level::Good,
        what,
        fix: None,
    }
}

fn finding(level: Level, what: String, fix: &str) -> Finding {
    Finding {
        level,
        what,
        fix: Some(fix.to_owned()),
    }
}
