//! `list`: who holds what.

use leasehold::core::State;

use crate::{
    app::App,
    exit::{Exit, Failure},
    out, parse, show,
    view::LeaseView,
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold list
  leasehold list team-a/ --held
  leasehold list --json | jq -r 'select(.state == \"held\") | .holder'")]
pub(crate) struct List {
    /// Only leases whose names begin with this
    #[arg(default_value = "", hide_default_value = true, value_parser = parse::prefix())]
    prefix: String,
    /// Only leases that somebody holds
    #[arg(long)]
    held: bool,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

impl List {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let store = app.open().await?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut leases = store.list(&self.prefix, limit.saturating_add(1)).await?;
        let more = leases.len() > limit;
        leases.truncate(limit);
        leases.retain(|lease| !self.held || lease.state == State::Held);
        if app.json {
            out::jsons(leases.iter().map(LeaseView::of))?;
        } else if leases.is_empty() {
            out::note(match (self.held, self.prefix.as_str()) {
                (true, _) => "nobody holds a lease",
                (false, "") => "there is no lease yet",
                (false, _) => "no lease has such a name",
            });
        } else {
            let rows = leases.iter().map(|lease| {
                [
                    lease.name.to_string(),
                    show::state(lease).to_owned(),
                    show::or_dash(lease.token.as_ref()),
                    show::or_dash(lease.holder.as_ref()),
                    show::left(lease),
                    show::or_dash(lease.info.as_ref()),
                ]
            });
            show::table(["LEASE", "STATE", "TOKEN", "HOLDER", "TIME", "INFO"], rows)?;
        }
        if more {
            out::note(&format!(
                "there are more than {limit}: name a prefix, or raise --limit"
            ));
        }
        Ok(Exit::DONE)
    }
}
