package carina

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// A socket of another family, such as AF_VSOCK, behaves like one that package net knows; Unix
// sockets stand for it here.
func TestSocketOfAnotherFamilyIsAByteStream(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*Conn
	for index, number := range pair {
		file := os.NewFile(uintptr(number), "flow")
		socket, err := newFileSocket(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[index] = &Conn{socket: socket.(streamSocket), info: Info{Local: "a", Remote: "b"}}
		defer ends[index].Close()
	}
	var buffer [8]byte
	ends[0].SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := ends[0].Read(buffer[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a read with a deadline: %v", err)
	}
	ends[0].SetReadDeadline(time.Time{})
	ends[1].Write([]byte("bytes"))
	ends[1].CloseWrite()
	if text, err := io.ReadAll(ends[0]); err != nil || string(text) != "bytes" {
		t.Fatalf("%q, %v", text, err)
	}
	ends[1].Close()
	if _, err := ends[0].Write(buffer[:]); !errors.Is(err, ErrFlowEnded) {
		t.Fatalf("a write to a peer that has closed: %v", err)
	}
	if _, err := ends[1].Read(buffer[:]); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("a read from a closed end: %v", err)
	}
}
