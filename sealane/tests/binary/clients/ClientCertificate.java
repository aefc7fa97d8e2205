// Java's SSLSocket with client certificates: PORT TRUSTSTORE and, for each client, a name with its
// keystore; prints what became of whom, a fact per line.

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.KeyStore;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public class ClientCertificate {
    private static final char[] PASSWORD = "changeit".toCharArray();

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        TrustManagerFactory trusted =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(KeyStore.getInstance(Path.of(arguments[1]).toFile(), PASSWORD));
        for (String version : new String[] {"TLSv1.2", "TLSv1.3"}) {
            SSLContext context = context(trusted, null);
            System.out.println(version + " nobody " + greet(context, version, port));
            for (int i = 2; i < arguments.length; i += 2) {
                KeyManagerFactory shown =
                        KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
                shown.init(
                        KeyStore.getInstance(Path.of(arguments[i + 1]).toFile(), PASSWORD),
                        PASSWORD);
                context = context(trusted, shown.getKeyManagers());
                for (int round = 0; round < 2; round++) {
                    String outcome = greet(context, version, port);
                    System.out.println(version + " " + arguments[i] + " " + outcome);
                }
            }
        }
    }

    private static SSLContext context(TrustManagerFactory trusted, KeyManager[] shown)
            throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(shown, trusted.getTrustManagers(), null);
        return context;
    }

    // In TLS 1.3 a client that is refused learns of it when it reads.
    private static String greet(SSLContext context, String version, int port) throws Exception {
        try (SSLSocket socket =
                (SSLSocket) context.getSocketFactory().createSocket("localhost", port)) {
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setProtocols(new String[] {version});
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            socket.getOutputStream().write("hello".getBytes(StandardCharsets.US_ASCII));
            byte[] answer = socket.getInputStream().readNBytes(5);
            // What is bound to a session is there again when it is resumed.
            boolean resumed = socket.getSession().getValue("greeted") != null;
            socket.getSession().putValue("greeted", true);
            return new String(answer, StandardCharsets.US_ASCII) + " resumed=" + resumed;
        } catch (IOException refused) {
            return refused.getMessage();
        }
    }
}
