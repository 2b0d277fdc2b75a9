package carina

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ListenConfig registers names. Its zero value uses the node of this system.
type ListenConfig struct {
	// Socket is the path of the node's socket (default: SocketPath()).
	Socket string
	// DIF is the DIF in which to register (default: all DIFs of this system, now and later).
	DIF string
	// Backlog is how many flows may wait for Accept (default: 128). The listener refuses more.
	Backlog int
	// Refuse is called for each request for a flow, if it is set. An error refuses the flow; its
	// text is the reason that the caller reads. Later requests wait for Refuse.
	Refuse func(Request) error
}

// Request is the request of a remote application for a flow.
type Request struct {
	// Local is the registered name.
	Local string
	// Remote is the name of the application that requests the flow.
	Remote string
	// DIF is the DIF through which the request came.
	DIF string
	// Spec is what the remote application requests.
	Spec Spec
}

// Listener is a registered name whose flows are byte streams: a net.Listener.
type Listener struct{ registration[*Conn] }

// MessageListener is a registered name whose flows are flows of SDUs.
type MessageListener struct{ registration[*Flow] }

// Listen registers name and accepts flows to it as byte streams.
func Listen(ctx context.Context, name string) (*Listener, error) {
	return new(ListenConfig).Listen(ctx, name)
}

// ListenMessages registers name and accepts flows to it as flows of SDUs.
func ListenMessages(ctx context.Context, name string) (*MessageListener, error) {
	return new(ListenConfig).ListenMessages(ctx, name)
}

// Listen registers name and accepts flows to it as byte streams. It refuses flows that are not
// reliable and in order. The end of ctx ends the call; a listener that it returned stays.
func (c *ListenConfig) Listen(ctx context.Context, name string) (*Listener, error) {
	listener := new(Listener)
	if err := listener.open(ctx, c, name, modeStream, newConn); err != nil {
		return nil, err
	}
	return listener, nil
}

// ListenMessages registers name and accepts flows to it as flows of SDUs.
func (c *ListenConfig) ListenMessages(ctx context.Context, name string) (*MessageListener, error) {
	listener := new(MessageListener)
	if err := listener.open(ctx, c, name, modeSocket, newFlow); err != nil {
		return nil, err
	}
	return listener, nil
}

// Accept waits for a flow and returns it, a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.AcceptContext(context.Background())
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// AcceptContext waits for a flow until ctx ends.
func (l *Listener) AcceptContext(ctx context.Context) (*Conn, error) { return l.accept(ctx) }

// Accept waits for a flow until ctx ends.
func (l *MessageListener) Accept(ctx context.Context) (*Flow, error) { return l.accept(ctx) }

// registration is a registered name. One goroutine answers requests for flows; the flows wait in a
// queue, so that the end of a call of accept loses none.
type registration[T interface{ Close() error }] struct {
	node    *control
	config  ListenConfig
	name    string
	difs    []string
	mode    string
	wrap    func(*os.File, Info) (T, error)
	queue   chan T
	claimed atomic.Int64 // places of the queue: flows in it, and accepted requests
	lost    atomic.Uint64
	pending map[uint32]bool
	closing sync.Once
	closed  atomic.Bool
	ended   chan struct{}
	failure error // set before ended is closed
}

// Addr returns the registered name, an Addr.
func (r *registration[T]) Addr() net.Addr { return r.addr() }

// DIFs returns the DIFs in which the name was registered when the listener was made.
func (r *registration[T]) DIFs() []string { return r.difs }

// Lost returns how many flows ended because this process had too many open files to receive them.
func (r *registration[T]) Lost() uint64 { return r.lost.Load() }

// Close withdraws the name. Flows that wait for Accept are closed; accepted flows stay.
func (r *registration[T]) Close() error {
	err := r.opError("close", net.ErrClosed)
	r.closing.Do(func() {
		r.closed.Store(true)
		r.node.close()
		<-r.ended
		err = nil
	})
	return err
}

func (r *registration[T]) open(
	ctx context.Context, config *ListenConfig, name, mode string,
	wrap func(*os.File, Info) (T, error),
) error {
	r.config, r.name, r.mode, r.wrap = *config, name, mode, wrap
	if r.config.Socket == "" {
		r.config.Socket = SocketPath()
	}
	if r.config.Backlog <= 0 {
		r.config.Backlog = defaultBacklog
	}
	r.queue = make(chan T, r.config.Backlog)
	r.pending = make(map[uint32]bool)
	r.ended = make(chan struct{})
	if err := r.register(ctx); err != nil {
		return r.opError("listen", err)
	}
	go r.serve()
	return nil
}

