//! `delete`: removes a value, plain or under a lease. A delete under the lease sets the key free for everybody.

use leasehold::{Key, core::Op};

use crate::{
    app::App,
    exit::{Exit, Failure},
    parse,
    put::{self, ProofArgs},
};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Deleting what is not there is fine.

Examples:
  leasehold delete report
  leasehold delete report --lease nightly --token 2")]
pub(crate) struct Delete {
    /// The key
    #[arg(value_parser = parse::key())]
    key: Key,
    #[command(flatten)]
    proof: ProofArgs,
}

impl Delete {
    pub(crate) async fn run(self, app: &App) -> Result<Exit, Failure> {
        let proof = self.proof.proof()?;
        let delete = Op::Delete {
            key: self.key.clone(),
            proof: proof.clone(),
        };
        put::write(app, delete).await?;
        put::tell(app, "deleted", &self.key, proof.as_ref())
    }
}
