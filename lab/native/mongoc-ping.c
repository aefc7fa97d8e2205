// What MongoDB's C driver costs its users, before 1.28 and since: the benchmark
// `benchmark-tls-pooled` of CDRIVER-4656, with a clock and counts. `sealane-lab writeups contexts`
// compiles this file at first use and checks what it prints.
//
//   mongoc-ping URI CA_FILE CLIENTS
//
// One pool, one thread per client: each takes a client, sends one `ping` to the database `test`,
// and gives the client back. The calls that build a TLS context are counted, and their CPU time is
// taken, where they are made: this program's functions of those names come before libssl's.
//
// One line of JSON on success. The first ping that fails ends it with status 1 and no figures.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <mongoc/mongoc.h>

enum { CLIENTS_MAX = 2000, STACK_BYTES = 256 * 1024 };

static atomic_ullong contexts_built;
static atomic_ullong certificates_parsed;
static atomic_ullong build_cpu_ns;
static atomic_ullong pings;
static atomic_flag told = ATOMIC_FLAG_INIT;

static unsigned long long clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (unsigned long long)now.tv_sec * 1000000000ULL + (unsigned long long)now.tv_nsec;
}

// The next definition of `name` behind this program's own.
static void *libssls(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) {
    fprintf(stderr, "mongoc-ping: libssl has no %s\n", name);
    _exit(1);
  }
  return found;
}

// The value of `call`, whose CPU time counts as context building.
#define BUILDING(type, call)                                                    \
  ({                                                                            \
    unsigned long long begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);               \
    type result = (call);                                                       \
    atomic_fetch_add(&build_cpu_ns, clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun); \
    result;                                                                     \
  })

SSL_CTX *SSL_CTX_new(const SSL_METHOD *method) {
  SSL_CTX *(*next)(const SSL_METHOD *) = libssls("SSL_CTX_new");
  atomic_fetch_add(&contexts_built, 1);
  return BUILDING(SSL_CTX *, next(method));
}

int SSL_CTX_set_cipher_list(SSL_CTX *context, const char *list) {
  int (*next)(SSL_CTX *, const char *) = libssls("SSL_CTX_set_cipher_list");
  return BUILDING(int, next(context, list));
}

int SSL_CTX_load_verify_locations(SSL_CTX *context, const char *file, const char *folder) {
  int (*next)(SSL_CTX *, const char *, const char *) = libssls("SSL_CTX_load_verify_locations");
  int loaded = BUILDING(int, next(context, file, folder));
  X509_STORE *store = SSL_CTX_get_cert_store(context);
  int held = sk_X509_OBJECT_num(X509_STORE_get0_objects(store));
  atomic_fetch_add(&certificates_parsed, held > 0 ? (unsigned long long)held : 0);
  return loaded;
}

static void *one_client(void *argument) {
  mongoc_client_pool_t *pool = argument;
  mongoc_client_t *client = mongoc_client_pool_pop(pool);
  bson_t ping = BSON_INITIALIZER;
  BSON_APPEND_INT32(&ping, "ping", 1);
  bson_error_t error;
  bson_t reply;
  bool good = mongoc_client_command_simple(client, "test", &ping, NULL, &reply, &error);
  bson_iter_t ok;
  if (!good) {
    if (!atomic_flag_test_and_set(&told)) {
      fprintf(stderr, "mongoc-ping: a ping failed: %s\n", error.message);
    }
  } else if (bson_iter_init_find(&ok, &reply, "ok") && bson_iter_as_double(&ok) == 1.0) {
    atomic_fetch_add(&pings, 1);
  }
  bson_destroy(&reply);
  bson_destroy(&ping);
  mongoc_client_pool_push(pool, client);
  return NULL;
}

static mongoc_client_pool_t *make_pool(const char *address, char *ca_file, int clients) {
  bson_error_t error;
  mongoc_uri_t *uri = mongoc_uri_new_with_error(address, &error);
  if (uri == NULL) {
    fprintf(stderr, "mongoc-ping: %s\n", error.message);
    return NULL;
  }
  mongoc_uri_set_option_as_int32(uri, MONGOC_URI_MAXPOOLSIZE, clients);
  mongoc_client_pool_t *pool = mongoc_client_pool_new(uri);
  mongoc_uri_destroy(uri);
  mongoc_ssl_opt_t options = *mongoc_ssl_opt_get_default();
  options.ca_file = ca_file;
  mongoc_client_pool_set_ssl_opts(pool, &options);
  mongoc_client_pool_set_error_api(pool, MONGOC_ERROR_API_VERSION_2);
  return pool;
}

// Runs one thread per client to its end; false if a thread could not be started.
static bool run(mongoc_client_pool_t *pool, int clients) {
  static pthread_t threads[CLIENTS_MAX];
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  int started = 0;
  while (started < clients &&
         pthread_create(&threads[started], &attributes, one_client, pool) == 0) {
    started++;
  }
  for (int thread = 0; thread < started; thread++) {
    pthread_join(threads[thread], NULL);
  }
  pthread_attr_destroy(&attributes);
  return started == clients;
}

int main(int count, char **arguments) {
  int clients = count == 4 ? atoi(arguments[3]) : 0;
  if (clients < 1 || clients > CLIENTS_MAX) {
    fprintf(stderr, "usage: mongoc-ping URI CA_FILE CLIENTS; at most %d clients\n", CLIENTS_MAX);
    return 2;
  }
  // It must not outlive the lab.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  mongoc_init();
  mongoc_client_pool_t *pool = make_pool(arguments[1], arguments[2], clients);
  if (pool == NULL) {
    return 1;
  }
  unsigned long long cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  unsigned long long wall = clock_ns(CLOCK_MONOTONIC);
  bool started = run(pool, clients);
  wall = clock_ns(CLOCK_MONOTONIC) - wall;
  cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  mongoc_client_pool_destroy(pool);
  mongoc_cleanup();
  if (!started || atomic_load(&pings) != (unsigned long long)clients) {
    fprintf(stderr, "mongoc-ping: %llu of %d pings were answered\n", atomic_load(&pings), clients);
    return 1;
  }
  printf("{\"version\":\"%s\",\"contexts_built\":%llu,\"certificates_parsed\":%llu,"
         "\"build_cpu_ns\":%llu,\"total_cpu_ns\":%llu,\"wall_ns\":%llu,\"pings\":%llu}\n",
         mongoc_get_version(), atomic_load(&contexts_built), atomic_load(&certificates_parsed),
         atomic_load(&build_cpu_ns), cpu, wall, atomic_load(&pings));
  return 0;
}
