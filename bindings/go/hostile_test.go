package carina_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"carina"
)

// fakeNode listens like a node; serve plays the node on each connection.
func fakeNode(t *testing.T, serve func(*net.UnixConn)) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "go")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "ipc.sock")
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close(); os.RemoveAll(directory) })
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			serve(conn)
			conn.Close()
		}
	}()
	return path
}

// sendWith sends a message with a number of descriptors of sockets of the type.
func sendWith(conn *net.UnixConn, message string, count, socketType int) {
	var rights []int
	for range count {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, socketType|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			panic(err)
		}
		defer syscall.Close(pair[0])
		defer syscall.Close(pair[1])
		rights = append(rights, pair[0])
	}
	if count == 0 {
		conn.Write([]byte(message))
		return
	}
	ancillary := syscall.UnixRights(rights...)
	if message != "" {
		conn.WriteMsgUnix([]byte(message), ancillary, nil)
		return
	}
	// WriteMsgUnix adds a byte to a message without any.
	raw, err := conn.SyscallConn()
	if err != nil {
		panic(err)
	}
	header := syscall.Msghdr{Control: &ancillary[0], Controllen: uint64(len(ancillary))}
	raw.Write(func(fd uintptr) bool {
		syscall.Syscall(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&header)), 0)
		return true
	})
}

func flowMessage(mode string, port int) string {
	return fmt.Sprintf(`{"flow":{"request":null,"port":%d,"local":"a","remote":"b","dif":"d",`+
		`"spec":{},"ring_bytes":0,"tx_ring":0,"light_wake":false,"sdu_max":0,"mode":%q}}`, port, mode)
}

const request = `{"flow_request":{"request":1,"local":"a","remote":"b","dif":"d","spec":{}}}`

func TestHostileAnswersToADialAreErrors(t *testing.T) {
	stream, packet := syscall.SOCK_STREAM, syscall.SOCK_SEQPACKET
	for name, answer := range map[string]struct {
		message     string
		descriptors int
		socketType  int
		right       error
	}{
		"no answer":          {"", 0, stream, carina.ErrNodeGone},
		"empty, with many":   {"", 5, stream, carina.ErrNodeGone},
		"not JSON":           {"{flow", 1, stream, carina.ErrProtocol},
		"no object":          {"[]", 1, stream, carina.ErrProtocol},
		"two kinds":          {`{"flow":{},"error":{}}`, 1, stream, carina.ErrProtocol},
		"unknown kind":       {`{"gift":{}}`, 1, stream, carina.ErrProtocol},
		"wrong types":        {`{"flow":{"port":"one"}}`, 1, stream, carina.ErrProtocol},
		"port 0":             {flowMessage("stream", 0), 1, stream, carina.ErrProtocol},
		"no descriptor":      {flowMessage("stream", 1), 0, stream, carina.ErrProtocol},
		"two descriptors":    {flowMessage("stream", 1), 2, stream, carina.ErrProtocol},
		"many descriptors":   {flowMessage("stream", 1), 100, stream, carina.ErrProtocol},
		"another mode":       {flowMessage("ring", 1), 1, stream, carina.ErrProtocol},
		"another socket":     {flowMessage("stream", 1), 1, packet, carina.ErrProtocol},
		"oversize":           {strings.Repeat(" ", 70_000) + "{}", 0, stream, carina.ErrProtocol},
		"deep":               {strings.Repeat("[", 60_000), 0, stream, carina.ErrProtocol},
		"another answer":     {request, 1, stream, carina.ErrProtocol},
		"refusal with gifts": {`{"error":{"code":"link-down","message":"m"}}`, 3, stream, carina.LinkDown},
	} {
		t.Run(name, func(t *testing.T) {
			served := make(chan struct{})
			path := fakeNode(t, func(conn *net.UnixConn) {
				defer close(served)
				conn.Read(make([]byte, 1<<16))
				if answer.message != "" || answer.descriptors > 0 {
					sendWith(conn, answer.message, answer.descriptors, answer.socketType)
				}
			})
			before := openDescriptors(t)
			dialer := carina.Dialer{Socket: path}
			conn, err := dialer.Dial(context.Background(), "b")
			if !errors.Is(err, answer.right) {
				t.Fatalf("the dial gives %v, %v", conn, err)
			}
			<-served
			settles(t, before)
		})
	}
}

