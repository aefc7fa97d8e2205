"""Python's ssl module as a client: PORT CA; prints what it saw, a fact per line."""
import hashlib
import socket
import ssl
import sys

port, authority = int(sys.argv[1]), sys.argv[2]


def context(version):
    made = ssl.create_default_context(cafile=authority)
    made.minimum_version = made.maximum_version = version
    return made


def exchange(made, session=None):
    """Reads to the clean end: without close_notify `recv` raises."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        with made.wrap_socket(
            plain, server_hostname="localhost", session=session, suppress_ragged_eofs=False
        ) as tls:
            tls.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while chunk := tls.recv(65536):
                answer += chunk
            head, body = answer.split(b"\r\n\r\n", 1)
            assert head.startswith(b"HTTP/1.1 200"), head
            digest = hashlib.sha256(body).hexdigest()
            print(f"{tls.version()} {digest} reused={tls.session_reused}")
            return tls.session


for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
    made = context(version)
    exchange(made, exchange(made))
