package sealane;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

/**
 * MongoDB's wire protocol over TLS on a free port of 127.0.0.1, with nothing stored.
 *
 * Arguments: the certificate, PEM; its P-256 key, PKCS #8 in PEM. It prints the port as one line
 * and ends with its standard input, so that it cannot outlive the lab.
 */
public final class Server {
    private Server() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2) {
            System.err.println("Usage: Server CERTIFICATE.pem KEY.pem");
            System.exit(2);
        }
        MongoServer server = new MongoServer(new MemoryBackend());
        server.enableSsl(key(Path.of(arguments[1])), null, certificate(Path.of(arguments[0])));
        InetAddress loopback = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
        server.bind(new InetSocketAddress(loopback, 0));
        System.out.println(server.getLocalAddress().getPort());
        while (System.in.read() >= 0) {
            // Nobody writes there; it closes when the lab ends.
        }
        server.shutdownNow();
    }

    private static X509Certificate certificate(Path path) throws Exception {
        try (var pem = Files.newInputStream(path)) {
            var factory = CertificateFactory.getInstance("X.509");
            return (X509Certificate) factory.generateCertificate(pem);
        }
    }

    private static PrivateKey key(Path path) throws Exception {
        String body = Files.readString(path).replaceAll("-----[A-Z ]+-----", "");
        byte[] der = Base64.getMimeDecoder().decode(body);
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(der));
    }
}