func (r *registration[T]) register(ctx context.Context) error {
	if err := checkName(r.name); err != nil {
		return err
	}
	node, err := dialControl(ctx, r.config.Socket)
	if err != nil {
		return err
	}
	err = node.send(registerRequest{
		Op: "register", Version: protocolVersion, Name: r.name, DIF: optional(r.config.DIF),
	})
	var received answer
	if err == nil {
		var files []*os.File
		received, files, err = node.receiveWithin(ctx)
		closeAll(files)
	}
	switch {
	case err != nil:
	case received.refusal != nil:
		err = received.refusal.err()
	case received.registered == nil:
		err = protocolError("another message than an answer to a registration came")
	default:
		// The context may have ended at this moment; its deadline is taken back.
		if err = ctx.Err(); err == nil {
			r.node, r.difs = node, received.registered.DIFs
			err = node.socket.SetReadDeadline(time.Time{})
		}
	}
	if err != nil {
		node.close()
	}
	return err
}

// serve answers the node until the registration ends.
func (r *registration[T]) serve() {
	for {
		received, files, err := r.node.receive()
		switch {
		case err == nil:
			err = r.handle(received, files)
		case errors.Is(err, errNoDescriptors) && received.flow != nil:
			err = r.drop(received.flow)
		}
		if err != nil {
			r.failure = err
			break
		}
	}
	r.node.close()
	close(r.ended)
	if r.closed.Load() {
		r.closeQueued()
	}
}

// handle handles one message; it owns the descriptors.
func (r *registration[T]) handle(received answer, files []*os.File) error {
	if received.flow != nil && received.flow.Request != nil {
		return r.handleFlow(received.flow, files)
	}
	closeAll(files)
	switch {
	case received.flowRequest != nil:
		return r.respond(received.flowRequest)
	case received.refusal != nil && received.refusal.Request != nil:
		// The caller gave up, or its flow cannot be a byte stream.
		if number := *received.refusal.Request; r.pending[number] {
			delete(r.pending, number)
			r.claimed.Add(-1)
		}
		return nil
	case received.refusal != nil:
		return received.refusal.err()
	}
	return protocolError("a message came that is not for a registration")
}

func (r *registration[T]) handleFlow(flow *flowAnswer, files []*os.File) error {
	number := *flow.Request
	if !r.pending[number] || flow.Mode != r.mode {
		closeAll(files)
		return protocolError("a flow in mode %q for the request %d came; "+
			"it was not accepted in this mode", flow.Mode, number)
	}
	delete(r.pending, number)
	file, err := one(files)
	if err != nil {
		return err
	}
	wrapped, err := r.wrap(file, flow.info())
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		r.claimed.Add(-1)
		r.lost.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	// There is a place: the request claimed it.
	r.queue <- wrapped
	return nil
}

// drop counts a flow whose descriptor this process could not receive.
func (r *registration[T]) drop(flow *flowAnswer) error {
	if flow.Request == nil || !r.pending[*flow.Request] {
		return protocolError("a flow came that was not accepted")
	}
	delete(r.pending, *flow.Request)
	r.claimed.Add(-1)
	r.lost.Add(1)
	return nil
}

func (r *registration[T]) respond(request *flowRequestAnswer) error {
	number := *request.Request
	response := respondRequest{Op: "respond", Request: number, Mode: r.mode}
	if reason := r.reason(request); reason != "" {
		response.Reason = &reason
		return r.node.send(response)
	}
	response.Accept = true
	r.pending[number] = true
	r.claimed.Add(1)
	return r.node.send(response)
}

// reason returns why this listener refuses a request; empty when it accepts.
func (r *registration[T]) reason(request *flowRequestAnswer) string {
	if r.pending[*request.Request] {
		return "the number of the request is in use"
	}
	if r.claimed.Load() >= int64(r.config.Backlog) {
		return "the backlog of the application is full"
	}
	if r.config.Refuse == nil {
		return ""
	}
	err := r.config.Refuse(Request{
		Local: request.Local, Remote: request.Remote, DIF: request.DIF, Spec: request.Spec,
	})
	if err == nil {
		return ""
	}
	if reason := err.Error(); reason != "" {
		return reason
	}
	return "the application refuses the flow"
}

func (r *registration[T]) accept(ctx context.Context) (T, error) {
	var none T
	select {
	case wrapped := <-r.queue:
		r.claimed.Add(-1)
		return wrapped, nil
	default:
	}
	select {
	case wrapped := <-r.queue:
		r.claimed.Add(-1)
		return wrapped, nil
	case <-ctx.Done():
		return none, r.opError("accept", context.Cause(ctx))
	case <-r.ended:
	}
	if r.closed.Load() {
		return none, r.opError("accept", net.ErrClosed)
	}
	// Flows that came before the end are still good.
	select {
	case wrapped := <-r.queue:
		r.claimed.Add(-1)
		return wrapped, nil
	default:
		return none, r.opError("accept", r.failure)
	}
}

func (r *registration[T]) closeQueued() {
	for {
		select {
		case wrapped := <-r.queue:
			wrapped.Close()
		default:
			return
		}
	}
}

func (r *registration[T]) addr() Addr { return Addr{Name: r.name, DIF: r.config.DIF} }

func (r *registration[T]) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: network, Addr: r.addr(), Err: err}
}

const defaultBacklog = 128
