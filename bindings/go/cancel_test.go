package carina_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"carina"
)

const cancellations = 1000

// cancelledSoon returns a context that ends at a random moment within limit.
func cancelledSoon(parent context.Context, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	timer := time.AfterFunc(time.Duration(rand.Int63n(int64(limit))), cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// settles waits until this process has as many descriptors open as before: the end of a flow and
// of a connection to the node are events in other goroutines.
func settles(t *testing.T, before int) {
	t.Helper()
	until := time.Now().Add(patience)
	for openDescriptors(t) > before {
		if time.Now().After(until) {
			t.Fatalf("%d descriptors are open; before it were %d", openDescriptors(t), before)
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
}

func TestCancelledDialsLeakNothing(t *testing.T) {
	n := startNode(t, "")
	n.echoStreams("echo.example")
	before := openDescriptors(t)
	made := 0
	for range cancellations {
		ctx, stop := cancelledSoon(n.context(), 600*time.Microsecond)
		conn, err := n.dialer().Dial(ctx, "echo.example")
		stop()
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("a dial that is cancelled ends with %v", err)
			}
			continue
		}
		made++
		// A flow that was returned is whole.
		var buffer [1]byte
		if _, err := conn.Write([]byte{7}); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(buffer[:]); err != nil || buffer[0] != 7 {
			t.Fatalf("the echo is %d, %v", buffer[0], err)
		}
		conn.Close()
	}
	t.Logf("%d of %d dials succeeded", made, cancellations)
	settles(t, before)
}

func TestCancelledAcceptsLoseNoFlow(t *testing.T) {
	n := startNode(t, "")
	listener := n.listen("slow.example")
	before := openDescriptors(t)
	var dialing group
	var accepted, dialled atomic.Int64
	const flows = 200
	dialing.Go(func() {
		for range flows {
			conn, err := n.dialer().Dial(n.context(), "slow.example")
			if err != nil {
				t.Error(err)
				return
			}
			dialled.Add(1)
			conn.Close()
		}
	})
	accept := func(ctx context.Context) {
		conn, err := listener.AcceptContext(ctx)
		if err == nil {
			accepted.Add(1)
			conn.Close()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("an accept that is cancelled ends with %v", err)
		}
	}
	for range cancellations {
		ctx, stop := cancelledSoon(n.context(), 300*time.Microsecond)
		accept(ctx)
		stop()
	}
	dialing.Wait()
	for accepted.Load() < dialled.Load() && !t.Failed() {
		accept(n.context())
	}
	if accepted.Load() != flows {
		t.Fatalf("%d flows were accepted of %d", accepted.Load(), flows)
	}
	settles(t, before)
}

func TestCancelledReceivesAndSendsLoseNoSDU(t *testing.T) {
	n := startNode(t, "")
	caller, called := flowPair(n)
	var sending group
	var sent atomic.Uint64
	finished := make(chan struct{})
	sending.Go(func() {
		defer close(finished)
		var sdu [8]byte
		cancelled := 0
		for number := uint64(0); cancelled < cancellations; {
			binary.BigEndian.PutUint64(sdu[:], number)
			ctx, stop := cancelledSoon(n.context(), 20*time.Microsecond)
			err := caller.Send(ctx, sdu[:])
			stop()
			switch {
			case err == nil:
				number++
				sent.Store(number)
			case errors.Is(err, context.Canceled):
				cancelled++
			default:
				t.Error(err)
				return
			}
		}
	})
	cancelled, next, buffer := 0, uint64(0), make([]byte, 64)
	isFinished := func() bool {
		select {
		case <-finished:
			return true
		default:
			return false
		}
	}
	for !isFinished() || next < sent.Load() || cancelled < cancellations {
		ctx, stop := cancelledSoon(n.context(), 100*time.Microsecond)
		count, err := called.Receive(ctx, buffer)
		stop()
		switch {
		case err == nil:
			if number := binary.BigEndian.Uint64(buffer[:count]); number != next {
				t.Fatalf("SDU %d comes after SDU %d", number, next-1)
			}
			next++
		case errors.Is(err, context.Canceled):
			cancelled++
		default:
			t.Fatal(err)
		}
	}
	sending.Wait()
	if next != sent.Load() {
		t.Fatalf("%d SDUs were received of %d", next, sent.Load())
	}
	t.Logf("%d SDUs, %d receives cancelled", next, cancelled)
}

func TestClosedListenerClosesFlowsThatNobodyAccepted(t *testing.T) {
	n := startNode(t, "")
	before := openDescriptors(t)
	listener := n.listen("ends.example")
	var conns []*carina.Conn
	for range 20 {
		conn, err := n.dialer().Dial(n.context(), "ends.example")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	listener.Close()
	for _, conn := range conns {
		var buffer [1]byte
		if _, err := conn.Read(buffer[:]); err == nil {
			t.Fatal("a flow that nobody accepted has bytes")
		}
		conn.Close()
	}
	settles(t, before)
}
