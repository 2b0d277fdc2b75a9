// Package carina gives Go programs flows of RINA networks: connections between applications that
// are found by name.
//
// A flow is a descriptor of the kernel, which the node of this system makes and sends. The Go
// runtime polls it like a TCP connection: goroutines wait, no thread does. The package uses neither
// cgo nor another module.
//
//	listener, err := carina.Listen(ctx, "echo.example")     // a net.Listener
//	conn, err := carina.Dial(ctx, "echo.example")           // a net.Conn: a byte stream
//	flow, err := carina.DialMessages(ctx, "echo.example")   // a Flow: SDUs with their boundaries
//
// # Byte streams and messages
//
// [Dial] and [Listen] give byte streams: reliable, in order, without boundaries. [DialMessages] and
// [ListenMessages] give flows of SDUs: each [Flow.Send] at one end is one [Flow.Receive] at the
// other. Both ends of a flow choose for themselves: a program of another language with rings in
// shared memory can be the other end of either.
//
// # Errors
//
// Test errors with errors.Is and errors.As:
//
//	ErrNoNode          no node listens on its socket
//	ErrNodeGone        the node ended while a call waited for it
//	ErrNoAnswer        the node did not answer within two minutes
//	ErrFlowEnded       a write or a read on a flow that has failed or that its peer has closed
//	ErrTooLong         an SDU is longer than the flow carries or than the buffer of Receive
//	ErrProtocol        the node sent what the protocol does not allow
//	*RefusedError      the node refused the request; its Code is an error too
//	io.EOF             the flow has ended: everything that arrived before has been read
//	net.ErrClosed      this program has closed the connection or the listener
//	os.ErrDeadlineExceeded, context.Canceled, context.DeadlineExceeded
//
// A program that is killed ends its flows: its peer reads io.EOF, or ErrFlowEnded if unread bytes
// were lost with the program. The kernel tells neither from an end in good order, as with TCP: a
// protocol on a flow says itself where a message ends. When the node is killed, listeners return
// ErrNodeGone, and flows to other systems end. The kernel carries a flow between two programs of
// one system that both use sockets; such a flow survives the node.
//
// # Cancellation
//
// A call whose context ends loses nothing: a flow that arrives at that moment is returned or
// closed, an SDU is received or stays for the next call, and a flow that nobody accepted waits for
// the next Accept.
package carina
