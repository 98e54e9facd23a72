//! Ten holders fight for one lease. Some die with it.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    task::Poll,
    time::Duration,
};

use leasehold_core::{Answer, LeaseName, Token};

use super::{
    Suite, Time,
    ask::{Asker, request},
};

const HOLDERS: u32 = 10;
const TURNS: u32 = 5;

/// INV-1, INV-2, INV-11: everybody gets all its turns, never two at once, and tokens only rise.
pub(super) async fn ten_holders_fight_for_one_lease(suite: &Suite<'_>) {
    let race = Race {
        name: suite.lease("race"),
        inside: Cell::new(false),
        tokens: RefCell::default(),
    };
    together((0..HOLDERS).map(|number| race.run(suite, number))).await;
    let tokens = race.tokens.borrow();
    assert_eq!(tokens.len() as u32, HOLDERS * TURNS);
    assert!(
        tokens.is_sorted_by(|one, next| one < next),
        "INV-1: {tokens:?}"
    );
}

struct Race {
    name: LeaseName,
    /// Whether somebody holds who has neither released nor died.
    inside: Cell<bool>,
    tokens: RefCell<Vec<Token>>,
}

impl Race {
    async fn run(&self, suite: &Suite<'_>, number: u32) {
        let me = Asker::new(&format!("holder {number}"));
        for turn in 0..TURNS {
            let token = self.win(suite, &me).await;
            assert!(
                !self.inside.replace(true),
                "{token} was granted while somebody held"
            );
            self.tokens.borrow_mut().push(token);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            self.inside.set(false);
            let dies = (number + turn).is_multiple_of(10);
            if !dies {
                assert_eq!(
                    suite.release(&self.name, &me, token).await,
                    Answer::Released
                );
            }
        }
    }

    async fn win(&self, suite: &Suite<'_>, me: &Asker) -> Token {
        let asked = me.acquire(request(), suite.short());
        loop {
            match suite.acquire(&self.name, asked.clone()).await {
                Answer::Granted(grant) => return grant.token,
                // Its own earlier tenure, which it died with.
                Answer::Held(_) | Answer::Quarantined { .. } | Answer::Delayed { .. } => {}
                other => panic!("{} was answered {other:?}", me.holder),
            }
            match suite.time {
                Time::Real => tokio::time::sleep(Duration::from_millis(3)).await,
                Time::Virtual(advance) => {
                    advance(Duration::from_millis(1));
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// All futures at once, on this task.
pub(super) async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures
        .into_iter()
        .map(|future| (Box::pin(future), None))
        .collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => waiting = true,
            }
        }
        if waiting {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    running
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}
