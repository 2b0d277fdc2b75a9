//! A syntax check for scripts.

use mlua::chunk::ChunkMode;
use mlua::{Error, Lua};

use crate::failure;

/// Checks the syntax of a script.
///
/// # Errors
/// The script is not valid Lua: one line with the place and the fault.
pub(crate) fn check(name: &str, text: &str) -> Result<(), String> {
    let lua = Lua::new();
    let chunk = lua.load(text).set_name(format!("={name}"));
    match chunk.set_mode(ChunkMode::Text).into_function() {
        Ok(_) => Ok(()),
        Err(Error::SyntaxError { message, .. }) => {
            let has_name = message.starts_with(name);
            Err(if has_name {
                message
            } else {
                format!("{name}: {message}")
            })
        }
        Err(error) => Err(failure::line_of(&error, name, 0)),
    }
}
