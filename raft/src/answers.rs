//! What a member answers to others.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest,
};
use tokio::time::Instant;

use crate::{
    codec::{Ballot, Extent, Id, Item, Malformed},
    node::Node,
    snapshot::Image,
    transport::Answers,
    types::{Entry, LogId, SnapshotMeta, Types, Vote},
    wire::{Appended, Failed, Request, Response},
};

type Snapshot = openraft::alias::SnapshotOf<Types, Image>;

/// The node, answering.
pub(crate) struct Desk(pub(crate) Arc<Node>);

#[async_trait]
impl Answers for Desk {
    async fn answer(&self, request: Request) -> Response {
        let node = &self.0;
        let response = match request {
            Request::Append {
                vote,
                prev,
                entries,
                committed,
            } => node.take_entries(vote, prev, entries, committed).await,
            Request::Vote {
                pre,
                vote,
                last,
                transfer,
            } => node.vote(pre, vote, last, transfer).await,
            Request::Snapshot {
                vote,
                extent,
                image,
            } => node.install(vote, extent, image).await,
            Request::Transfer { from, to, last } => node.take_over(from, to, last).await,
            Request::Apply { acts, patience_ms } => {
                let until = self.until(patience_ms);
                match node.submit(acts, until, true) {
                    Ok(answer) => Ok(match answer.await {
                        Ok(Some(came)) => Response::Applied(came),
                        Ok(None) => Response::NotLeading,
                        Err(_) => return Response::Failed("this member has stopped".into()),
                    }),
                    // Nothing was done; whoever asked may ask again.
                    Err(_) => Ok(Response::NotLeading),
                }
            }
            Request::Read {
                question,
                patience_ms,
            } => Ok(
                match node.read(question, self.until(patience_ms), true).await {
                    Some(result) => Response::Read(Box::new(result)),
                    None => Response::NotLeading,
                },
            ),
            Request::Change {
                change,
                patience_ms,
            } => {
                // A newcomer asks any member; only a member that was asked by a member turns away.
                let until = self.until(patience_ms);
                Ok(Response::Changed(
                    match node.change(change, until, false).await {
                        Some(result) => result,
                        None => Err(Failed::Unavailable("no member leads".into())),
                    },
                ))
            }
            Request::Report => Ok(Response::Report(Box::new(node.report()))),
        };
        response.unwrap_or_else(Response::Failed)
    }

    async fn adopt(&self, cluster: u128) -> Result<(), String> {
        self.0.become_member_of(cluster).await
    }
}

impl Desk {
    /// Until when to try: no longer than this member tries for its own callers.
    fn until(&self, patience_ms: u64) -> Instant {
        Instant::now()
            + Duration::from_millis(patience_ms).min(self.0.patience.max(Duration::from_secs(60)))
    }
}

impl Node {
    async fn take_entries(
        &self,
        vote: Ballot,
        prev: Option<Id>,
        entries: Vec<Item>,
        committed: Option<Id>,
    ) -> Result<Response, String> {
        let entries: Result<Vec<Entry>, Malformed> = entries.into_iter().map(Item::entry).collect();
        let request = AppendEntriesRequest {
            vote: Vote::from(vote),
            prev_log_id: prev.map(LogId::from),
            entries: entries.map_err(text)?,
            leader_commit: committed.map(LogId::from),
        };
        let response = self.engine.append_entries(request).await.map_err(text)?;
        Ok(Response::Appended(match response {
            AppendEntriesResponse::Success => Appended::Success,
            AppendEntriesResponse::PartialSuccess(last) => {
                Appended::Partial(last.as_ref().map(Id::from))
            }
            AppendEntriesResponse::Conflict => Appended::Conflict,
            AppendEntriesResponse::HigherVote(vote) => Appended::HigherVote(Ballot::from(&vote)),
        }))
    }

    async fn vote(
        &self,
        pre: bool,
        vote: Ballot,
        last: Option<Id>,
        transfer: bool,
    ) -> Result<Response, String> {
        let mut request = VoteRequest::<Types>::new(Vote::from(vote), last.map(LogId::from));
        request.leadership_transfer = transfer;
        let response = match pre {
            true => self.engine.pre_vote(request).await,
            false => self.engine.vote(request).await,
        };
        let response = response.map_err(text)?;
        Ok(Response::Voted {
            vote: Ballot::from(&response.vote),
            granted: response.vote_granted,
            last: response.last_log_id.as_ref().map(Id::from),
        })
    }

    async fn install(
        &self,
        vote: Ballot,
        extent: Extent,
        image: Image,
    ) -> Result<Response, String> {
        // What the image says of itself counts, not what came beside it.
        let own = image.contents().map_err(text)?.extent;
        if own != extent {
            return Err("the snapshot is not what it is said to be".into());
        }
        let snapshot = Snapshot {
            meta: SnapshotMeta::try_from(extent).map_err(text)?,
            snapshot: image,
        };
        let installed = self
            .engine
            .install_full_snapshot(Vote::from(vote), snapshot);
        let response = installed.await.map_err(text)?;
        Ok(Response::Installed {
            vote: Ballot::from(&response.vote),
        })
    }

    async fn take_over(&self, from: Ballot, to: u64, last: Option<Id>) -> Result<Response, String> {
        let request =
            TransferLeaderRequest::<Types>::new(Vote::from(from), to, last.map(LogId::from));
        let result = self
            .engine
            .handle_transfer_leader(request)
            .await
            .map_err(text)?;
        Ok(Response::Transferred(result.err().map(text)))
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