func TestHostileMessagesEndAListener(t *testing.T) {
	accepted := strings.Replace(flowMessage("stream", 1), "null", "1", 1)
	for name, messages := range map[string][]string{
		"not JSON":                   {"x"},
		"a flow without a request":   {flowMessage("stream", 1)},
		"a flow that was not wanted": {accepted},
		"a flow in another mode":     {request, strings.Replace(accepted, "stream", "socket", 1)},
		"a second registration":      {`{"registered":{"name":"a","difs":[]}}`},
		"a request without a number": {`{"flow_request":{"local":"a","remote":"b","dif":"d"}}`},
		"no descriptor":              {request, accepted},
	} {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			path := fakeNode(t, func(conn *net.UnixConn) {
				conn.Read(make([]byte, 1<<16))
				conn.Write([]byte(`{"registered":{"name":"a","difs":["d"]}}`))
				for _, message := range messages {
					count := 1
					if name == "no descriptor" {
						count = 0
					}
					sendWith(conn, message, count, syscall.SOCK_STREAM)
				}
				<-hold
			})
			defer close(hold)
			config := carina.ListenConfig{Socket: path}
			listener, err := config.Listen(context.Background(), "a")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			if conn, err := listener.Accept(); !errors.Is(err, carina.ErrProtocol) {
				t.Fatalf("accept gives %v, %v", conn, err)
			}
		})
	}
}

func TestProcessWithoutDescriptorsLosesAFlowAndNotItsListener(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[0])
	defer syscall.Close(pair[1])
	turn := make(chan struct{})
	accepted := strings.Replace(flowMessage("stream", 1), "null", "1", 1)
	path := fakeNode(t, func(conn *net.UnixConn) {
		buffer := make([]byte, 1<<16)
		conn.Read(buffer)
		conn.Write([]byte(`{"registered":{"name":"a","difs":["d"]}}`))
		for range 2 {
			<-turn
			conn.Write([]byte(request))
			conn.Read(buffer)
			conn.WriteMsgUnix([]byte(accepted), syscall.UnixRights(pair[0]), nil)
		}
		<-turn
	})
	defer close(turn)
	config := carina.ListenConfig{Socket: path}
	listener, err := config.Listen(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 0, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	turn <- struct{}{}
	until := time.Now().Add(patience)
	for listener.Lost() == 0 {
		if time.Now().After(until) {
			t.Fatal("the flow is not counted as lost")
		}
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	turn <- struct{}{}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatalf("the next flow: %v", err)
	}
	conn.Close()
}

func TestRequestsAreWhatTheProtocolSays(t *testing.T) {
	received := make(chan []byte, 1)
	path := fakeNode(t, func(conn *net.UnixConn) {
		buffer := make([]byte, 1<<16)
		count, _ := conn.Read(buffer)
		received <- buffer[:count]
	})
	spec := carina.Unreliable()
	dialer := carina.Dialer{Socket: path, Local: "l", DIF: "d", Spec: &spec}
	dialer.DialMessages(context.Background(), "r")
	right := `{"op":"allocate","version":1,"local":"l","remote":"r","dif":"d","spec":{` +
		`"max_delay_us":0,"max_sdu_gap":18446744073709551615,"avg_bandwidth_bps":0,` +
		`"max_loss":10000,"in_order":false,"msg_boundaries":true,"max_jitter_us":0},"mode":"socket"}`
	if request := <-received; !bytes.Equal(request, []byte(right)) {
		t.Fatalf("the request is %s", request)
	}
}
