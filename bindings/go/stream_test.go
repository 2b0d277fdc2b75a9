package carina_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"carina"
)

func TestStreamCarriesBytesBothWays(t *testing.T) {
	n := startNode(t, "")
	n.echoStreams("echo.example")
	conn, err := n.dialer().Dial(n.context(), "echo.example")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make([]byte, 1<<20)
	rand.Read(sent)
	go func() {
		conn.Write(sent)
		conn.CloseWrite()
	}()
	received, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sent, received) {
		t.Fatalf("%d bytes came back of %d, or others", len(received), len(sent))
	}
	info := conn.Info()
	if info.Remote != "echo.example" || info.DIF == "" || info.Port == 0 {
		t.Fatalf("the flow is described as %+v", info)
	}
	var address net.Addr = carina.Addr{Name: "echo.example", DIF: info.DIF}
	if conn.RemoteAddr() != address || address.Network() != "carina" {
		t.Fatalf("the remote address is %#v", conn.RemoteAddr())
	}
}

func TestDeadlineEndsAReadAndTheNextReadSucceeds(t *testing.T) {
	n := startNode(t, "")
	n.echoStreams("echo.example")
	conn, err := n.dialer().Dial(n.context(), "echo.example")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var buffer [16]byte
	_, err = conn.Read(buffer[:])
	var timeout net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("the read ends with %v", err)
	}
	conn.SetReadDeadline(time.Time{})
	conn.Write([]byte("again"))
	count, err := conn.Read(buffer[:])
	if err != nil || string(buffer[:count]) != "again" {
		t.Fatalf("the next read gives %q, %v", buffer[:count], err)
	}
}
