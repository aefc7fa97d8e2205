// Go's crypto/tls and net/http as clients: PORT-HTTP1 PORT-HTTP2 CA FILE-SIZE; prints what they
// saw, a fact per line.
package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

func main() {
	http1, http2, size := os.Args[1], os.Args[2], must(strconv.Atoi(os.Args[4]))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(os.Args[3]))) {
		panic("no certificate in " + os.Args[3])
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		settings := &tls.Config{
			RootCAs: roots, MinVersion: version, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(8),
		}
		fetch(settings, "https://localhost:"+http1, size)
		fetch(settings, "https://localhost:"+http1, size)
		fetch(settings, "https://localhost:"+http2, size)
		halfClose(settings.Clone(), "localhost:"+http1)
	}
	if _, err := tls.Dial("tcp", "localhost:"+http1, &tls.Config{}); err != nil {
		fmt.Println("refused a stranger")
	}
}

// A transport per call, and so a connection per call.
func fetch(settings *tls.Config, url string, size int) {
	transport := &http.Transport{TLSClientConfig: settings, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	answer := must(client.Get(fmt.Sprintf("%s/%d", url, size)))
	body := must(io.ReadAll(answer.Body))
	fmt.Printf("%s %s download %x resumed=%v\n", versionName(answer.TLS.Version), answer.Proto,
		sha256.Sum256(body), answer.TLS.DidResume)

	sent := bytes.Repeat([]byte("sealane!"), size/8)
	answer = must(client.Post(url+"/upload", "application/octet-stream", bytes.NewReader(sent)))
	body = must(io.ReadAll(answer.Body))
	fmt.Printf("%s %s upload %x %s\n", versionName(answer.TLS.Version), answer.Proto,
		sha256.Sum256(sent), body)
}

// Ends its own direction first; the answer must come all the same, with a clean end.
func halfClose(settings *tls.Config, address string) {
	settings.NextProtos = []string{"http/1.1"}
	connection := must(tls.Dial("tcp", address, settings))
	defer connection.Close()
	must(io.WriteString(connection, "GET /1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
	if err := connection.CloseWrite(); err != nil {
		panic(err)
	}
	answer := must(io.ReadAll(connection))
	version := versionName(connection.ConnectionState().Version)
	fmt.Printf("%s half-closed %s\n", version, answer[:15])
}

// tls.VersionName, which Debian 12's Go does not have.
func versionName(version uint16) string {
	return map[uint16]string{tls.VersionTLS12: "TLS 1.2", tls.VersionTLS13: "TLS 1.3"}[version]
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
