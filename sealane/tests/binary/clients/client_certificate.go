// Go's crypto/tls with client certificates: PORT CA and, for each client, a name with its
// certificate and key; prints what became of whom, a fact per line.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
)

func main() {
	address := "localhost:" + os.Args[1]
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(os.Args[2]))) {
		panic("no certificate in " + os.Args[2])
	}
	for i, name := range []string{"TLSv1.2", "TLSv1.3"} {
		version := tls.VersionTLS12 + uint16(i)
		settings := tls.Config{RootCAs: roots, MinVersion: version, MaxVersion: version}
		fmt.Println(name, "nobody", greet(&settings, address))
		for clients := os.Args[3:]; len(clients) > 0; clients = clients[3:] {
			own := settings.Clone()
			own.ClientSessionCache = tls.NewLRUClientSessionCache(8)
			own.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(clients[1], clients[2]))}
			fmt.Println(name, clients[0], greet(own, address))
			fmt.Println(name, clients[0], greet(own, address))
		}
	}
}

// In TLS 1.3 a client that is refused learns of it when it reads.
func greet(settings *tls.Config, address string) string {
	connection, err := tls.Dial("tcp", address, settings)
	if err != nil {
		return err.Error()
	}
	defer connection.Close()
	must(io.WriteString(connection, "hello"))
	answer := make([]byte, 5)
	if _, err := io.ReadFull(connection, answer); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s resumed=%v", answer, connection.ConnectionState().DidResume)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
