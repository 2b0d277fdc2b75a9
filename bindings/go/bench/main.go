// Measures net/http over flows of a node beside TCP on the loopback interface, in turns.
//
//	go run ./bench -run DIRECTORY -runs 5 -time 1s -size 64
//
// It prints one JSON object for each system. `carina bench bindings` starts it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"carina"
)

// side is one of the transports that are compared.
type side struct {
	System string    `json:"system"`
	Size   int       `json:"size"`
	Rates  []float64 `json:"requests_per_s"`
	url    string
	dial   func(context.Context, string, string) (net.Conn, error)
}

func main() {
	directory := flag.String("run", "", "run directory of the node")
	runs := flag.Int("runs", 5, "runs of each system")
	first := flag.Int("first", 0, "the system that the first run begins with, 0 or 1")
	length := flag.Duration("time", time.Second, "length of a run")
	size := flag.Int("size", 64, "bytes of a request's body and of its answer's")
	flag.Parse()
	if *runs < 1 || *first < 0 || *size < 0 {
		log.Fatal("-runs must be 1 or more, -first and -size 0 or more")
	}
	if err := measure(*directory, *runs, *first, *length, *size); err != nil {
		log.Fatal(err)
	}
}

func measure(directory string, runs, first int, length time.Duration, size int) error {
	socket := carina.SocketPath()
	if directory != "" {
		socket = filepath.Join(directory, "ipc.sock")
	}
	config := carina.ListenConfig{Socket: socket}
	flows, err := config.Listen(context.Background(), name)
	if err != nil {
		return fmt.Errorf("registering %s: %w", name, err)
	}
	defer flows.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer tcp.Close()
	for _, listener := range []net.Listener{flows, tcp} {
		go http.Serve(listener, http.HandlerFunc(echo))
	}
	dialer := carina.Dialer{Socket: socket}
	sides := []*side{
		{System: "carina", url: "http://" + name + "/", dial: dialer.DialContext},
		{System: "tcp", url: "http://" + tcp.Addr().String() + "/", dial: new(net.Dialer).DialContext},
	}
	for run := range runs {
		order := slices.Clone(sides)
		if (first+run)%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			if err := s.run(length, size); err != nil {
				return fmt.Errorf("%s: %w", s.System, err)
			}
		}
	}
	out := json.NewEncoder(os.Stdout)
	for _, s := range sides {
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

// echo answers with the body of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	// A handler of HTTP/1 reads the whole request before it answers.
	if body, err := io.ReadAll(r.Body); err == nil {
		w.Write(body)
	}
}

// run sends requests for a while over one connection.
func (s *side) run(length time.Duration, size int) error {
	transport := &http.Transport{DialContext: s.dial}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: time.Minute}
	body := make([]byte, size)
	begin, count := time.Now(), 0
	for time.Since(begin) < length {
		answer, err := client.Post(s.url, "application/octet-stream", bytes.NewReader(body))
		if err != nil {
			return err
		}
		got, err := io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil {
			return err
		}
		if got != int64(size) {
			return fmt.Errorf("%d bytes came back of %d", got, size)
		}
		count++
	}
	s.Size = size
	s.Rates = append(s.Rates, float64(count)/time.Since(begin).Seconds())
	return nil
}

// name is the application name of the server.
const name = "bench.web"
