package carina

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// Conn is a flow as a byte stream: a net.Conn. Close ends both directions, CloseWrite only the one
// from this end.
type Conn struct {
	socket streamSocket
	info   Info
}

type streamSocket interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// newConn puts the descriptor of a flow into the runtime's poller. It closes file in any case.
func newConn(file *os.File, info Info) (*Conn, error) {
	defer file.Close()
	if err := checkType(file, syscall.SOCK_STREAM); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(file)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		conn, err = newFileSocket(file)
	}
	if err != nil {
		return nil, err
	}
	return &Conn{socket: conn.(streamSocket), info: info}, nil
}

// checkType checks that file is a socket of the type.
func checkType(file *os.File, right int) error {
	socketType, err := syscall.GetsockoptInt(int(file.Fd()), syscall.SOL_SOCKET, syscall.SO_TYPE)
	if err != nil {
		return protocolError("the descriptor of a flow is no socket: %v", err)
	}
	if socketType != right {
		return protocolError("the descriptor of a flow is a socket of the type %d; it must be %d",
			socketType, right)
	}
	return nil
}

// Info describes the flow.
func (c *Conn) Info() Info { return c.info }

// Read reads bytes. It returns io.EOF when the flow, or the direction to this end, has ended.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.socket.Read(p)
	if err != nil {
		err = flowError("read", err, &c.info)
	}
	return n, err
}

// Write writes bytes. Its error is ErrFlowEnded when the flow has ended.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.socket.Write(p)
	if err != nil {
		err = flowError("write", err, &c.info)
	}
	return n, err
}

// Close closes this end of the flow. The peer receives what was written, and then reads io.EOF.
func (c *Conn) Close() error { return flowError("close", c.socket.Close(), &c.info) }

// CloseWrite ends the direction from this end; the peer reads io.EOF behind what was written.
func (c *Conn) CloseWrite() error { return flowError("close", c.socket.CloseWrite(), &c.info) }

// LocalAddr returns the name of the application at this end, an Addr.
func (c *Conn) LocalAddr() net.Addr { return c.info.localAddr() }

// RemoteAddr returns the name of the application at the other end, an Addr.
func (c *Conn) RemoteAddr() net.Addr { return c.info.remoteAddr() }

// SetDeadline sets the deadline of reads and writes; see net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return flowError("set", c.socket.SetDeadline(t), &c.info)
}

// SetReadDeadline sets the deadline of reads; see net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return flowError("set", c.socket.SetReadDeadline(t), &c.info)
}

// SetWriteDeadline sets the deadline of writes; see net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return flowError("set", c.socket.SetWriteDeadline(t), &c.info)
}

// SyscallConn gives access to the descriptor; see syscall.Conn.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.socket.SyscallConn() }
