package carina_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"
)

// echoHandler answers with the body of the request and the name of the client.
var echoHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Client", r.RemoteAddr)
	// A handler of HTTP/1 reads the whole request before it answers.
	body, err := io.ReadAll(r.Body)
	if err == nil {
		w.Write(body)
	}
})

// serveHTTP serves handler on listener until the test ends.
func serveHTTP(test testing.TB, listener net.Listener, handler http.Handler) {
	server := http.Server{Handler: handler}
	var serving group
	serving.Go(func() { server.Serve(listener) })
	test.Cleanup(func() { server.Close(); serving.Wait() })
}

func TestHTTPRunsOverFlows(t *testing.T) {
	n := startNode(t, "")
	serveHTTP(t, n.listen("web.example"), echoHandler)
	dialer := n.dialer()
	dialer.Local = "browser.example"
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	client := http.Client{Transport: transport}
	var asking group
	for number := range 40 {
		asking.Go(func() {
			body := bytes.Repeat([]byte{byte(number)}, 1000*number)
			answer, err := client.Post("http://web.example/echo", "text/plain", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || !bytes.Equal(text, body) {
				t.Errorf("%d bytes come back of %d, %v", len(text), len(body), err)
			}
			if answer.Header.Get("Client") != "browser.example" {
				t.Errorf("the server sees %q", answer.Header.Get("Client"))
			}
		})
	}
	asking.Wait()
}

func TestHTTPServerShutsDownInGoodOrder(t *testing.T) {
	n := startNode(t, "")
	listener := n.listen("web.example")
	server := http.Server{Handler: echoHandler}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	transport := &http.Transport{DialContext: n.dialer().DialContext}
	client := http.Client{Transport: transport}
	answer, err := client.Get("http://web.example/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	transport.CloseIdleConnections()
	if err := server.Shutdown(n.context()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != http.ErrServerClosed {
		t.Fatalf("the server ends with %v", err)
	}
	if _, err := client.Get("http://web.example/"); err == nil {
		t.Fatal("a server that was shut down answers")
	}
}

// BenchmarkHTTPOverFlows measures requests over a flow and over TCP on loopback in turns, and prints
// runs, median and spread side by side:
//
//	go test -run '^$' -bench HTTP -benchtime 1x
func BenchmarkHTTPOverFlows(b *testing.B) {
	n := startNode(b, "")
	dialer := n.dialer()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	serveHTTP(b, n.listen("web.example"), echoHandler)
	serveHTTP(b, tcp, echoHandler)
	sides := []side{
		{"flow", "http://web.example/", dialer.DialContext, nil},
		{"tcp", "http://" + tcp.Addr().String() + "/", new(net.Dialer).DialContext, nil},
	}
	for _, size := range []int{64, 16 << 10, 1 << 20} {
		for index := range sides {
			sides[index].rates = nil
		}
		for range b.N * turns {
			for index := range sides {
				sides[index].run(b, size)
			}
		}
		var ratios []float64
		for index, rate := range sides[0].rates {
			ratios = append(ratios, rate/sides[1].rates[index])
		}
		slices.Sort(ratios)
		for _, s := range sides {
			slices.Sort(s.rates)
			middle := s.rates[len(s.rates)/2]
			fmt.Printf("http %8d bytes %-5s %d runs, median %9.0f requests/s, %9.0f to %9.0f\n",
				size, s.name, len(s.rates), middle, s.rates[0], s.rates[len(s.rates)-1])
			b.ReportMetric(middle, fmt.Sprintf("%s-%d-req/s", s.name, size))
		}
		fmt.Printf("http %8d bytes flow : tcp, median of the turns %.2f, %.2f to %.2f\n",
			size, ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	}
}

// side is one of the transports that are compared.
type side struct {
	name  string
	url   string
	dial  func(context.Context, string, string) (net.Conn, error)
	rates []float64
}

// run sends requests with a body of size bytes for a while over one connection.
func (s *side) run(b *testing.B, size int) {
	transport := &http.Transport{DialContext: s.dial}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	body := make([]byte, size)
	begin, count := time.Now(), 0
	for time.Since(begin) < turn {
		answer, err := client.Post(s.url, "application/octet-stream", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			b.Fatal(err)
		}
		answer.Body.Close()
		count++
	}
	s.rates = append(s.rates, float64(count)/time.Since(begin).Seconds())
}

const (
	turns = 7
	turn  = 300 * time.Millisecond
)
