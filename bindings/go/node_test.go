package carina_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"carina"
)

// node is a process `carina node` with a run directory of its own.
type node struct {
	test    testing.TB
	program string
	socket  string
	run     string
	process *exec.Cmd
}

// startNode starts a node that ends with the test. The test is skipped without a program.
func startNode(test testing.TB, config string) *node {
	test.Helper()
	program := os.Getenv("CARINA_PROGRAM")
	if program == "" {
		test.Skip("SKIP: CARINA_PROGRAM does not name the program carina; `make test` sets it")
	}
	// Paths of sockets have at most 107 bytes: the directories of testing.T are too long.
	run, err := os.MkdirTemp("", "go")
	if err != nil {
		test.Fatal(err)
	}
	test.Cleanup(func() { os.RemoveAll(run) })
	n := &node{test: test, program: program, run: run, socket: filepath.Join(run, "ipc.sock")}
	arguments := []string{"node"}
	if config != "" {
		path := filepath.Join(run, "node.toml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			test.Fatal(err)
		}
		arguments = append(arguments, "--config", path)
	}
	n.process = n.start(arguments...)
	n.test.Cleanup(n.kill)
	return n
}

// start starts the program carina for the run directory of this node.
func (n *node) start(arguments ...string) *exec.Cmd {
	n.test.Helper()
	var log bytes.Buffer
	process := exec.Command(n.program, arguments...)
	process.Env = append(os.Environ(), "CARINA_RUN="+n.run, "CARINA_LOG=warn")
	process.Stderr = &log
	if err := process.Start(); err != nil {
		n.test.Fatal(err)
	}
	n.test.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
		if n.test.Failed() {
			n.test.Logf("%v: %s", arguments, log.String())
		}
	})
	return process
}

// kill ends the node as `kill -9` does.
func (n *node) kill() {
	n.process.Process.Kill()
	n.process.Wait()
}

func (n *node) dialer() *carina.Dialer { return &carina.Dialer{Socket: n.socket} }

// listen registers a name for byte streams, and waits for the node to listen.
func (n *node) listen(name string) *carina.Listener {
	n.test.Helper()
	config := carina.ListenConfig{Socket: n.socket, Backlog: 4096}
	return eventually(n, func() (*carina.Listener, error) { return config.Listen(n.context(), name) })
}

// listenMessages registers a name for flows of SDUs, and waits for the node to listen.
func (n *node) listenMessages(name string) *carina.MessageListener {
	n.test.Helper()
	config := carina.ListenConfig{Socket: n.socket, Backlog: 4096}
	return eventually(n, func() (*carina.MessageListener, error) {
		return config.ListenMessages(n.context(), name)
	})
}

// echoStreams serves a name: everything that arrives is sent back.
func (n *node) echoStreams(name string) {
	n.test.Helper()
	listener := n.listen(name)
	var serving group
	serving.Go(func() {
		for {
			conn, err := listener.AcceptContext(context.Background())
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				var buffer [4096]byte
				for {
					count, err := conn.Read(buffer[:])
					if err != nil {
						return
					}
					if _, err := conn.Write(buffer[:count]); err != nil {
						return
					}
				}
			})
		}
	})
	n.test.Cleanup(func() { listener.Close(); serving.Wait() })
}

func (n *node) context() context.Context { return withPatience(n.test) }

// withPatience ends calls that hang; no result depends on its time.
func withPatience(test testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	test.Cleanup(cancel)
	return ctx
}

// eventually repeats call until it succeeds, or until the node has had time to start.
func eventually[T interface{ Close() error }](n *node, call func() (T, error)) T {
	n.test.Helper()
	until := time.Now().Add(patience)
	for {
		made, err := call()
		if err == nil {
			n.test.Cleanup(func() { made.Close() })
			return made
		}
		if time.Now().After(until) {
			n.test.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// group waits for goroutines; the method Go of sync.WaitGroup needs Go 1.25.
type group struct{ sync.WaitGroup }

func (g *group) Go(run func()) {
	g.Add(1)
	go func() {
		defer g.Done()
		run()
	}()
}

// openDescriptors counts the descriptors of this process.
func openDescriptors(test testing.TB) int {
	test.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		test.Fatal(err)
	}
	count := 0
	for _, entry := range entries {
		// The directory itself was open while it was read.
		if _, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil {
			if number, err := strconv.Atoi(entry.Name()); err == nil && number > 2 {
				count++
			}
		}
	}
	return count
}

const patience = time.Minute
