package carina

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// control is a connection to ipc.sock, for one registration or one allocation.
type control struct {
	socket *net.UnixConn
	buffer []byte
}

// dialControl connects to the node. While the node's queue of connections is full it tries again.
func dialControl(ctx context.Context, path string) (*control, error) {
	var dialer net.Dialer
	until := time.Now().Add(answerLimit)
	for {
		conn, err := dialer.DialContext(ctx, "unixpacket", path)
		if err == nil {
			return &control{socket: conn.(*net.UnixConn)}, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, fmt.Errorf("%w: %w", ErrNoNode, err)
		}
		if time.Now().After(until) {
			return nil, fmt.Errorf("%w: its queue of connections is full", ErrNoAnswer)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(connectPause):
		}
	}
}

func (c *control) close() { c.socket.Close() }

// send sends one request.
func (c *control) send(request any) error {
	message, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if len(message) > messageMax {
		return fmt.Errorf("a request has %d bytes; at most %d are allowed", len(message), messageMax)
	}
	_, err = c.socket.Write(message)
	return nodeError(err)
}

// receive waits for the next message and returns it with its descriptors. With errNoDescriptors it
// returns the message without them.
func (c *control) receive() (answer, []*os.File, error) {
	if c.buffer == nil {
		c.buffer = make([]byte, messageMax)
	}
	ancillary := make([]byte, syscall.CmsgSpace(4*descriptorsMax))
	count, ancillaryCount, flags, _, err := c.socket.ReadMsgUnix(c.buffer, ancillary)
	// Even an empty message, which looks like the end, can carry descriptors.
	files, ancillaryErr := descriptors(ancillary[:ancillaryCount])
	switch {
	case err != nil:
		err = nodeError(err)
	case count == 0:
		err = ErrNodeGone
	case ancillaryErr != nil:
		err = protocolError("ancillary data: %v", ancillaryErr)
	case flags&syscall.MSG_TRUNC != 0:
		err = protocolError("a message has more than %d bytes", messageMax)
	case flags&syscall.MSG_CTRUNC != 0 && len(files) >= descriptorsMax:
		err = protocolError("more than %d descriptors came with a message", descriptorsMax)
	}
	var received answer
	if err == nil {
		received, err = decode(c.buffer[:count])
	}
	if err == nil && flags&syscall.MSG_CTRUNC != 0 {
		// The message itself is whole.
		closeAll(files)
		return received, nil, errNoDescriptors
	}
	if err != nil {
		closeAll(files)
		return answer{}, nil, err
	}
	return received, files, nil
}

// receiveWithin is receive until ctx ends, or until the node has had answerLimit for its answer.
func (c *control) receiveWithin(ctx context.Context) (answer, []*os.File, error) {
	if err := c.socket.SetReadDeadline(time.Now().Add(answerLimit)); err != nil {
		return answer{}, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.socket.SetReadDeadline(past) })
	defer stop()
	received, files, err := c.receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if ctx.Err() != nil {
			return answer{}, nil, context.Cause(ctx)
		}
		return answer{}, nil, ErrNoAnswer
	}
	return received, files, err
}

// descriptors reads the descriptors of ancillary data. They are close-on-exec.
func descriptors(ancillary []byte) ([]*os.File, error) {
	if len(ancillary) == 0 {
		return nil, nil
	}
	messages, err := syscall.ParseSocketControlMessage(ancillary)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, message := range messages {
		if message.Header.Level != syscall.SOL_SOCKET || message.Header.Type != syscall.SCM_RIGHTS {
			continue
		}
		numbers, err := syscall.ParseUnixRights(&message)
		if err != nil {
			return files, err
		}
		for _, number := range numbers {
			files = append(files, os.NewFile(uintptr(number), "flow"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// one returns the only descriptor of a flow; with another number of them it closes all.
func one(files []*os.File) (*os.File, error) {
	if len(files) != 1 {
		closeAll(files)
		return nil, protocolError("%d descriptors came with a flow; it must be 1", len(files))
	}
	return files[0], nil
}

// SocketPath returns the path of the node's socket: ipc.sock in $CARINA_RUN, else in /run/carina
// for root, else in $XDG_RUNTIME_DIR/carina, else in /tmp/carina-UID.
func SocketPath() string {
	directory := os.Getenv("CARINA_RUN")
	if directory == "" {
		user := os.Geteuid()
		if run := os.Getenv("XDG_RUNTIME_DIR"); user == 0 {
			directory = "/run/carina"
		} else if run != "" {
			directory = filepath.Join(run, "carina")
		} else {
			directory = "/tmp/carina-" + strconv.Itoa(user)
		}
	}
	return filepath.Join(directory, "ipc.sock")
}

// past is a deadline that ends waiting calls at once.
var past = time.Unix(1, 0)

const (
	// answerLimit is the time in which the node must answer. It is longer than any node waits for
	// an application by default.
	answerLimit = 2 * time.Minute
	// connectPause is the time between two attempts to connect to a busy node.
	connectPause = 5 * time.Millisecond
	// descriptorsMax is how many descriptors of one message are received; a flow has one.
	descriptorsMax = 8
)
