//! The operating system, safely: memfd, mmap, eventfd, epoll, fd passing, membarrier.
