package carina_test

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamplesTalkToEachOther runs the programs of the page languages.md. They are linked without a
// C library.
func TestExamplesTalkToEachOther(t *testing.T) {
	n := startNode(t, "")
	n.listen("wait.for.the.node").Close()
	directory := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", directory, "./examples/...")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	example := func(name string, arguments ...string) *exec.Cmd {
		process := exec.Command(filepath.Join(directory, name), arguments...)
		process.Env = append(process.Environ(), "CARINA_RUN="+n.run)
		return process
	}
	// serve starts a server and waits until it has registered its name.
	serve := func(name string, arguments ...string) {
		server := example(name, arguments...)
		output, err := server.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Process.Kill(); server.Wait() })
		lines := bufio.NewScanner(output)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "registered as ") {
			t.Fatalf("the server prints %q", lines.Text())
		}
		go io.Copy(io.Discard, output)
	}
	serve("server", "echo.example")
	answers, err := example("client", "echo.example", "hello", "two words").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(answers), "hello\ntwo words\n") {
		t.Fatalf("the client ends with %v: %s", err, answers)
	}
	serve("web", "server", "web.example")
	answers, err = example("web", "client", "http://web.example/page").CombinedOutput()
	if err != nil || string(answers) != "/page for browser.example\n" {
		t.Fatalf("the client of the web server ends with %v: %s", err, answers)
	}
	// Debian's file(1) is not needed: a static program names no interpreter.
	headers, err := exec.Command("readelf", "--program-headers", filepath.Join(directory, "client")).
		Output()
	if err != nil {
		t.Skipf("SKIP: readelf of binutils: %v", err)
	}
	if strings.Contains(string(headers), "INTERP") {
		t.Fatal("the program is linked with shared libraries")
	}
}
