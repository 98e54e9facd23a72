//! Nothing that was answered is missing after a crash, and the file opens (INV-7, T4).

use std::{path::Path, process::Command, thread, time::Duration};

use leasehold::{
    Key, Store, Token,
    core::Answer,
    store::{Level, sqlite::SqliteStore},
};

use crate::{
    ask::{acquire, answer, granted_within, name, place, random, skipped, ttl},
    child::{Process, number, token},
};

/// What a child said it was answered.
#[derive(Default)]
struct Answered {
    token: Option<Token>,
    pair: Option<u64>,
}

impl Answered {
    fn hear(&mut self, lines: &[String]) {
        for line in lines {
            match line.split(' ').next() {
                Some("token") => self.token = self.token.max(Some(token(line))),
                Some("pair") => self.pair = Some(number(line)),
                _ => {}
            }
        }
    }

    /// Everything is there, or something newer.
    async fn is_kept(&self, store: &dyn Store) {
        let status = store.status(&name("crash")).await.unwrap();
        let stored = status.and_then(|status| status.token);
        assert!(
            stored >= self.token,
            "INV-7: {:?} was answered, {stored:?} is stored",
            self.token
        );
        let pair = store.pair(&Key::new("crash").unwrap()).await.unwrap();
        let stored = pair.map(|pair| {
            String::from_utf8_lossy(pair.value.as_bytes())
                .parse::<u64>()
                .unwrap()
        });
        // The next one may have been stored and not answered.
        assert!(
            stored >= self.pair,
            "pair {:?} was answered, {stored:?} is stored",
            self.pair
        );
    }
}

async fn is_sound(store: &dyn Store) {
    let findings = store.examine().await.unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| finding.what.contains("is sound")),
        "{findings:?}"
    );
    assert!(
        findings.iter().all(|finding| finding.level < Level::Fault),
        "{findings:?}"
    );
}

/// INV-7: real processes, killed at random instants.
#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_answered() {
    let (_folder, path) = place();
    let mut last = None;
    for round in 0..12 {
        let child = Process::start("write", &path);
        assert_eq!(child.line(), "ready");
        thread::sleep(Duration::from_micros((random() % 60_000) as u64));
        let mut answered = Answered::default();
        answered.hear(&child.kill());
        let store = SqliteStore::open(&path).await.unwrap();
        answered.is_kept(&*store).await;
        is_sound(&*store).await;
        assert!(
            answered.token.is_none() || answered.token > last,
            "round {round}: INV-1"
        );
        last = answered.token.or(last);
    }
    assert!(last.is_some(), "no child ever came to a token");
}

/// FB-59: killed and started again under the same name; the lease is free after its ttl, with a larger token.
#[tokio::test]
async fn the_lease_of_a_killed_holder_comes_back_within_its_ttl() {
    let (_folder, path) = place();
    let child = Process::start("hold a", &path);
    assert_eq!(child.line(), "ready");
    let grant = child.line();
    assert!(grant.contains("Granted"), "{grant}");
    child.kill();
    let store = SqliteStore::open(&path).await.unwrap();
    let now = answer(
        store
            .apply(acquire("a", "child", random(), ttl(1_000)))
            .await,
    );
    assert!(
        matches!(&now, Answer::Held(held) if !held.yours),
        "its time is not over: {now:?}"
    );
    let next = granted_within(&*store, "a", ttl(1_000), Duration::from_secs(30)).await;
    assert_eq!(next.get(), 2);
}

/// T4. The image of a mounted file system, copied while its user is stopped, is what a power loss leaves: what was not
/// synced is in the page cache of the mount and not in the image. With `synchronous=OFF` this test goes red.
#[tokio::test]
async fn a_power_loss_loses_nothing_that_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let Some(disk) = Mounted::make(&image, folder.path().join("disk")) else {
        return skipped("no file system can be mounted here (root and loop devices are needed)");
    };
    for round in 0..4 {
        let child = Process::start("write", &disk.at.join("leases.db"));
        assert_eq!(child.line(), "ready");
        let mut answered = Answered::default();
        answered.hear(&[child.line()]);
        thread::sleep(Duration::from_millis((random() % 100) as u64));
        child.stop();
        thread::sleep(Duration::from_millis(20));
        answered.hear(&child.said());
        let copy = folder.path().join(format!("copy-{round}.img"));
        std::fs::copy(&image, &copy).unwrap();
        child.kill();

        let after = Mounted::mount(&copy, folder.path().join(format!("after-{round}"))).unwrap();
        let store = SqliteStore::open(after.at.join("leases.db")).await.unwrap();
        answered.is_kept(&*store).await;
        is_sound(&*store).await;
        drop(store);
        thread::sleep(Duration::from_millis(50));
    }
}

/// A file system in a file.
struct Mounted {
    at: std::path::PathBuf,
}

impl Mounted {
    fn make(image: &Path, at: std::path::PathBuf) -> Option<Self> {
        let file = std::fs::File::create(image).ok()?;
        file.set_len(32 << 20).ok()?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))?;
        Self::mount(image, at)
    }

    fn mount(image: &Path, at: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).ok()?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(&at))?;
        Some(Self { at })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for _ in 0..100 {
            if run(Command::new("umount").arg(&self.at)).is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        run(Command::new("umount").arg("-l").arg(&self.at));
    }
}

fn run(command: &mut Command) -> Option<()> {
    let output = command.output().ok()?;
    output.status.success().then_some(())
}
