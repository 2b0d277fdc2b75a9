//! Network namespaces, which are those of single threads.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, which stays as long as this value.
#[derive(Debug)]
pub struct NetworkNamespace(File);

impl NetworkNamespace {
    /// The namespace that a file stands for: `/run/netns/NAME`, or `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// The file cannot be opened. That it is no namespace shows when it is entered.
    pub fn open(path: &Path) -> io::Result<NetworkNamespace> {
        File::open(path).map(NetworkNamespace)
    }

    /// That of this thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn of_this_thread() -> io::Result<NetworkNamespace> {
        NetworkNamespace::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Moves this thread into it, for good; threads that it starts later begin there.
    ///
    /// # Errors
    /// `CAP_SYS_ADMIN` is missing, or the file is no network namespace.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(move_into_link_name_space(self.0.as_fd(), kind)?)
    }

    /// Does something while this thread is in it. Sockets that are made there stay there.
    ///
    /// # Errors
    /// As [`NetworkNamespace::enter`]; nothing was done then.
    ///
    /// # Panics
    /// The thread cannot go back: all that it did from then on would be done in the wrong place.
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
