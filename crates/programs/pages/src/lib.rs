//! Generates manual pages and shell completions of the three programs from the definitions of their
//! command lines.
//!
//! ```text
//!  carina_cli::definitions --+--> man1/carina.1, man1/carina-vm-run.1 ...   one page per command
//!                            +--> bash/carina, zsh/_carina, fish/carina.fish
//! ```
//!
//! `carina` has a page for each command. `carina-guest` and `carina-tools` have one page each,
//! which refers to the command pages of `carina`.
#![forbid(unsafe_code)]

mod manual;

use std::fs;
use std::io;
use std::path::Path;

use clap_complete::Shell;

/// Name of the program that users run. The names of command pages begin with it.
const CARINA: &str = "carina";

/// Writes all manual pages and completions below `directory`.
///
/// # Errors
/// A directory or a file cannot be written.
pub fn write(directory: &Path) -> io::Result<()> {
    let manual = directory.join("man1");
    fs::create_dir_all(&manual)?;
    for definition in carina_cli::definitions() {
        let name = definition.get_name().to_owned();
        manual::write(&definition, &manual)?;
        for (shell, folder) in SHELLS {
            let folder = directory.join(folder);
            fs::create_dir_all(&folder)?;
            let mut definition = definition.clone();
            let written = clap_complete::generate_to(shell, &mut definition, &name, &folder)?;
            if shell == Shell::Bash {
                // bash-completion loads the file that is named like the program.
                fs::rename(written, folder.join(&name))?;
            }
        }
    }
    Ok(())
}

const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash"),
    (Shell::Zsh, "zsh"),
    (Shell::Fish, "fish"),
];
