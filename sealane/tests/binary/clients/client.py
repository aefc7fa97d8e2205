"""Python's ssl module as a client: PORT-HTTP1 CA FILE-SIZE; prints what it saw, a fact per line."""
import hashlib
import socket
import ssl
import sys

port, authority, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def context(version):
    made = ssl.create_default_context(cafile=authority)
    made.minimum_version = made.maximum_version = version
    made.set_alpn_protocols(["http/1.1"])
    return made


def exchange(made, request, session=None):
    """Sends a request and reads to the clean end: without close_notify `recv` raises."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        with made.wrap_socket(
            plain, server_hostname="localhost", session=session, suppress_ragged_eofs=False
        ) as tls:
            tls.sendall(request)
            answer = b""
            while chunk := tls.recv(65536):
                answer += chunk
            head, body = answer.split(b"\r\n\r\n", 1)
            assert head.startswith(b"HTTP/1.1 200"), head
            return tls, body, tls.session, tls.session_reused, tls.version()


for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
    made = context(version)
    get = f"GET /{size} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    tls, body, session, reused, spoken = exchange(made, get)
    print(f"{spoken} download {hashlib.sha256(body).hexdigest()} reused={reused}")
    tls, body, _, reused, spoken = exchange(made, get, session)
    print(f"{spoken} download {hashlib.sha256(body).hexdigest()} reused={reused}")
    sent = bytes(range(256)) * (size // 256)
    post = (
        f"POST /upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Length: {len(sent)}\r\n\r\n"
    ).encode()
    _, body, _, _, spoken = exchange(made, post + sent)
    print(f"{spoken} upload {hashlib.sha256(sent).hexdigest()} {body.decode()}")

try:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
    print("verified a stranger")
except ssl.SSLCertVerificationError:
    print("refused a stranger")
