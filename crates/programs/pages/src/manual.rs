//! Writes manual pages of section 1.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use crate::CARINA;

/// Writes the page of `program` to `directory`. For `carina`, also writes a page for each command
/// that its help lists.
pub(crate) fn write(program: &Command, directory: &Path) -> io::Result<()> {
    let mut program = program.clone().disable_help_subcommand(true);
    program.build();
    write_page(&program, program.get_name(), None, directory)?;
    if program.get_name() == CARINA {
        write_commands(&program, CARINA, directory)?;
    }
    Ok(())
}

fn write_commands(parent: &Command, prefix: &str, directory: &Path) -> io::Result<()> {
    for command in visible(parent) {
        let title = format!("{prefix}-{}", command.get_name());
        write_page(command, &title, Some(prefix), directory)?;
        write_commands(command, &title, directory)?;
    }
    Ok(())
}

/// Writes the page `title` of a command. `parent` is the title of the page that lists this command,
/// or `None` for a program.
fn write_page(
    command: &Command,
    title: &str,
    parent: Option<&str>,
    directory: &Path,
) -> io::Result<()> {
    let man = Man::new(command.clone().display_name(title))
        .title(title)
        .source(format!("Carina {}", env!("CARGO_PKG_VERSION")))
        .manual("Carina manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        man.render_options_section(&mut page)?;
    }
    // The command pages of all programs are those of `carina`.
    let family = parent.map_or(CARINA, |_| title);
    write_list(command, family, &mut page)?;
    write_notes(command, &mut page)?;
    if let Some(parent) = parent {
        writeln!(page, ".SH SEE ALSO\n{}(1)", escaped(parent))?;
    }
    fs::write(directory.join(format!("{title}.1")), page)
}

/// Writes the list of commands below this one, each with the name of its page.
fn write_list(command: &Command, family: &str, page: &mut Vec<u8>) -> io::Result<()> {
    if visible(command).next().is_some() {
        writeln!(page, ".SH COMMANDS")?;
    }
    for inner in visible(command) {
        let about = inner
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        writeln!(page, ".TP")?;
        writeln!(
            page,
            "{}(1)",
            escaped(&format!("{family}-{}", inner.get_name()))
        )?;
        for line in about.lines() {
            writeln!(page, "{}", escaped(line))?;
        }
    }
    Ok(())
}

/// Writes the text that help shows after the options, such as examples. Line breaks are kept.
fn write_notes(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let Some(notes) = command.get_after_help() else {
        return Ok(());
    };
    writeln!(page, ".SH NOTES\n.nf")?;
    for line in notes.to_string().lines() {
        writeln!(page, "{}", escaped(line))?;
    }
    writeln!(page, ".fi")
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
}

/// Escapes a line for roff, so that its characters are not read as escapes or requests.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_be_a_request_of_roff() {
        assert_eq!(escaped(".so /etc/passwd"), "\\&.so /etc/passwd");
        assert_eq!(escaped("'x"), "\\&'x");
        assert_eq!(escaped("a\\b --c"), "a\\eb \\-\\-c");
    }
}
