/*
 * Properties that clients in C rely on, tested against a real Redis. The functions that use the
 * library are those of the example. Ends with 1, and the line, at the first property that fails.
 *
 *   clients PORT REDIS_PID THREADS CONNECTIONS FOLDER
 *
 * FOLDER has ca.pem, the authority of Redis (localhost), and other.pem, which is not its authority.
 * Redis does not survive it.
 */
#define main main_of_example
#include "../examples/redis_ping.c"
#undef main

#include <pthread.h>
#include <signal.h>

#define SAME(is, wanted)                                                          \
  do {                                                                            \
    unsigned long long is_now = (unsigned long long)(is);                         \
    unsigned long long must_be = (unsigned long long)(wanted);                    \
    if (is_now != must_be) {                                                      \
      fprintf(stderr, "line %d: %s is %llu, not %llu\n", __LINE__, #is, is_now, must_be); \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)
#define SAYS(error, words)                                                        \
  do {                                                                            \
    if (!strstr((error).text, words)) {                                           \
      fprintf(stderr, "line %d: \"%s\", not \"%s\"\n", __LINE__, (error).text, words); \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

static const char *port;
static sealane_contexts *contexts;
static sealane_options trusted = SEALANE_OPTIONS_INIT, other = SEALANE_OPTIONS_INIT;
static size_t connections;

static sealane_counts counted(void) {
  sealane_counts counts = {0};
  SAME(sealane_contexts_counts(contexts, &counts, NULL), SEALANE_OK);
  return counts;
}

static sealane_client *client_for(const sealane_options *options) {
  sealane_error error;
  sealane_client *client = sealane_client_new(contexts, options, &error);
  if (!client) fprintf(stderr, "%s\n", error.text);
  SAME(client != NULL, 1);
  return client;
}

static void connect_to_redis(struct connection *c, const sealane_client *client) {
  c->socket = dial("localhost", port);
  SAME(c->socket >= 0, 1);
  int failed = begin(c, client, "localhost");
  if (failed) fprintf(stderr, "%s\n", c->error.text);
  SAME(failed, 0);
}

/* Each connection has a separate client, with a copy of the bundle in its options. */
static void *store_and_fetch(void *number) {
  struct connection *all = calloc(connections, sizeof *all);
  uint8_t *copy = malloc(trusted.roots_pem_len);
  sealane_options own = trusted;
  char set[64], fetch[32];
  memcpy(copy, trusted.roots_pem, trusted.roots_pem_len);
  own.roots_pem = copy;
  snprintf(set, sizeof set, "SET key:%zu value\r\n", (size_t)number);
  snprintf(fetch, sizeof fetch, "GET key:%zu\r\n", (size_t)number);
  for (size_t i = 0; i < connections; i++) {
    sealane_client *client = client_for(&own);
    connect_to_redis(&all[i], client);
    sealane_client_free(client);
  }
  free(copy);
  for (size_t i = 0; i < connections; i++) {
    SAME(ask(&all[i], "PING\r\n", "+PONG\r\n"), 0);
    SAME(ask(&all[i], set, "+OK\r\n"), 0);
    SAME(ask(&all[i], fetch, "$5\r\nvalue\r\n"), 0);
  }
  for (size_t i = 1; i < connections; i++) hang_up(&all[i]);
  struct connection *first = malloc(sizeof *first);
  *first = all[0];
  free(all);
  return first;
}

/* Returns a connection that another thread has begun. */
static struct connection *equal_options_have_one_context(size_t threads) {
  pthread_t started[64];
  struct connection *kept = NULL;
  for (size_t i = 0; i < threads; i++)
    SAME(pthread_create(&started[i], NULL, store_and_fetch, (void *)i), 0);
  for (size_t i = 0; i < threads; i++) {
    void *first;
    SAME(pthread_join(started[i], &first), 0);
    if (kept) {
      hang_up(kept);
      free(kept);
    }
    kept = first;
  }
  return kept;
}

static void later_sessions_begin_under_what_was_swapped_in(struct connection *old) {
  struct connection c = {.socket = dial("localhost", port)};
  sealane_client *client = client_for(&trusted);
  SAME(counted().built, 1);
  SAME(sealane_client_swap(client, &other, NULL), SEALANE_OK);
  SAME(counted().built, 2);
  SAME(begin(&c, client, "localhost") != 0, 1);
  SAME(c.error.status, SEALANE_REFUSED);
  SAYS(c.error, "none of the trusted roots issued it");
  SAME(sealane_session_state(c.session) & SEALANE_FAILED, SEALANE_FAILED);
  SAME(sealane_session_write(c.session, (const uint8_t *)"x", 1, &(size_t){0}, &c.error),
       SEALANE_REFUSED);
  hang_up(&c);
  SAME(ask(old, "PING\r\n", "+PONG\r\n"), 0);

  sealane_options wrong = trusted;
  wrong.roots_pem_len /= 2;
  SAME(sealane_client_swap(client, &wrong, &c.error), SEALANE_OPTIONS);
  SAYS(c.error, "roots: roots_pem:1: the section that begins here has no END line; "
                "copy the file again");
  SAME(sealane_client_swap(client, &trusted, NULL), SEALANE_OK);
  SAME(counted().built, 2);
  SAME(counted().freed, 1);
  connect_to_redis(&c, client);
  SAME(ask(&c, "PING\r\n", "+PONG\r\n"), 0);
  hang_up(&c);
  sealane_client_free(client);
}

static void another_name_is_refused(void) {
  struct connection c = {.socket = dial("localhost", port)};
  sealane_client *client = client_for(&trusted);
  SAME(begin(&c, client, "127.0.0.1") != 0, 1);
  SAME(c.error.status, SEALANE_REFUSED);
  SAYS(c.error, "it is not for 127.0.0.1 but for localhost");
  hang_up(&c);
  SAME(sealane_session_new(client, "no name", &c.error) == NULL, 1);
  SAYS(c.error, "server_name: \"no name\" is neither a host's name nor an address");
  sealane_client_free(client);
}

static void options_are_what_they_say(void) {
  sealane_error error;
  sealane_options options = trusted;
  const char *const protocols[] = {"redis", ""};
  options.alpn = protocols;
  options.alpn_len = 2;
  SAME(sealane_client_new(contexts, &options, &error) == NULL, 1);
  SAYS(error, "ALPN: protocol 2 has 0 bytes");
  options.alpn_len = 17;
  SAME(sealane_client_new(contexts, &options, &error) == NULL, 1);
  SAYS(error, "alpn: 17 protocols; at most 16");
  options.alpn_len = 0;
  options.versions = 11;
  SAME(sealane_client_new(contexts, &options, &error) == NULL, 1);
  SAYS(error, "versions: 11 is none of");
  options.versions = SEALANE_TLS13;
  options.certificate_pem = trusted.roots_pem;
  options.certificate_pem_len = trusted.roots_pem_len;
  SAME(sealane_client_new(contexts, &options, &error) == NULL, 1);
  SAYS(error, "client certificate: key_pem");
  options.size--;
  SAME(sealane_client_new(contexts, &options, &error) == NULL, 1);
  SAYS(error, "options: size is");
  sealane_options none = SEALANE_OPTIONS_INIT;
  SAME(sealane_client_new(contexts, &none, &error) == NULL, 1);
  SAYS(error, "roots: none are given");
}

static void the_system_vouches_only_for_its_own(void) {
  struct connection c = {.socket = dial("localhost", port)};
  sealane_options options = SEALANE_OPTIONS_INIT;
  uint64_t parsed = counted().roots_parsed;
  options.roots_system = 1;
  sealane_client *client = client_for(&options);
  SAME(counted().roots_parsed > parsed + 50, 1);
  SAME(begin(&c, client, "localhost") != 0, 1);
  SAYS(c.error, "none of the trusted roots issued it");
  hang_up(&c);
  sealane_client_free(client);
}

static void null_and_nonsense_are_refused(void) {
  struct connection c = {.socket = dial("localhost", port)};
  sealane_client *client = client_for(&trusted);
  char endless[300];
  uint8_t bytes[4];
  size_t count;
  memset(endless, 'a', sizeof endless);
  SAME(sealane_contexts_counts(NULL, NULL, &c.error), SEALANE_INVALID_ARGUMENT);
  SAYS(c.error, "contexts is a null pointer");
  SAME(sealane_contexts_counts(contexts, NULL, NULL), SEALANE_INVALID_ARGUMENT);
  SAME(sealane_client_new(NULL, &trusted, NULL) == NULL, 1);
  SAME(sealane_client_new(contexts, NULL, NULL) == NULL, 1);
  SAME(sealane_client_swap(NULL, &trusted, NULL), SEALANE_INVALID_ARGUMENT);
  SAME(sealane_session_new(NULL, "localhost", NULL) == NULL, 1);
  SAME(sealane_session_new(client, NULL, NULL) == NULL, 1);
  SAME(sealane_session_new(client, endless, &c.error) == NULL, 1);
  SAYS(c.error, "server_name: longer than 253 bytes");
  sealane_options options = trusted;
  options.roots_pem_len = SIZE_MAX;
  SAME(sealane_client_new(contexts, &options, &c.error) == NULL, 1);
  SAYS(c.error, "bytes are more than memory has");
  options.roots_pem = NULL;
  SAME(sealane_client_new(contexts, &options, &c.error) == NULL, 1);
  SAYS(c.error, "roots_pem is a null pointer");

  SAME(sealane_session_receive(NULL, bytes, 4, &count, NULL), SEALANE_INVALID_ARGUMENT);
  SAME(sealane_session_state(NULL), 0);
  c.session = sealane_session_new(client, "localhost", NULL);
  SAME(sealane_session_state(c.session), SEALANE_CIPHERTEXT_WAITS);
  SAME(sealane_session_receive(c.session, NULL, 4, &count, NULL), SEALANE_INVALID_ARGUMENT);
  SAME(sealane_session_receive(c.session, bytes, 4, NULL, NULL), SEALANE_INVALID_ARGUMENT);
  SAME(sealane_session_receive(c.session, NULL, 0, &count, NULL), SEALANE_OK);
  SAME(sealane_session_transmit(c.session, NULL, 4, &count, NULL), SEALANE_INVALID_ARGUMENT);
  SAME(sealane_session_transmit(c.session, bytes, 4, NULL, NULL), SEALANE_INVALID_ARGUMENT);
  SAME(sealane_session_read(c.session, bytes, 4, &count, NULL), SEALANE_OK);
  SAME(count, 0);
  SAME(sealane_session_write(c.session, bytes, 4, &count, NULL), SEALANE_NOT_ESTABLISHED);
  SAME(sealane_session_close(c.session, NULL), SEALANE_NOT_ESTABLISHED);
  SAME(sealane_session_alpn(c.session, bytes, 4, &count, NULL), SEALANE_OK);
  SAME(count, 0);
  hang_up(&c);
  sealane_session_free(NULL);
  sealane_client_free(NULL);
  sealane_contexts_free(NULL);
  sealane_client_free(client);
}

/* A megabyte out and back, fetched only when nothing more is taken. */
static void what_waits_has_a_limit(struct connection *c) {
  enum { BYTES = 1 << 20 };
  uint8_t *sent = malloc(BYTES), *back = malloc(BYTES), some[16384];
  size_t done = 0, taken, full = 0;
  for (size_t i = 0; i < BYTES; i++) sent[i] = (uint8_t)('a' + i * 7 % 23);
  SAME(ask(c, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$1048576\r\n", ""), 0);
  while (done < BYTES) {
    sealane_status status =
        sealane_session_write(c->session, sent + done, BYTES - done, &taken, &c->error);
    done += taken;
    if (status != SEALANE_FULL) continue;
    full++;
    SAYS(c->error, "bytes of ciphertext waits; transmit it first");
    SAME(transmit(c), 0);
  }
  SAME(full > 4, 1);
  SAME(transmit(c), 0);
  SAME(ask(c, "\r\n", "+OK\r\n"), 0);
  SAME(ask(c, "GET big\r\n", "$1048576\r\n"), 0);
  full = 0;
  for (done = 0; done < BYTES + 2;) {
    ssize_t count = recv(c->socket, some, sizeof some, 0);
    SAME(count > 0, 1);
    for (size_t begin = 0; begin < (size_t)count; begin += taken) {
      sealane_status status = sealane_session_receive(c->session, some + begin,
                                                      (size_t)count - begin, &taken, &c->error);
      if (status == SEALANE_OK && done + (1 << 17) < BYTES) continue;
      full += status == SEALANE_FULL;
      size_t len = 1;
      while (len) {
        uint8_t byte[2];
        size_t room = done < BYTES ? BYTES - done : 2;
        SAME(sealane_session_read(c->session, done < BYTES ? back + done : byte, room, &len, NULL),
             SEALANE_OK);
        done += len;
      }
    }
  }
  SAME(full > 4, 1);
  SAME(memcmp(sent, back, BYTES), 0);
  free(sent);
  free(back);
}

static void a_clean_end_is_told_from_a_cut_stream(struct connection *c, pid_t redis) {
  struct connection cut = {0};
  sealane_client *client = client_for(&trusted);
  connect_to_redis(&cut, client);
  SAME(ask(&cut, "PING\r\n", "+PONG\r\n"), 0);

  SAME(ask(c, "QUIT\r\n", "+OK\r\n"), 0);
  while (receive(c) == 0) {
  }
  SAME(c->error.status, SEALANE_OK);
  SAME(sealane_session_state(c->session), SEALANE_ESTABLISHED | SEALANE_PEER_CLOSED);
  SAME(sealane_session_close(c->session, NULL), SEALANE_OK);
  SAME(sealane_session_write(c->session, (const uint8_t *)"x", 1, &(size_t){0}, NULL),
       SEALANE_CLOSED);
  hang_up(c);

  kill(redis, SIGKILL);
  while (receive(&cut) == 0) {
  }
  SAME(cut.error.status, SEALANE_TRUNCATED);
  SAYS(cut.error, "ended without close_notify: what arrived may not be all");
  SAME(sealane_session_ended(cut.session, NULL), SEALANE_TRUNCATED);
  hang_up(&cut);
  sealane_client_free(client);
}

int main(int argc, char **argv) {
  char path[4096];
  SAME(argc, 6);
  port = argv[1];
  connections = strtoul(argv[4], NULL, 10);
  snprintf(path, sizeof path, "%s/ca.pem", argv[5]);
  uint8_t *ca = contents(path, &trusted.roots_pem_len);
  snprintf(path, sizeof path, "%s/other.pem", argv[5]);
  uint8_t *stranger = contents(path, &other.roots_pem_len);
  trusted.roots_pem = ca;
  other.roots_pem = stranger;
  contexts = sealane_contexts_new();

  struct connection *kept = equal_options_have_one_context(strtoul(argv[3], NULL, 10));
  SAME(counted().built, 1);
  SAME(counted().roots_parsed, 1);
  later_sessions_begin_under_what_was_swapped_in(kept);
  another_name_is_refused();
  options_are_what_they_say();
  the_system_vouches_only_for_its_own();
  null_and_nonsense_are_refused();
  what_waits_has_a_limit(kept);
  a_clean_end_is_told_from_a_cut_stream(kept, (pid_t)strtol(argv[2], NULL, 10));
  free(kept);
  sealane_counts counts = counted();
  SAME(counts.built, counts.freed);
  sealane_contexts_free(contexts);
  free(ca);
  free(stranger);
  printf("all is so\n");
  return 0;
}
