// Go's crypto/tls and net/http as clients: PORT-HTTP1 PORT-HTTP2 CA; prints what they saw, a fact
// per line.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(os.Args[3]))) {
		panic("no certificate in " + os.Args[3])
	}
	settings := &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	fetch(settings, "https://localhost:"+os.Args[1])
	fetch(settings, "https://localhost:"+os.Args[1])
	fetch(&tls.Config{RootCAs: roots}, "https://localhost:"+os.Args[2])
	halfClose(settings.Clone(), "localhost:"+os.Args[1])
}

// A transport per call, and so a connection per call.
func fetch(settings *tls.Config, url string) {
	transport := &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	answer := must((&http.Client{Transport: transport}).Get(url + "/large"))
	body := must(io.ReadAll(answer.Body))
	fmt.Printf("%s %x resumed=%v\n", answer.Proto, sha256.Sum256(body), answer.TLS.DidResume)
}

// Ends its own direction first; the answer must come all the same, with a clean end.
func halfClose(settings *tls.Config, address string) {
	settings.NextProtos = []string{"http/1.1"}
	connection := must(tls.Dial("tcp", address, settings))
	defer connection.Close()
	must(io.WriteString(connection, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
	if err := connection.CloseWrite(); err != nil {
		panic(err)
	}
	fmt.Printf("half-closed %s\n", must(io.ReadAll(connection))[:15])
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
