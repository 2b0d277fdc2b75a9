// An echo server: registers a name and sends every SDU back to its sender.
//
//	go run ./examples/server echo.example
//
// A node must run; CARINA_RUN names its run directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"carina"
)

func main() {
	name := "echo.example"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	ctx := context.Background()
	listener, err := carina.ListenMessages(ctx, name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("registered as", name)
	for {
		flow, err := listener.Accept(ctx)
		if err != nil {
			log.Fatal(err)
		}
		go serve(ctx, flow)
	}
}

// serve sends every SDU back until the flow ends.
func serve(ctx context.Context, flow *carina.Flow) {
	defer flow.Close()
	sdu := make([]byte, flow.Info().MaxSDU)
	for {
		length, err := flow.Receive(ctx, sdu)
		if err == nil {
			err = flow.Send(ctx, sdu[:length])
		}
		if errors.Is(err, io.EOF) {
			fmt.Println(flow.RemoteAddr(), "closed its flow")
			return
		}
		if err != nil {
			fmt.Println("the flow failed:", err)
			return
		}
	}
}
