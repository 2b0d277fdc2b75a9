//! The commands that measure, simulate and convert. They are in a separate program, `carina-tools`,
//! so that `carina` stays small: `carina bench` starts `carina-tools`, as git starts its
//! subcommands.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Shared;
use crate::commands;
use crate::commands::demo::DemoArgs;
use crate::commands::dissect::DissectArgs;
#[cfg(feature = "tools")]
use crate::commands::{bench::BenchCommand, import::ImportCommand, sim::SimCommand};
#[cfg(feature = "tools")]
use crate::commands::{lwaftr, nfv, vnet};
use crate::failure::{Attempt, Outcome, failed};

/// How a program runs each command of `carina-tools`: in its own process ([`HERE`]), or by starting
/// `carina-tools` ([`ELSEWHERE`]). Only a program that uses `HERE` links the code of the tools.
pub(crate) struct Tools {
    #[cfg(feature = "tools")]
    pub bench: fn(&Shared, BenchCommand) -> Outcome,
    pub demo: fn(&Shared, DemoArgs) -> Outcome,
    pub dissect: fn(&Shared, DissectArgs) -> Outcome,
    #[cfg(feature = "tools")]
    pub import: fn(&Shared, ImportCommand) -> Outcome,
    #[cfg(feature = "tools")]
    pub lwaftr: lwaftr::LwaftrTools,
    #[cfg(feature = "tools")]
    pub nfv: nfv::NfvTools,
    #[cfg(feature = "tools")]
    pub sim: fn(&Shared, SimCommand) -> Outcome,
    #[cfg(feature = "tools")]
    pub vnet: vnet::VnetTools,
}

/// How `carina-tools` runs each of its commands: in its own process.
pub(crate) const HERE: Tools = Tools {
    #[cfg(feature = "tools")]
    bench: commands::bench::run,
    demo: commands::demo::run,
    dissect: |shared, args| commands::dissect::run(shared, &args),
    #[cfg(feature = "tools")]
    import: |shared, command| commands::import::run(shared, &command),
    #[cfg(feature = "tools")]
    lwaftr: lwaftr::LwaftrTools {
        bench: |shared, args| lwaftr::bench::run(shared, &args),
        demo: |shared, args| lwaftr::demo::run(shared, &args),
    },
    #[cfg(feature = "tools")]
    nfv: nfv::NfvTools {
        demo: |shared, args| nfv::demo::run(shared, &args),
    },
    #[cfg(feature = "tools")]
    sim: commands::sim::run,
    #[cfg(feature = "tools")]
    vnet: vnet::VnetTools {
        bench: vnet::bench::run,
        demo: |shared, args| vnet::demo::run(shared, &args),
        import: |shared, args| vnet::import::run(shared, &args),
    },
};

/// How `carina` runs each command of `carina-tools`: it replaces its own process with that program.
pub(crate) const ELSEWHERE: Tools = Tools {
    #[cfg(feature = "tools")]
    bench: start_program,
    demo: start_program,
    dissect: start_program,
    #[cfg(feature = "tools")]
    import: start_program,
    #[cfg(feature = "tools")]
    lwaftr: lwaftr::LwaftrTools {
        bench: start_program,
        demo: start_program,
    },
    #[cfg(feature = "tools")]
    nfv: nfv::NfvTools {
        demo: start_program,
    },
    #[cfg(feature = "tools")]
    sim: start_program,
    #[cfg(feature = "tools")]
    vnet: vnet::VnetTools {
        bench: start_program,
        demo: start_program,
        import: start_program,
    },
};

/// Replaces this process with `carina-tools`, with the same command line, which has already been
/// parsed without error. `carina-tools` inherits the standard streams, and its exit code becomes
/// the exit code of this process.
///
/// # Errors
/// The program is not installed, or cannot be started.
fn start_program<Args>(_: &Shared, _: Args) -> Outcome {
    let own = std::env::current_exe().attempt("finding this program")?;
    let Some(tools) = beside(&own, TOOLS) else {
        return Err(failed(format!(
            "this command is part of the program {TOOLS}, which is not beside {}: install the \
             program there, or build it with \"make build\"",
            own.display()
        )));
    };
    let error = Command::new(&tools)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(error).attempt(format!("starting {}", tools.display()))
}

const TOOLS: &str = "carina-tools";

/// The path of the program `name` in the directory of `program`, if there is such a file.
fn beside(program: &Path, name: &str) -> Option<PathBuf> {
    let path = program.with_file_name(name);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_beside_is_found_and_a_directory_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("carina");
        assert_eq!(beside(&own, TOOLS), None);
        std::fs::create_dir(directory.path().join(TOOLS)).unwrap();
        assert_eq!(beside(&own, TOOLS), None);
        std::fs::remove_dir(directory.path().join(TOOLS)).unwrap();
        std::fs::write(directory.path().join(TOOLS), "").unwrap();
        assert_eq!(beside(&own, TOOLS), Some(directory.path().join(TOOLS)));
    }
}
