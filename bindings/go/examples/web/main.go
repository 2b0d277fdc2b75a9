// A web server and a client whose connections are flows.
//
//	go run ./examples/web server web.example
//	go run ./examples/web client http://web.example/page
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"carina"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: web server NAME | web client URL")
	}
	run := client
	if os.Args[1] == "server" {
		run = server
	}
	if err := run(os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func server(name string) error {
	listener, err := carina.Listen(context.Background(), name)
	if err != nil {
		return err
	}
	fmt.Println("registered as", name)
	// RemoteAddr is the name of the client.
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.URL.Path, "for", r.RemoteAddr)
	}))
}

func client(url string) error {
	// The host of the URL is the name of the server.
	dialer := carina.Dialer{Local: "browser.example"}
	browser := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	answer, err := browser.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
