package carina

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// Errors of this package; test them with errors.Is.
var (
	// ErrNoNode means that no node listens on the socket of the node.
	ErrNoNode = errors.New("no node answers; start one with `carina node`")
	// ErrNodeGone means that the node ended, or closed the connection, while a call waited for it.
	ErrNodeGone = errors.New("the node has ended, or has closed the connection")
	// ErrNoAnswer means that the node has the request and does not answer it.
	ErrNoAnswer = errors.New("the node does not answer; it is stopped, stuck or very busy")
	// ErrFlowEnded means that the flow has failed, or that its peer has closed it.
	ErrFlowEnded = errors.New("the flow has ended")
	// ErrTooLong means that an SDU is longer than the flow carries or than the buffer for it.
	ErrTooLong = errors.New("the SDU is too long")
	// ErrProtocol means that the node sent what the protocol of its socket does not allow.
	ErrProtocol = errors.New("the node broke the protocol of ipc.sock")
)

// Code is the kind of a refusal. It is an error, so that errors.Is(err, carina.UnknownName) tests
// for it.
type Code string

// Kinds of refusals, as the node writes them.
const (
	// BadRequest means that the request is malformed.
	BadRequest Code = "bad-request"
	// BadVersion means that the node has another version of the protocol.
	BadVersion Code = "bad-version"
	// NotFound means that a DIF or another object does not exist.
	NotFound Code = "not-found"
	// UnknownName means that no reachable system has registered the name.
	UnknownName Code = "unknown-name"
	// DuplicateName means that the name is already registered.
	DuplicateName Code = "duplicate-name"
	// AccessDenied means that an access rule forbids the request.
	AccessDenied Code = "access-denied"
	// SpecNotMet means that no DIF meets the flow specification.
	SpecNotMet Code = "spec-not-met"
	// FlowDenied means that the remote application, or its node, refused the flow.
	FlowDenied Code = "flow-denied"
	// TimedOut means that the remote application did not answer in time.
	TimedOut Code = "timed-out"
	// LinkDown means that a link or DIF that the request needs is down.
	LinkDown Code = "link-down"
	// LimitReached means that the request would exceed a limit of the node.
	LimitReached Code = "limit-reached"
	// Conflict means that the state of the object does not allow the request.
	Conflict Code = "conflict"
	// Unsupported means that this system cannot fulfil the request.
	Unsupported Code = "unsupported"
	// Internal means that the node failed; its log has the details.
	Internal Code = "internal"
)

// Error returns the code as text.
func (c Code) Error() string { return string(c) }

// RefusedError is the answer of a node that refuses a request.
type RefusedError struct {
	// Code is the kind of the refusal, for programs.
	Code Code
	// Message says what the node refused and why, for people.
	Message string
	// Final is true when the same request will fail again until someone corrects the cause.
	Final bool
}

// Error returns the message of the node and its code.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the node refused: %s (%s)", e.Message, e.Code)
}

// Unwrap returns the code.
func (e *RefusedError) Unwrap() error { return e.Code }

// protocolError makes an error that is ErrProtocol and says what the node did.
func protocolError(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, values...))
}

// nodeError translates an error of the connection to the node.
func nodeError(err error) error {
	if errors.Is(err, io.EOF) || isHangUp(err) {
		return ErrNodeGone
	}
	return err
}

// flowError translates an error of a flow's socket for the operation op, and names the ends of the
// flow in it.
func flowError(op string, err error, info *Info) error {
	if err == nil || err == io.EOF {
		return err
	}
	cause := err
	var opError *net.OpError
	var pathError *fs.PathError
	switch {
	case errors.As(err, &opError):
		cause = opError.Err
	case errors.As(err, &pathError):
		cause = pathError.Err
	}
	if errors.Is(cause, os.ErrClosed) {
		cause = net.ErrClosed
	}
	if isHangUp(cause) {
		cause = fmt.Errorf("%w: %w", ErrFlowEnded, cause)
	}
	return &net.OpError{
		Op: op, Net: network, Source: info.localAddr(), Addr: info.remoteAddr(), Err: cause,
	}
}

// errNoDescriptors means that this process has too many open files for the descriptors of a message.
var errNoDescriptors = fmt.Errorf("a descriptor from the node is lost: %w", syscall.EMFILE)

func isHangUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.ENOTCONN)
}
