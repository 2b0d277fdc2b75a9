//! Network namespaces, which belong to single threads.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace of this system. The namespace exists at least as long as this value.
#[derive(Debug)]
pub struct NetworkNamespace(File);

impl NetworkNamespace {
    /// Opens the namespace at a path such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// The file cannot be opened. A file that is not a namespace is detected only by
    /// [`NetworkNamespace::enter`].
    pub fn open(path: &Path) -> io::Result<NetworkNamespace> {
        File::open(path).map(NetworkNamespace)
    }

    /// Returns the network namespace of this thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn of_this_thread() -> io::Result<NetworkNamespace> {
        NetworkNamespace::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Moves this thread into the namespace permanently. Threads that it starts later begin there.
    ///
    /// # Errors
    /// `CAP_SYS_ADMIN` is missing, or the file is not a network namespace.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(move_into_link_name_space(self.0.as_fd(), kind)?)
    }

    /// Calls `act` while this thread is in the namespace. Sockets that are created there stay
    /// there.
    ///
    /// # Errors
    /// As for [`NetworkNamespace::enter`]; `act` was not called then.
    ///
    /// # Panics
    /// The thread cannot return to its own namespace. It would otherwise continue in the wrong one.
    pub fn within<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        let own = NetworkNamespace::of_this_thread()?;
        self.enter()?;
        let done = act();
        own.enter()
            .expect("a thread that could leave its namespace can go back");
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_comes_back_from_a_namespace() {
        let own = NetworkNamespace::of_this_thread().unwrap();
        match own.within(|| 7) {
            Ok(done) => assert_eq!(done, 7),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                println!("SKIP: namespaces are entered by root");
            }
        }
        let missing = NetworkNamespace::open(Path::new("/run/netns/carina-not-there"));
        assert!(missing.is_err());
    }

    #[test]
    fn file_that_is_no_namespace_is_refused() {
        let file = NetworkNamespace::open(Path::new("/proc/self/stat")).unwrap();
        assert!(file.within(|| ()).is_err());
    }
}
