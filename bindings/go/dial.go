package carina

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Dialer requests flows. Its zero value uses the node of this system.
type Dialer struct {
	// Socket is the path of the node's socket (default: SocketPath()).
	Socket string
	// Local is the name of this application (default: the name of the program and its process id).
	// It need not be registered.
	Local string
	// DIF is the DIF to use (default: the first that knows the remote application).
	DIF string
	// Spec is the quality of service (default: Reliable()). Byte streams need a reliable flow.
	Spec *Spec
}

// Dial requests a flow to the application name and returns it as a byte stream.
func Dial(ctx context.Context, name string) (*Conn, error) {
	return new(Dialer).Dial(ctx, name)
}

// DialMessages requests a flow to the application name and returns it as a flow of SDUs.
func DialMessages(ctx context.Context, name string) (*Flow, error) {
	return new(Dialer).DialMessages(ctx, name)
}

// Dial requests a flow to the application name and returns it as a byte stream.
func (d *Dialer) Dial(ctx context.Context, name string) (*Conn, error) {
	file, flow, err := d.allocate(ctx, name, modeStream)
	if err != nil {
		return nil, d.dialError(name, err)
	}
	conn, err := newConn(file, flow.info())
	if err != nil {
		return nil, d.dialError(name, err)
	}
	return conn, nil
}

// DialMessages requests a flow to the application name and returns it as a flow of SDUs.
func (d *Dialer) DialMessages(ctx context.Context, name string) (*Flow, error) {
	file, flow, err := d.allocate(ctx, name, modeSocket)
	if err != nil {
		return nil, d.dialError(name, err)
	}
	messages, err := newFlow(file, flow.info())
	if err != nil {
		return nil, d.dialError(name, err)
	}
	return messages, nil
}

// DialContext is Dial for http.Transport.DialContext and others that dial host:port: the host is
// the name of the application; the network and the port have no meaning.
func (d *Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		name = address
	}
	conn, err := d.Dial(ctx, name)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (d *Dialer) allocate(
	ctx context.Context, remote, mode string,
) (*os.File, *flowAnswer, error) {
	spec, local, path := Reliable(), d.Local, d.Socket
	if d.Spec != nil {
		spec = *d.Spec
	}
	if local == "" {
		local = programName()
	}
	if path == "" {
		path = SocketPath()
	}
	for _, name := range []string{local, remote} {
		if err := checkName(name); err != nil {
			return nil, nil, err
		}
	}
	node, err := dialControl(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	// The node withdraws a request whose connection is closed. A flow that it has sent by then ends
	// with the descriptor in the socket.
	defer node.close()
	err = node.send(allocateRequest{
		Op: "allocate", Version: protocolVersion, Local: local, Remote: remote,
		DIF: optional(d.DIF), Spec: spec, Mode: mode,
	})
	if err != nil {
		return nil, nil, err
	}
	received, files, err := node.receiveWithin(ctx)
	if err != nil {
		return nil, nil, err
	}
	if received.flow == nil || received.flow.Mode != mode || received.flow.Request != nil {
		closeAll(files)
		if received.refusal != nil {
			return nil, nil, received.refusal.err()
		}
		return nil, nil, protocolError("another message than a flow in mode %q came", mode)
	}
	file, err := one(files)
	return file, received.flow, err
}

func (d *Dialer) dialError(name string, err error) error {
	return &net.OpError{Op: "dial", Net: network, Addr: Addr{Name: name, DIF: d.DIF}, Err: err}
}

// programName is the default name of this application: its program, and its process id as the
// instance of the process.
func programName() string {
	program := strings.ToValidUTF8(filepath.Base(os.Args[0]), "_")
	program = strings.Map(func(char rune) rune {
		if char < ' ' || char == '|' || char == 0x7f {
			return '_'
		}
		return char
	}, program)
	if len(program) > 200 {
		program = strings.ToValidUTF8(program[:200], "")
	}
	return program + "|" + strconv.Itoa(os.Getpid())
}
