package carina

import (
	"net"
	"os"
	"syscall"
)

// fileSocket is a connected stream socket of a family that package net does not know, such as
// AF_VSOCK: the other application may have attached it to the flow.
type fileSocket struct{ *os.File }

// newFileSocket puts a duplicate of file into the runtime's poller.
func newFileSocket(file *os.File) (net.Conn, error) {
	duplicate, _, failure := syscall.Syscall(
		syscall.SYS_FCNTL, file.Fd(), syscall.F_DUPFD_CLOEXEC, 0)
	if failure != 0 {
		return nil, os.NewSyscallError("fcntl", failure)
	}
	if err := syscall.SetNonblock(int(duplicate), true); err != nil {
		syscall.Close(int(duplicate))
		return nil, os.NewSyscallError("fcntl", err)
	}
	return fileSocket{os.NewFile(duplicate, "flow")}, nil
}

// CloseWrite ends the direction from this end.
func (s fileSocket) CloseWrite() error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var ended error
	if err := raw.Control(func(fd uintptr) {
		ended = syscall.Shutdown(int(fd), syscall.SHUT_WR)
	}); err != nil {
		return err
	}
	return os.NewSyscallError("shutdown", ended)
}

// LocalAddr has no name: Conn has that of the application.
func (s fileSocket) LocalAddr() net.Addr { return Addr{} }

// RemoteAddr has no name: Conn has that of the application.
func (s fileSocket) RemoteAddr() net.Addr { return Addr{} }
