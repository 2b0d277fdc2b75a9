package carina_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"carina"
)

func TestRefusalsHaveTheCodeOfTheNode(t *testing.T) {
	n := startNode(t, "")
	n.listen("taken.example")
	ctx := n.context()
	_, err := n.dialer().Dial(ctx, "nobody.example")
	var refused *carina.RefusedError
	if !errors.Is(err, carina.UnknownName) || !errors.As(err, &refused) || refused.Message == "" {
		t.Fatalf("a flow to an unknown name: %v", err)
	}
	config := carina.ListenConfig{Socket: n.socket}
	if _, err := config.Listen(ctx, "taken.example"); !errors.Is(err, carina.DuplicateName) {
		t.Fatalf("a name that is taken: %v", err)
	}
	if _, err := config.Listen(ctx, ""); !errors.Is(err, carina.BadRequest) {
		t.Fatalf("an empty name: %v", err)
	}
	config.DIF = "nowhere"
	if _, err := config.Listen(ctx, "other.example"); !errors.Is(err, carina.NotFound) {
		t.Fatalf("a DIF that does not exist: %v", err)
	}
}

func TestReasonOfARefusalReachesTheCaller(t *testing.T) {
	n := startNode(t, "")
	n.listen("node.is.ready").Close()
	config := carina.ListenConfig{Socket: n.socket, Refuse: func(request carina.Request) error {
		return errors.New("no flows for " + request.Remote)
	}}
	listener, err := config.Listen(n.context(), "shy.example")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialer := n.dialer()
	dialer.Local = "caller.example"
	_, err = dialer.Dial(n.context(), "shy.example")
	var refused *carina.RefusedError
	if !errors.As(err, &refused) || refused.Code != carina.FlowDenied {
		t.Fatalf("a flow that the application refuses: %v", err)
	}
}

func TestFullBacklogRefusesAndAcceptMakesRoom(t *testing.T) {
	n := startNode(t, "")
	n.listen("node.is.ready").Close()
	config := carina.ListenConfig{Socket: n.socket, Backlog: 1}
	listener, err := config.Listen(n.context(), "busy.example")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for range 3 {
		conn, err := n.dialer().Dial(n.context(), "busy.example")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := n.dialer().Dial(n.context(), "busy.example"); !errors.Is(err, carina.FlowDenied) {
			t.Fatalf("a flow beyond the backlog: %v", err)
		}
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
	}
}

func TestNodeThatDoesNotRunIsNoNode(t *testing.T) {
	dialer := carina.Dialer{Socket: filepath.Join(t.TempDir(), "ipc.sock")}
	if _, err := dialer.Dial(context.Background(), "a"); !errors.Is(err, carina.ErrNoNode) {
		t.Fatalf("a dial without a node: %v", err)
	}
}

func TestClosedListenerEndsAccept(t *testing.T) {
	n := startNode(t, "")
	listener := n.listen("closed.example")
	ended := make(chan error)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("accept ends with %v", err)
	}
	if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("a second close: %v", err)
	}
}

func TestKilledNodeEndsWhatWaitsForIt(t *testing.T) {
	n := startNode(t, "")
	listener := n.listen("waits.example")
	flow := n.ringEcho()
	if err := flow.Send(n.context(), []byte("carried")); err != nil {
		t.Fatal(err)
	}
	var buffer [16]byte
	if _, err := flow.Receive(n.context(), buffer[:]); err != nil {
		t.Fatal(err)
	}
	accepted, received := make(chan error), make(chan error)
	go func() {
		_, err := listener.AcceptContext(n.context())
		accepted <- err
	}()
	go func() {
		_, err := flow.Receive(n.context(), buffer[:])
		received <- err
	}()
	n.kill()
	if err := <-accepted; !errors.Is(err, carina.ErrNodeGone) {
		t.Fatalf("accept ends with %v", err)
	}
	if err := <-received; err != io.EOF {
		t.Fatalf("a receive on a flow that the node carried ends with %v", err)
	}
	if err := flow.Send(n.context(), []byte("x")); !errors.Is(err, carina.ErrFlowEnded) {
		t.Fatalf("a send on a flow that the node carried ends with %v", err)
	}
	if _, err := n.dialer().Dial(n.context(), "waits.example"); !errors.Is(err, carina.ErrNoNode) {
		t.Fatalf("a dial after the end of the node: %v", err)
	}
}

func TestKilledPeerEndsItsFlows(t *testing.T) {
	n := startNode(t, "")
	listener := n.listen("survivor.example")
	peer := exec.Command(os.Args[0], "-test.run=^TestPartThatIsKilled$")
	peer.Env = append(os.Environ(), "CARINA_TEST_SOCKET="+n.socket)
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	defer peer.Wait()
	defer peer.Process.Kill()
	conn, err := listener.AcceptContext(n.context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var buffer [16]byte
	count, err := conn.Read(buffer[:])
	if err != nil || string(buffer[:count]) != "alive" {
		t.Fatalf("the peer says %q, %v", buffer[:count], err)
	}
	ended := make(chan error)
	go func() {
		_, err := conn.Read(buffer[:])
		ended <- err
	}()
	peer.Process.Kill()
	if err := <-ended; err != io.EOF {
		t.Fatalf("a read from a peer that is killed ends with %v", err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, carina.ErrFlowEnded) {
		t.Fatalf("a write to a peer that is killed ends with %v", err)
	}
}

// TestPartThatIsKilled is the peer of TestKilledPeerEndsItsFlows, a process of its own.
func TestPartThatIsKilled(t *testing.T) {
	socket := os.Getenv("CARINA_TEST_SOCKET")
	if socket == "" {
		return
	}
	dialer := carina.Dialer{Socket: socket}
	conn, err := dialer.Dial(context.Background(), "survivor.example")
	if err != nil {
		t.Fatal(err)
	}
	conn.Write([]byte("alive"))
	io.Copy(io.Discard, conn)
}
