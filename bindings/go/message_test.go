package carina_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"carina"
)

// flowPair returns the two ends of a flow of SDUs.
func flowPair(n *node) (*carina.Flow, *carina.Flow) {
	n.test.Helper()
	listener := n.listenMessages("pair.example")
	caller, err := n.dialer().DialMessages(n.context(), "pair.example")
	if err != nil {
		n.test.Fatal(err)
	}
	called, err := listener.Accept(n.context())
	if err != nil {
		n.test.Fatal(err)
	}
	n.test.Cleanup(func() { caller.Close(); called.Close() })
	return caller, called
}

func TestMessagesKeepTheirBoundaries(t *testing.T) {
	n := startNode(t, "")
	caller, called := flowPair(n)
	ctx := n.context()
	longest := caller.Info().MaxSDU
	lengths := []int{1, 0, 17, longest, 0, 0, 4096}
	go func() {
		for _, length := range lengths {
			caller.Send(ctx, bytes.Repeat([]byte{byte(length)}, length))
		}
		caller.Close()
	}()
	buffer := make([]byte, longest)
	for index, length := range lengths {
		count, err := called.Receive(ctx, buffer)
		if err != nil || count != length {
			t.Fatalf("SDU %d of %d bytes comes with %d bytes, %v", index, length, count, err)
		}
	}
	if _, err := called.Receive(ctx, buffer); err != io.EOF {
		t.Fatalf("behind the last SDU: %v", err)
	}
	if err := called.Send(ctx, []byte("late")); !errors.Is(err, carina.ErrFlowEnded) {
		t.Fatalf("a send to a flow that was closed: %v", err)
	}
}

func TestSDUThatIsTooLongIsAnErrorAndTheNextIsWhole(t *testing.T) {
	n := startNode(t, "")
	caller, called := flowPair(n)
	ctx := n.context()
	err := caller.Send(ctx, make([]byte, caller.Info().MaxSDU+1))
	if !errors.Is(err, carina.ErrTooLong) {
		t.Fatalf("an SDU that the flow does not carry: %v", err)
	}
	caller.Send(ctx, []byte("0123456789"))
	caller.Send(ctx, []byte("next"))
	buffer := make([]byte, 4)
	count, err := called.Receive(ctx, buffer)
	if !errors.Is(err, carina.ErrTooLong) || string(buffer[:count]) != "0123" {
		t.Fatalf("a buffer that is too short has %q, %v", buffer[:count], err)
	}
	count, err = called.Receive(ctx, buffer)
	if err != nil || string(buffer[:count]) != "next" {
		t.Fatalf("the next SDU is %q, %v", buffer[:count], err)
	}
}

func TestDescriptorsOfAPeerAreNotReceived(t *testing.T) {
	n := startNode(t, "")
	caller, called := flowPair(n)
	raw, err := caller.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	for range 100 {
		raw.Write(func(fd uintptr) bool {
			rights := syscall.UnixRights(0, 1, 2)
			err = syscall.Sendmsg(int(fd), []byte("x"), rights, nil, syscall.MSG_NOSIGNAL)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		var buffer [1]byte
		if count, err := called.Receive(n.context(), buffer[:]); count != 1 || err != nil {
			t.Fatalf("the SDU with descriptors has %d bytes, %v", count, err)
		}
	}
	if after := openDescriptors(t); after != before {
		t.Fatalf("%d descriptors are open; before it were %d", after, before)
	}
}

func TestMessagesReachAProgramWithRings(t *testing.T) {
	n := startNode(t, "")
	flow := n.ringEcho()
	ctx := n.context()
	buffer := make([]byte, flow.Info().MaxSDU)
	for _, text := range []string{"a", strings.Repeat("long", 10_000), "b"} {
		if err := flow.Send(ctx, []byte(text)); err != nil {
			t.Fatal(err)
		}
		count, err := flow.Receive(ctx, buffer)
		if err != nil || string(buffer[:count]) != text {
			t.Fatalf("%d bytes come back of %d, %v", count, len(text), err)
		}
	}
}

// ringEcho allocates a flow to an echo server whose end is two rings: the node carries this flow.
func (n *node) ringEcho() *carina.Flow {
	n.test.Helper()
	n.start("ping", "--listen", "ring.example", "--wait", "60s")
	flow := eventually(n, func() (*carina.Flow, error) {
		return n.dialer().DialMessages(n.context(), "ring.example")
	})
	return flow
}

func TestContextAndDeadlineEndAReceiveWithoutALoss(t *testing.T) {
	n := startNode(t, "")
	caller, called := flowPair(n)
	var buffer [16]byte
	ctx, cancel := context.WithTimeoutCause(n.context(), 10*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := called.Receive(ctx, buffer[:]); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Fatalf("a receive whose context ends: %v", err)
	}
	called.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := called.Receive(n.context(), buffer[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a receive with a deadline: %v", err)
	}
	called.SetReadDeadline(time.Time{})
	caller.Send(n.context(), []byte("whole"))
	count, err := called.Receive(n.context(), buffer[:])
	if err != nil || string(buffer[:count]) != "whole" {
		t.Fatalf("the next receive: %q, %v", buffer[:count], err)
	}
}
