// A client of the echo server: allocates a flow and sends each argument as one SDU.
//
//	go run ./examples/client echo.example hello "two words"
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"carina"
)

func main() {
	name, texts := "echo.example", []string{"hello"}
	if len(os.Args) > 1 {
		name, texts = os.Args[1], os.Args[2:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	flow, err := carina.DialMessages(ctx, name)
	if err != nil {
		log.Fatal(err)
	}
	// The server receives everything that was sent, and then the end of the flow.
	defer flow.Close()
	fmt.Printf("port %d in DIF %s\n", flow.Info().Port, flow.Info().DIF)
	answer := make([]byte, 4096)
	for _, text := range texts {
		if err := flow.Send(ctx, []byte(text)); err != nil {
			log.Fatal(err)
		}
		// One Send of the server is one Receive here: a flow keeps the boundaries of SDUs.
		length, err := flow.Receive(ctx, answer)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(answer[:length]))
	}
}
