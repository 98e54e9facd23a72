//! What the demo tells a reader who has never heard of fencing tokens.

use std::time::Duration;

use super::{picture::seconds, story::Plot};

pub(crate) const TITLE: &str = "One writer at a time, even when one of them freezes";

pub(crate) const INTRO: &str = "Two programs, @a and @b, may write the nightly report. Only one of \
them should, or they overwrite each other. So each asks a third one, the store, for a *lease*: a lock \
that runs out by itself unless its holder renews it. These processes are real and running now:";

pub(crate) const BY_HAND: &str = "This program moves the clock of the store by hand, so that nobody \
has to wait, and every run is the same.";

pub(crate) fn real(plot: &Plot) -> String {
    format!(
        "The store is yours, and nobody moves its clock by hand: in the middle, {} seconds have to \
        pass. The lease is called {}.",
        seconds(plot.freeze),
        plot.lease
    )
}

pub(crate) const STEP_1: &str = "1. a takes the lease";

pub(crate) fn step_1(plot: &Plot) -> String {
    format!(
        "@a asks for the lease for {} seconds. It is free, so @a gets it, together with a *token*: a \
        number that grows each time the lease changes hands. @b asks too, and hears who has it.",
        seconds(plot.ttl_a.get())
    )
}

pub(crate) const STEP_2: &str = "2. a freezes, and b takes over";

pub(crate) fn freeze(plot: &Plot, left: Duration) -> String {
    let left = seconds(left);
    let what = match plot.reports {
        true => "its report",
        false => "something",
    };
    format!(
        "@a wants to write {what}, so it checks its lease first. The store says: yours, {left} seconds \
        left. And there, before it writes, @a freezes. This is a real SIGSTOP; `ps` would show state T, \
        for stopped. A garbage collector, a suspended virtual machine or an overloaded host can stop \
        any program like this, between any two of its lines."
    )
}

pub(crate) fn take_over(plot: &Plot) -> String {
    let (freeze, ttl) = (seconds(plot.freeze), seconds(plot.ttl_a.get()));
    let mut text = format!(
        "{freeze} seconds pass on the store's clock; the lease of @a ran out after {ttl}. Has its holder \
        crashed, was it cut off, or does it sleep? Nobody can tell, and nobody has to: the clock \
        decides. @b asks again and gets the lease, with a larger token."
    );
    if plot.reports {
        text += " It writes its report to two places. The first takes whatever is written there: a \
            *plain* write. The second wants to see the token with every write: a *fenced* write.";
    }
    text
}

pub(crate) const STEP_3: &str = "3. a wakes up";

pub(crate) fn wake_up(plot: &Plot) -> String {
    let mut text = format!(
        "@a goes on where it stood (SIGCONT). The last thing it knows is that the lease is its own; \
        that {} seconds lie between, it cannot feel.",
        seconds(plot.freeze)
    );
    text += match plot.reports {
        true => " So it writes its report to the same two places, and then we read them:",
        false => {
            " This store keeps no data, so there is nothing here to overwrite; in your database \
            there would be."
        }
    };
    text
}

pub(crate) const LOST: &str = "The plain report of @b is lost: @a overwrote it, long after its time, \
and nobody noticed. One more check before the write would not help, since a freeze fits in behind every \
check.";

pub(crate) const SAFE: &str = "The fenced report of @b is safe: the store compared the token in the same \
step as the write, found it older than the newest one, and refused. That is also how @a learns what \
happened. It has to stop its work, and if it wants the lease again it asks like everybody else:";

pub(crate) const PICTURE: &str = "Who held the lease, and when";

pub(crate) const REMEMBER: &str = "What to remember";

pub(crate) const LESSON: &str = "A lease decides who *should* act; it cannot stop somebody who sleeps \
through its end. A token decides whose writes *count*, wherever it is checked in one step with the \
write. What cannot check a token, like a mail or a card payment, needs a list of what was already done.";

pub(crate) const NEXT: &str = "Now run a job of your own under a lease. Type this in two terminals at \
once; the second waits for the first, and gets a larger token:";

pub(crate) const COMMAND: &str = "leasehold run nightly -- sh -c 'echo $LEASEHOLD_TOKEN; sleep 5'";

pub(crate) const MORE: &str = "Why two nodes cannot settle this between themselves: `leasehold demo \
--split`. This story on a real store: `leasehold demo --store sqlite:demo.db`.";

pub(crate) fn tidied(plot: &Plot) -> String {
    let mut text = String::new();
    if plot.reports {
        text += "The two reports are deleted again. ";
    }
    if !plot.history {
        return text + "This store keeps no history, so the story is told only here.";
    }
    text += &format!(
        "What happened is in the history of the store: `leasehold history {}`, with the same --store.",
        plot.lease
    );
    text
}

/// `--split`.
pub(crate) mod split {
    pub(crate) const TITLE: &str = "Two nodes that cannot see each other";

    pub(crate) const INTRO: &str = "Two nodes, @a and @b, share a job that must run on one of them \
        only, a *singleton*. These processes are real and running now:";

    pub(crate) const STEP_1: &str = "1. They see each other";

    pub(crate) const RULE: &str = "Each node decides by whom it sees. The rule is a usual one: of all \
        the nodes that I see, the first by name runs the job. It works while everybody sees everybody:";

    pub(crate) const STEP_2: &str = "2. The link between them is cut";

    pub(crate) const CUT: &str = "Both nodes are well; only the network between them is broken. From \
        either side that looks exactly as if the other one had crashed, so each does what the rule says:";

    pub(crate) const TWICE: &str = "The job runs twice. No better rule would help, as long as it only \
        looks at what a node can see. (Asking for a majority helps, and needs at least three nodes: \
        that is what a consensus store does.)";

    pub(crate) const STEP_3: &str = "3. Something outside them decides";

    pub(crate) const LEASE: &str = "The link is still cut. But both nodes can reach the store, and now \
        each asks it for a *lease* before it runs the job:";

    pub(crate) const ONCE: &str = "A node that cannot reach the store cannot renew its lease. It stops \
        before the lease runs out, and the other one gets it. What if it freezes and does not stop in \
        time? That story, and what to do about it, is `leasehold demo`.";
}
