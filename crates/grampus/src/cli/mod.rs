//! The `grampus` command.

mod audit;
mod doctor;
mod jobs;
mod logs;
mod run;
mod status;
mod table;
mod terminal;

use std::io::{self, Write};

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, generate};

/// Runs model code on many workers.
#[derive(Parser)]
#[command(name = "grampus", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start N ranks of a script, a module or any program, on one host or several
    Run(Box<run::RunArguments>),
    /// Look for what would go wrong on this machine, and say what to do
    Doctor(doctor::DoctorArguments),
    /// Show the jobs of this user that run on this machine
    Status(status::StatusArguments),
    /// Show what the ranks of a running job write
    Logs(logs::LogsArguments),
    /// Prove from the ledger of a run that each row was used once per epoch
    Audit(audit::AuditArguments),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Serve as the supervisor of this host (started by `grampus run`)
    #[command(hide = true)]
    Supervise,
}

/// Runs the command with the given arguments, the first of which is the program's name; returns its exit
/// code. `python` is the interpreter for scripts; without one, `python3` is looked for.
pub fn main(arguments: Vec<String>, python: Option<String>) -> i32 {
    let cli = match Cli::try_parse_from(run::with_dashes(arguments)) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed terminal is no reason to fail in another way.
            let _ = error.print();
            return error.exit_code();
        }
    };
    match cli.command {
        Command::Run(arguments) => run::main(*arguments, python),
        Command::Doctor(arguments) => doctor::main(&arguments, python),
        Command::Status(arguments) => status::main(&arguments),
        Command::Logs(arguments) => logs::main(&arguments),
        Command::Audit(arguments) => audit::main(&arguments),
        Command::Completions { shell } => {
            generate(shell, &mut Cli::command(), "grampus", &mut io::stdout());
            0
        }
        Command::Supervise => match grampus_cluster::supervisor::supervise(None) {
            Ok(()) => 0,
            Err(error) => fail(&error.to_string()),
        },
    }
}

/// Says what went wrong; the exit code of a command that could not do its work.
fn fail(why: &str) -> i32 {
    say(why);
    1
}

/// The exit code tells as much where standard error takes nothing.
fn say(why: &str) {
    let _ = writeln!(io::stderr(), "grampus: {why}");
}
