// An HTTP/2 server without TLS that prints its address. The handler of /slow works for half a minute, also for requests
// that were cancelled; the others take a second.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

func main() {
	http.HandleFunc("/slow", func(http.ResponseWriter, *http.Request) { time.Sleep(30 * time.Second) })
	http.HandleFunc("/", func(response http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Second)
		io.WriteString(response, "done")
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	server := http.Server{Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	panic(server.Serve(listener))
}
