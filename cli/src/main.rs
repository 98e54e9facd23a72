//! The command `leasehold`. Reads the arguments, hands over to the file of the command, and turns its end into an exit
//! code: [`exit`] has all of them.

mod acquire;
mod admin;
mod app;
mod args;
mod ask;
mod asking;
mod check;
mod completions;
mod delete;
mod demo;
mod doctor;
mod exit;
#[cfg(test)]
mod flaky;
mod get;
mod history;
mod identity;
mod list;
mod man;
mod migrate;
mod out;
mod parse;
mod put;
mod release;
mod renew;
mod run;
mod serve;
mod show;
mod socket;
mod sql;
mod status;
mod stop;
mod supervise;
mod token;
mod twins;
mod view;
mod watch;

use std::process::ExitCode;

use app::App;
use args::{Cli, Command};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    if let Some(code) = supervise::inner_stage().or_else(demo::inner_stage) {
        return code;
    }
    let json = args::asks_for_json(std::env::args_os());
    let end = args::parse(std::env::args_os()).and_then(start);
    exit::finish(end, json)
}

fn start(cli: Cli) -> Result<Exit, Failure> {
    app::log();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime does not start: {error}")))?;
    let app = App::new(cli.global);
    runtime.block_on(run(cli.command, &app))
}

async fn run(command: Command, app: &App) -> Result<Exit, Failure> {
    match command {
        Command::Run(command) => command.run(app).await,
        Command::Demo(command) => command.run(app).await,
        Command::Acquire(command) => command.run(app).await,
        Command::Renew(command) => command.run(app).await,
        Command::Release(command) => command.run(app).await,
        Command::Check(command) => command.run(app).await,
        Command::List(command) => command.run(app).await,
        Command::Status(command) => command.run(app).await,
        Command::Watch(command) => command.run(app).await,
        Command::History(command) => command.run(app).await,
        Command::Put(command) => command.run(app).await,
        Command::Get(command) => command.run(app).await,
        Command::Delete(command) => command.run(app).await,
        Command::Serve(command) => command.run(app).await,
        Command::Token(command) => command.run(app),
        Command::Doctor(command) => command.run(app).await,
        Command::Admin(command) => command.run(app).await,
        Command::Sql(command) => command.run(),
        Command::Migrate(command) => command.run(app).await,
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
    }
}
