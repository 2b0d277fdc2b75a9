//! Measures how long it takes to load a configuration of a million softwires from its file.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use carina_lwaftr::file::{compile, read, read_compiled};
use carina_scratch::Scratch;

use super::Form;
use super::traffic::{MANY, text, wrong};
use crate::error::{Attempt, Error, Result};

/// Files with the same configuration as text and compiled.
pub(super) struct Files {
    softwires: usize,
    directory: Scratch,
}

impl Files {
    /// Writes the configuration as text and compiled, to temporary files.
    pub(super) fn new() -> Result<Files> {
        let text = text(MANY)?;
        let loaded = read(&text, false).map_err(wrong)?;
        let files = Files {
            softwires: loaded.table.len(),
            directory: Scratch::new(&format!("lwaftr-load-{}", std::process::id()))?,
        };
        fs::write(files.path(Form::Text), text).attempt("writing the text")?;
        let compiled = compile(&loaded);
        fs::write(files.path(Form::Compiled), compiled).attempt("writing the compiled form")?;
        Ok(files)
    }

    fn path(&self, form: Form) -> PathBuf {
        self.directory.path().join(match form {
            Form::Text => "text",
            Form::Compiled => "compiled",
        })
    }

    /// Seconds from opening a file until its table can be used.
    pub(super) fn measure(&self, form: Form) -> Result<f64> {
        let path = self.path(form);
        let start = Instant::now();
        let loaded = match form {
            Form::Text => {
                let text = fs::read_to_string(path).attempt("reading the text")?;
                read(&text, false).map_err(wrong)?
            }
            Form::Compiled => {
                let file = fs::read(path).attempt("reading the compiled form")?;
                read_compiled(&file, false).map_err(wrong)?
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        if loaded.table.len() == self.softwires {
            Ok(seconds)
        } else {
            Err(Error::Graph("softwires are missing".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_a_million_softwires() {
        let files = Files::new().unwrap();
        assert_eq!(files.softwires, 1_015_936);
        for form in [Form::Text, Form::Compiled] {
            assert!(files.measure(form).unwrap() > 0.0);
        }
    }
}
