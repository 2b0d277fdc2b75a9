//! The file with the URL of an agent's page, for commands that print the URL.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use carina_api::paths::RunDir;
use carina_vnet_web::PageServer;

/// The file `vnet.page` in the run directory: the URL of the page that the agent serves. Only the
/// agent's user may read it, because the URL contains the token. It is removed when this value is
/// dropped.
pub(super) struct PageFile(PathBuf);

impl PageFile {
    fn path(run_dir: &RunDir) -> PathBuf {
        run_dir.path().join("vnet.page")
    }

    /// The URL of the page of the agent that runs.
    ///
    /// # Errors
    /// The agent serves no page.
    pub(super) fn read_of(run_dir: &RunDir) -> io::Result<String> {
        fs::read_to_string(PageFile::path(run_dir))
    }

    /// Removes the file of an agent that was killed.
    pub(super) fn remove_of(run_dir: &RunDir) {
        // Usually there is no such file.
        let _ = fs::remove_file(PageFile::path(run_dir));
    }

    /// Writes the URL of a page.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub(super) fn write(run_dir: &RunDir, page_server: &PageServer) -> io::Result<PageFile> {
        let path = PageFile::path(run_dir);
        let options = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        writeln!(options?, "{}", page_server.url())?;
        Ok(PageFile(path))
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        // A file that stays is removed by the next agent.
        let _ = fs::remove_file(&self.0);
    }
}
