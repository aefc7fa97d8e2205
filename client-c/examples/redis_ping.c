/*
 * Pings Redis over TLS: redis_ping HOST PORT CA_FILE
 *
 *   cc -o redis_ping redis_ping.c $(pkg-config --cflags --libs sealane_client)
 *
 * The library has no socket. This program has one, and passes the bytes that it reads to the
 * library.
 */
#define _POSIX_C_SOURCE 200809L
#include <netdb.h>
#include <sealane_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct connection {
  int socket;
  sealane_session *session;
  sealane_error error; /* why a call failed */
};

/* the loop: what docs/c-clients.md shows */
/* Sends what the session has for the server. */
static int transmit(struct connection *c) {
  uint8_t bytes[16384];
  size_t len;
  while (sealane_session_transmit(c->session, bytes, sizeof bytes, &len, NULL) == SEALANE_OK && len)
    for (size_t sent = 0; sent < len;) {
      ssize_t count = send(c->socket, bytes + sent, len - sent, MSG_NOSIGNAL);
      if (count <= 0) return -1;
      sent += (size_t)count;
    }
  return 0;
}

/* Reads from the socket once. -1 at the end: SEALANE_OK in c->error if the server had said so. */
static int receive(struct connection *c) {
  uint8_t bytes[16384];
  ssize_t count = recv(c->socket, bytes, sizeof bytes, 0);
  if (count <= 0) {
    c->error.status = SEALANE_OK;
    sealane_session_ended(c->session, &c->error);
    return -1;
  }
  for (size_t begin = 0, taken; begin < (size_t)count; begin += taken)
    if (sealane_session_receive(c->session, bytes + begin, (size_t)count - begin, &taken,
                                &c->error) != SEALANE_OK) {
      transmit(c); /* the alert that tells the server why */
      return -1;
    }
  return transmit(c);
}

/* Begins a session on a connected socket. */
static int begin(struct connection *c, const sealane_client *client, const char *server_name) {
  c->session = sealane_session_new(client, server_name, &c->error);
  if (!c->session || transmit(c)) return -1;
  while (!(sealane_session_state(c->session) & SEALANE_ESTABLISHED))
    if (receive(c)) return -1;
  return 0;
}
/* the end of the loop */

/* Sends `request`, and compares the answer. */
static int ask(struct connection *c, const char *request, const char *answer) {
  uint8_t bytes[256];
  size_t taken, len, has = 0, want = strlen(answer);
  if (sealane_session_write(c->session, (const uint8_t *)request, strlen(request), &taken,
                            &c->error) != SEALANE_OK)
    return -1;
  if (transmit(c)) return -1;
  while (has < want) {
    if (sealane_session_read(c->session, bytes + has, want - has, &len, &c->error) != SEALANE_OK)
      return -1;
    has += len;
    if (!len && receive(c)) return -1;
  }
  return memcmp(bytes, answer, want) ? -1 : 0;
}

static void hang_up(struct connection *c) {
  if (c->session && sealane_session_close(c->session, NULL) == SEALANE_OK) transmit(c);
  sealane_session_free(c->session);
  close(c->socket);
}

static int dial(const char *host, const char *port) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_INET}, *found;
  struct timeval patience = {.tv_sec = 60};
  if (getaddrinfo(host, port, &hints, &found)) return -1;
  int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  if (fd >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, found->ai_addr, found->ai_addrlen)) {
      close(fd);
      fd = -1;
    }
  }
  freeaddrinfo(found);
  return fd;
}

/* The bytes of a file, which are the caller's to free; NULL if there are none. */
static uint8_t *contents(const char *path, size_t *len) {
  FILE *file = fopen(path, "rb");
  uint8_t *bytes = malloc(1 << 20);
  *len = file && bytes ? fread(bytes, 1, 1 << 20, file) : 0;
  if (file) fclose(file);
  if (*len) return bytes;
  free(bytes);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: redis_ping HOST PORT CA_FILE\n");
    return 2;
  }
  struct connection c = {.socket = -1, .error = {SEALANE_OK, "no connection, or no PONG"}};
  sealane_options options = SEALANE_OPTIONS_INIT;
  uint8_t *roots = contents(argv[3], &options.roots_pem_len);
  options.roots_pem = roots;
  sealane_contexts *contexts = sealane_contexts_new();
  sealane_client *client = sealane_client_new(contexts, &options, &c.error);
  free(roots);
  int failed = !client || (c.socket = dial(argv[1], argv[2])) < 0 || begin(&c, client, argv[1]) ||
               ask(&c, "PING\r\n", "+PONG\r\n");
  if (c.socket >= 0) hang_up(&c);
  sealane_client_free(client);
  sealane_contexts_free(contexts);
  printf("%s\n", failed ? c.error.text : "PONG");
  return failed;
}
