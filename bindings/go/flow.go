package carina

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Flow is a flow of SDUs: each Send at one end is one Receive at the other. One goroutine may send
// while another receives; calls in one direction wait for one another.
type Flow struct {
	socket   *net.UnixConn
	raw      syscall.RawConn
	info     Info
	incoming direction
	outgoing direction
}

// direction is what calls in one direction share: a turn, and the deadline that the program set.
type direction struct {
	turn     chan struct{}
	mutex    sync.Mutex
	deadline time.Time
	set      func(time.Time) error
}

// newFlow puts the descriptor of a flow into the runtime's poller. It closes file in any case.
func newFlow(file *os.File, info Info) (*Flow, error) {
	defer file.Close()
	if err := checkType(file, syscall.SOCK_SEQPACKET); err != nil {
		return nil, err
	}
	// Every SDU brings the credentials of its sender, the end of the flow brings none: thus an SDU
	// of no bytes differs from the end.
	err := syscall.SetsockoptInt(int(file.Fd()), syscall.SOL_SOCKET, syscall.SO_PASSCRED, 1)
	if err != nil {
		return nil, protocolError("the descriptor of a flow: %v", err)
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	socket, isUnix := conn.(*net.UnixConn)
	if !isUnix {
		conn.Close()
		return nil, protocolError("the descriptor of a flow of SDUs is no Unix socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	flow := &Flow{socket: socket, raw: raw, info: info}
	flow.incoming = direction{turn: make(chan struct{}, 1), set: socket.SetReadDeadline}
	flow.outgoing = direction{turn: make(chan struct{}, 1), set: socket.SetWriteDeadline}
	return flow, nil
}

// Info describes the flow; MaxSDU in it is the longest SDU.
func (f *Flow) Info() Info { return f.info }

// Send sends one SDU of 0 bytes or more, and waits for space. When its error is that of the context
// or of a deadline, the SDU was not sent.
func (f *Flow) Send(ctx context.Context, sdu []byte) error {
	if len(sdu) > f.info.MaxSDU {
		return flowError("write", tooLong(len(sdu), f.info.MaxSDU), &f.info)
	}
	err := f.outgoing.do(ctx, func() error {
		var sent error
		err := f.raw.Write(func(fd uintptr) bool {
			_, sent = syscall.SendmsgN(int(fd), sdu, nil, nil, syscall.MSG_NOSIGNAL)
			return !isTemporary(sent)
		})
		if err == nil && sent != nil {
			err = os.NewSyscallError("sendmsg", sent)
		}
		return err
	})
	return flowError("write", err, &f.info)
}

// Receive waits for one SDU, copies it into buffer and returns its length. It returns io.EOF when
// the flow has ended and every SDU was received. If the SDU is longer than buffer, buffer has its
// beginning, the rest is lost, and the error is ErrTooLong. When the error is that of the context or
// of a deadline, no SDU was taken.
func (f *Flow) Receive(ctx context.Context, buffer []byte) (int, error) {
	var length int
	err := f.incoming.do(ctx, func() error {
		var ancillaryLength int
		var received error
		err := f.raw.Read(func(fd uintptr) bool {
			// Just the space for credentials: descriptors of a peer are never received.
			var ancillary [credentialsSpace]byte
			length, ancillaryLength, _, _, received = syscall.Recvmsg(
				int(fd), buffer, ancillary[:], syscall.MSG_TRUNC|syscall.MSG_CMSG_CLOEXEC)
			return !isTemporary(received)
		})
		switch {
		case err != nil:
			return err
		case received != nil:
			return os.NewSyscallError("recvmsg", received)
		case length == 0 && ancillaryLength == 0:
			return io.EOF
		}
		return nil
	})
	if err != nil {
		return 0, flowError("read", err, &f.info)
	}
	if length > len(buffer) {
		return len(buffer), flowError("read", tooLong(length, len(buffer)), &f.info)
	}
	return length, nil
}

// Close closes this end of the flow. The peer receives what was sent, and then the end.
func (f *Flow) Close() error { return flowError("close", f.socket.Close(), &f.info) }

// LocalAddr returns the name of the application at this end, an Addr.
func (f *Flow) LocalAddr() net.Addr { return f.info.localAddr() }

// RemoteAddr returns the name of the application at the other end, an Addr.
func (f *Flow) RemoteAddr() net.Addr { return f.info.remoteAddr() }

// SetReadDeadline sets the time at which calls of Receive end; the zero value means never.
func (f *Flow) SetReadDeadline(t time.Time) error {
	return flowError("set", f.incoming.setDeadline(t), &f.info)
}

// SetWriteDeadline sets the time at which calls of Send end; the zero value means never.
func (f *Flow) SetWriteDeadline(t time.Time) error {
	return flowError("set", f.outgoing.setDeadline(t), &f.info)
}

// SetDeadline sets both deadlines.
func (f *Flow) SetDeadline(t time.Time) error {
	return errors.Join(f.SetReadDeadline(t), f.SetWriteDeadline(t))
}

// SyscallConn gives access to the descriptor, a SOCK_SEQPACKET socket; see syscall.Conn.
func (f *Flow) SyscallConn() (syscall.RawConn, error) { return f.raw, nil }

// do runs one call when those before it have ended. The end of ctx ends the call by a deadline,
// which do takes back.
func (d *direction) do(ctx context.Context, call func() error) error {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.turn }()
	if ctx.Done() == nil {
		return call()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	isSet := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.set(past)
		close(isSet)
	})
	err := call()
	if !stop() {
		<-isSet
		d.mutex.Lock()
		d.set(d.deadline)
		d.mutex.Unlock()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return context.Cause(ctx)
		}
	}
	return err
}

func (d *direction) setDeadline(t time.Time) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	err := d.set(t)
	if err == nil {
		d.deadline = t
	}
	return err
}

func isTemporary(err error) bool {
	return err == syscall.EAGAIN || err == syscall.EINTR || err == syscall.ENOBUFS
}

func tooLong(length, limit int) error {
	return fmt.Errorf("%w: it has %d bytes; at most %d fit", ErrTooLong, length, limit)
}

// credentialsSpace is CMSG_SPACE(sizeof(struct ucred)).
const credentialsSpace = 32
