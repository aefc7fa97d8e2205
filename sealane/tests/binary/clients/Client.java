// Java's HttpsURLConnection, HttpClient and SSLSocket as clients: PORT-HTTP1 PORT-HTTP2 TRUSTSTORE
// FILE-SIZE; prints what they saw, a fact per line.

import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public class Client {
    public static void main(String[] arguments) throws Exception {
        String http1 = "https://localhost:" + arguments[0];
        String http2 = "https://localhost:" + arguments[1];
        int size = Integer.parseInt(arguments[3]);
        byte[] sent = new byte[size];
        Arrays.fill(sent, (byte) 'j');

        KeyStore trusted =
                KeyStore.getInstance(Path.of(arguments[2]).toFile(), "changeit".toCharArray());
        TrustManagerFactory managers =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);

        for (String version : new String[] {"TLSv1.2", "TLSv1.3"}) {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, managers.getTrustManagers(), null);
            SSLParameters parameters = context.getDefaultSSLParameters();
            parameters.setProtocols(new String[] {version});

            byte[] body = bySocket(context, version, Integer.parseInt(arguments[0]), size);
            System.out.println(version + " socket download " + sha256(body));

            HttpClient client = HttpClient.newBuilder()
                    .sslContext(context).sslParameters(parameters)
                    .version(HttpClient.Version.HTTP_2).build();
            for (String server : new String[] {http1, http2}) {
                HttpResponse<byte[]> answer = client.send(
                        HttpRequest.newBuilder(URI.create(server + "/" + size)).build(),
                        HttpResponse.BodyHandlers.ofByteArray());
                System.out.println(spoken(answer) + " download " + sha256(answer.body()));
                answer = client.send(
                        HttpRequest.newBuilder(URI.create(server + "/upload"))
                                .POST(HttpRequest.BodyPublishers.ofByteArray(sent)).build(),
                        HttpResponse.BodyHandlers.ofByteArray());
                System.out.println(spoken(answer) + " upload " + sha256(sent) + " "
                        + new String(answer.body(), StandardCharsets.UTF_8));
            }
        }

        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        HttpsURLConnection connection =
                (HttpsURLConnection) new URL(http1 + "/" + size).openConnection();
        connection.setSSLSocketFactory(context.getSocketFactory());
        byte[] body = connection.getInputStream().readAllBytes();
        System.out.println("HttpsURLConnection download " + sha256(body));

        try {
            new URL(http1 + "/1").openConnection().getInputStream();
            System.out.println("verified a stranger");
        } catch (SSLException refused) {
            System.out.println("refused a stranger");
        }
    }

    private static String spoken(HttpResponse<?> answer) {
        return answer.sslSession().get().getProtocol() + " " + answer.version();
    }

    // Reads to the clean end: without close_notify `read` throws.
    private static byte[] bySocket(SSLContext context, String version, int port, int size)
            throws Exception {
        try (SSLSocket socket =
                (SSLSocket) context.getSocketFactory().createSocket("localhost", port)) {
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setProtocols(new String[] {version});
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
            OutputStream out = socket.getOutputStream();
            String request = "GET /" + size + " HTTP/1.1\r\n"
                    + "Host: localhost\r\nConnection: close\r\n\r\n";
            out.write(request.getBytes(StandardCharsets.US_ASCII));
            InputStream in = socket.getInputStream();
            byte[] answer = in.readAllBytes();
            return Arrays.copyOfRange(answer, answer.length - size, answer.length);
        }
    }

    private static String sha256(byte[] bytes) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }
}
