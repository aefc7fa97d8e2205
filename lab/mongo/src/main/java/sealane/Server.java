package sealane;

import java.lang.reflect.Field;
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

import javax.net.ssl.SSLEngine;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import io.netty.handler.ssl.DelegatingSslContext;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslHandler;

/**
 * MongoDB's wire protocol over TLS on a free port of 127.0.0.1, with nothing stored.
 *
 * Arguments: the certificate, PEM; its P-256 key, PKCS #8 in PEM. It prints the port as one line
 * and ends with its standard input, so that it cannot outlive the lab.
 */
public final class Server {
    private static final long HANDSHAKE_TIME_MAX_MS = 120_000;

    private Server() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2) {
            System.err.println("Usage: Server CERTIFICATE.pem KEY.pem");
            System.exit(2);
        }
        MongoServer server = new MongoServer(new MemoryBackend());
        server.enableSsl(key(Path.of(arguments[1])), null, certificate(Path.of(arguments[0])));
        waitForSlowHandshakes(server);
        InetAddress loopback = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
        server.bind(new InetSocketAddress(loopback, 0));
        System.out.println(server.getLocalAddress().getPort());
        while (System.in.read() >= 0) {
            // Nobody writes there; it closes when the lab ends.
        }
        server.shutdownNow();
    }

    /**
     * Hundreds of clients that build contexts on a few processors take longer to shake hands than
     * the 10 s that Netty gives them, and the server has no setting for it.
     */
    private static void waitForSlowHandshakes(MongoServer server) throws Exception {
        Field field = MongoServer.class.getDeclaredField("sslContext");
        field.setAccessible(true);
        field.set(server, new DelegatingSslContext((SslContext) field.get(server)) {
            @Override
            protected void initEngine(SSLEngine engine) {}

            @Override
            protected void initHandler(SslHandler handler) {
                handler.setHandshakeTimeoutMillis(HANDSHAKE_TIME_MAX_MS);
            }
        });
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
