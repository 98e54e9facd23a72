//! The engine's calls to other members, over whatever transport there is.

use std::{future::Future, io, sync::Arc, time::Duration};

use openraft::{
    RaftNetworkFactory,
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::{RPCOption, RaftNetworkV2},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
        TransferLeaderResponse, VoteRequest, VoteResponse,
    },
};

use crate::{
    codec::{Ballot, Extent, Id, Item},
    snapshot::Image,
    transport::{NoAnswer, Peer, Transport},
    types::{Address, LogId, Types, Vote},
    wire::{Appended, Request, Response},
};

type Snapshot = openraft::alias::SnapshotOf<Types, Image>;

/// Makes a way to each member.
#[derive(Clone, Debug)]
pub(crate) struct Network(pub(crate) Arc<dyn Transport>);

/// The way to one member.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    transport: Arc<dyn Transport>,
    peer: Peer,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Way;

    async fn new_client(&mut self, target: u64, node: &Address) -> Way {
        Way {
            transport: self.0.clone(),
            peer: Peer {
                node: Some(target),
                address: node.0.clone(),
            },
        }
    }
}

impl Way {
    async fn call(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<Response, RPCError<Types>> {
        match self.transport.call(&self.peer, request, patience).await {
            Ok(Response::Failed(why)) => Err(unusual(&why)),
            Ok(response) => Ok(response),
            Err(NoAnswer::NotSent(why)) => Err(RPCError::Unreachable(Unreachable::new(
                &io::Error::other(why),
            ))),
            Err(NoAnswer::Lost(why)) => Err(unusual(&why)),
        }
    }

    async fn ask_vote(
        &self,
        pre: bool,
        asked: VoteRequest<Types>,
        option: &RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let request = Request::Vote {
            pre,
            vote: Ballot::from(&asked.vote),
            last: asked.last_log_id.as_ref().map(Id::from),
            transfer: asked.leadership_transfer,
        };
        match self.call(&request, option.hard_ttl()).await? {
            Response::Voted {
                vote,
                granted,
                last,
            } => Ok(VoteResponse::new(
                Vote::from(vote),
                last.map(LogId::from),
                granted,
            )),
            _ => Err(unusual("an odd response to a vote")),
        }
    }
}

fn unusual(why: &str) -> RPCError<Types> {
    RPCError::Network(NetworkError::new(&io::Error::other(why.to_owned())))
}

impl RaftNetworkV2<Types> for Way {
    type SnapshotData = Image;

    async fn append_entries(
        &mut self,
        asked: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let request = Request::Append {
            vote: Ballot::from(&asked.vote),
            prev: asked.prev_log_id.as_ref().map(Id::from),
            entries: asked.entries.iter().map(Item::from).collect(),
            committed: asked.leader_commit.as_ref().map(Id::from),
        };
        match self.call(&request, option.hard_ttl()).await? {
            Response::Appended(appended) => Ok(match appended {
                Appended::Success => AppendEntriesResponse::Success,
                Appended::Partial(last) => {
                    AppendEntriesResponse::PartialSuccess(last.map(LogId::from))
                }
                Appended::Conflict => AppendEntriesResponse::Conflict,
                Appended::HigherVote(vote) => AppendEntriesResponse::HigherVote(vote.into()),
            }),
            _ => Err(unusual("an odd response to entries")),
        }
    }

    async fn vote(
        &mut self,
        asked: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(false, asked, &option).await
    }

    async fn pre_vote(
        &mut self,
        asked: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(true, asked, &option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let request = Request::Snapshot {
            vote: Ballot::from(&vote),
            extent: Extent::from(&snapshot.meta),
            image: snapshot.snapshot,
        };
        let response = tokio::select! {
            biased;
            response = self.call(&request, option.hard_ttl()) => response,
            closed = cancel => return Err(StreamingError::Closed(closed)),
        };
        match response {
            Ok(Response::Installed { vote }) => Ok(SnapshotResponse::new(vote.into())),
            Ok(_) => {
                let odd = io::Error::other("an odd response to a snapshot");
                Err(StreamingError::Network(NetworkError::new(&odd)))
            }
            Err(error) => {
                let error = io::Error::other(error.to_string());
                Err(StreamingError::Unreachable(Unreachable::new(&error)))
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        asked: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let request = Request::Transfer {
            from: Ballot::from(asked.from_leader()),
            to: *asked.to_node_id(),
            last: asked.last_log_id().map(Id::from),
        };
        match self.call(&request, option.hard_ttl()).await? {
            Response::Transferred(None) => Ok(Ok(())),
            Response::Transferred(Some(why)) => Err(unusual(&why)),
            _ => Err(unusual("an odd response to a transfer")),
        }
    }
}
