package carina_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"carina"
)

// twoNodes starts two nodes with a DIF named net over UDP on loopback.
func twoNodes(t *testing.T) (*node, *node) {
	t.Helper()
	var ports [2]string
	for index := range ports {
		socket, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[index] = socket.LocalAddr().String()
		socket.Close()
	}
	config := func(own, other, role string, port, peer string) string {
		return fmt.Sprintf(`
[[ipcp]]
name = "%[1]s.udp"
type = "udp"
dif = "inet"
listen = "%[4]s"
peers = [{ name = "%[2]s.net", address = "%[5]s" }]

[[dif]]
name = "net"
role = "%[3]s"
ipcp = "%[1]s.net"
over = ["inet"]
`, own, other, role, port, peer)
	}
	first := startNode(t, config("a", "b", "create", ports[0], ports[1]))
	joining := config("b", "a", "join", ports[1], ports[0]) + "via = \"a.net\"\n"
	return first, startNode(t, joining)
}

func TestFlowsCrossTwoSystems(t *testing.T) {
	server, browser := twoNodes(t)
	listener := server.listen("web.example")
	messages := server.listenMessages("messages.example")
	serveHTTP(t, listener, echoHandler)
	// The name is known when the second node has joined the DIF.
	flow := eventually(browser, func() (*carina.Flow, error) {
		return browser.dialer().DialMessages(browser.context(), "messages.example")
	})
	if flow.Info().DIF != "net" {
		t.Fatalf("the flow is described as %+v", flow.Info())
	}
	called, err := messages.Accept(server.context())
	if err != nil {
		t.Fatal(err)
	}
	defer called.Close()
	long := bytes.Repeat([]byte("long"), 10_000)
	for _, sdu := range [][]byte{[]byte("a"), {}, long, []byte("b")} {
		if err := flow.Send(browser.context(), sdu); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, called.Info().MaxSDU)
		count, err := called.Receive(server.context(), buffer)
		if err != nil || !bytes.Equal(buffer[:count], sdu) {
			t.Fatalf("an SDU of %d bytes comes with %d bytes, %v", len(sdu), count, err)
		}
	}
	transport := &http.Transport{DialContext: browser.dialer().DialContext}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	body := bytes.Repeat([]byte{7}, 300_000)
	answer, err := client.Post("http://web.example/", "text/plain", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(text, body) {
		t.Fatalf("%d bytes come back of %d, %v", len(text), len(body), err)
	}
	// The other system fails: the flow ends when its node is killed.
	browser.kill()
	if _, err := flow.Receive(browser.context(), body); err != io.EOF {
		t.Fatalf("a receive after the end of the node: %v", err)
	}
}
