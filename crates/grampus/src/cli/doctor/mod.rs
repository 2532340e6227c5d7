//! `grampus doctor`: what would go wrong on this machine, and what to do.
//!
//! Each file holds one kind of fact: a struct, a function that reads it from the machine, and pure functions from it
//! to a [`Check`]. Nothing is changed on the machine, and every look at it ends by a deadline.

mod check;
mod command;
mod folders;
mod gpu;
mod kernel;
mod limits;
mod network;
mod python;

use std::thread;

use clap::Args;

use self::check::{Check, passed, report, text};
use super::terminal::{Terminal, end_on_interrupt, put};

/// Exit codes: 0 where no check fails, warnings or not; 1 otherwise.
#[derive(Args)]
pub(super) struct DoctorArguments {
    /// Print the checks as JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Runs it; returns the exit code.
pub(super) fn main(arguments: &DoctorArguments, python: Option<String>) -> i32 {
    end_on_interrupt();
    let checks = checks(&Facts::read(python));
    let shown = if arguments.json {
        format!("{:#}\n", report(&checks))
    } else {
        text(&checks, &Terminal::of_output())
    };
    put(&shown, i32::from(!passed(&checks)))
}

/// All that the checks are about.
struct Facts {
    kernel: kernel::Kernel,
    limits: limits::Limits,
    network: network::Network,
    folders: folders::Folders,
    python: python::Python,
    java: python::Java,
    gpu: gpu::Gpu,
}

impl Facts {
    /// Reads them; those that may have to be waited for at the same time.
    fn read(python: Option<String>) -> Self {
        thread::scope(|scope| {
            let network = scope.spawn(network::Network::read);
            let java = scope.spawn(python::Java::read);
            let python = python::Python::read(python);
            Self {
                kernel: kernel::Kernel::read(),
                limits: limits::Limits::read(),
                folders: folders::Folders::read(),
                gpu: gpu::Gpu::read(),
                python,
                java: java.join().unwrap_or(python::Java::Missing),
                network: network.join().unwrap_or_default(),
            }
        })
    }
}

fn checks(facts: &Facts) -> Vec<Check> {
    let Facts {
        kernel,
        limits,
        network,
        folders,
        python,
        java,
        gpu,
    } = facts;
    vec![
        kernel::kernel(kernel),
        kernel::shared_memory(kernel),
        limits::open_files(&limits.files),
        limits::processes(&limits.processes),
        limits::cores(&limits.cores),
        limits::memory(&limits.memory),
        network::localhost(&network.localhost),
        network::host_name(&network.name, &network.own),
        network::ports(&network.ports),
        folders::runtime(&folders.runtime),
        folders::temporary(&folders.temporary),
        python::interpreter(python),
        python::wheel(python, env!("CARGO_PKG_VERSION")),
        python::frameworks(python),
        python::engines(python),
        python::libraries(python),
        python::java(java, python.version_of("pyspark").is_some()),
        gpu::gpu(gpu, python.version_of("torch")),
    ]
}
