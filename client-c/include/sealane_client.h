/*
 * TLS as a client: one context for equal options in the whole process, however many clients ask,
 * swapped at any time, and sessions over memory: the caller has the sockets.
 *
 *   sealane_contexts   one per process
 *   sealane_client     one per pool or destination; equal options share one context
 *   sealane_session    one per connection
 *
 * Threads: contexts and clients may be used by all threads at once, but not while they are freed. A
 * session is used by one thread at a time, which may be another one each time. The context of a
 * session lives as long as the session. Contexts, clients and sessions may be freed in any order. A
 * session is not to be used on both sides of a fork.
 *
 * Pointers: each is null, or points to the named value, with as many bytes as the length next to
 * it. A null pointer for a required value is refused with SEALANE_INVALID_ARGUMENT. But `error` may
 * always be null, and freeing null does nothing. Memory behind an argument is read only during the
 * call and not kept. So a caller may erase a key when the call has returned.
 *
 * Errors: a call that fails writes the reason into `error`, in words for the operator. They hold no
 * byte of a key. A call that succeeds leaves `error` alone. No exception or panic leaves this
 * library.
 *
 * Versions: this is 0.x, and the library's soname is libsealane_client.so.0: compile against the
 * header that came with it. A struct of options of another size is refused.
 */
#ifndef SEALANE_CLIENT_H
#define SEALANE_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sealane_status {
  SEALANE_OK = 0,
  SEALANE_CLOSED = 1,           /* this end has been closed */
  SEALANE_FULL = 2,             /* nothing was taken: fetch waiting bytes first */
  SEALANE_INTERNAL = 3,         /* a fault of this library, or of the machine */
  SEALANE_INVALID_ARGUMENT = 4, /* a null pointer, or a value that makes no sense */
  SEALANE_NOT_ESTABLISHED = 5,  /* the handshake is not complete */
  SEALANE_OPTIONS = 6,          /* one of the options is wrong */
  SEALANE_REFUSED = 7,          /* the session is over; transmit waiting bytes, as an alert */
  SEALANE_TRUNCATED = 8         /* the stream ended without close_notify */
} sealane_status;

#define SEALANE_ERROR_TEXT_BYTES 512

typedef struct sealane_error {
  sealane_status status;
  char text[SEALANE_ERROR_TEXT_BYTES]; /* UTF-8, ended by a zero */
} sealane_error;

/* Values of `versions`. */
#define SEALANE_TLS12_AND_TLS13 0
#define SEALANE_TLS12 12
#define SEALANE_TLS13 13

/*
 * Trust, identity, versions and protocols of a client. Servers are always verified: an authority of
 * `roots` must have issued their certificate, for the session's server name, and it must be valid
 * now. Equal options are those with the same set of authorities, the same certificate and key, and
 * the same other values.
 */
typedef struct sealane_options {
  size_t size;                    /* by SEALANE_OPTIONS_INIT */
  const uint8_t *roots_pem;       /* authorities, as PEM */
  size_t roots_pem_len;
  const uint8_t *certificate_pem; /* the client's chain, for servers that ask; or null */
  size_t certificate_pem_len;
  const uint8_t *key_pem;         /* the key of its first certificate; or null */
  size_t key_pem_len;
  const char *const *alpn;        /* protocols, the best first, at most 16; or null */
  size_t alpn_len;
  uint32_t versions;              /* SEALANE_TLS12_AND_TLS13 */
  uint32_t roots_system;          /* not 0: the system's authorities too, read at each call */
  uint32_t without_resumption;    /* not 0: no session is remembered */
} sealane_options;

/* sealane_options options = SEALANE_OPTIONS_INIT; */
#define SEALANE_OPTIONS_INIT {sizeof(sealane_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

typedef struct sealane_counts {
  uint64_t built;        /* contexts built */
  uint64_t freed;        /* contexts freed, each behind its last client and session */
  uint64_t roots_parsed; /* authorities parsed for them */
} sealane_counts;

typedef struct sealane_contexts sealane_contexts;
typedef struct sealane_client sealane_client;
typedef struct sealane_session sealane_session;

/* A table of contexts, of which a process needs one; null if there is no memory for it. */
sealane_contexts *sealane_contexts_new(void);

sealane_status sealane_contexts_counts(const sealane_contexts *contexts, sealane_counts *counts,
                                       sealane_error *error);

/* Clients that were made with it go on. */
void sealane_contexts_free(sealane_contexts *contexts);

/*
 * A client under the context for `options`: the one that a client or a session has already, if
 * theirs are equal, else a new one. Null if it fails.
 */
sealane_client *sealane_client_new(const sealane_contexts *contexts,
                                   const sealane_options *options, sealane_error *error);

/*
 * Sessions that begin from now on, in any thread, begin under the context for `options`; those that
 * have begun go on under theirs. If it fails nothing has changed.
 */
sealane_status sealane_client_swap(const sealane_client *client, const sealane_options *options,
                                   sealane_error *error);

void sealane_client_free(sealane_client *client);

/*
 * A session with the server `server_name`, a host's name or an IP address. The server is asked for
 * this name, and its certificate must be for it. The first bytes wait to be transmitted. Null if it
 * fails.
 */
sealane_session *sealane_session_new(const sealane_client *client, const char *server_name,
                                     sealane_error *error);

/*
 * Takes ciphertext of the server and sets `taken` to the count of bytes taken, from the front. Call
 * again with the rest. Look then at the state: plaintext may wait, and answers too, even if this
 * fails. SEALANE_FULL: read or transmit first. Once it has failed with another status than that,
 * the session is over.
 */
sealane_status sealane_session_receive(sealane_session *session, const uint8_t *ciphertext,
                                       size_t len, size_t *taken, sealane_error *error);

/* Moves plaintext of the server to `plaintext` and sets `len` to its length, 0 if none waits. */
sealane_status sealane_session_read(sealane_session *session, uint8_t *plaintext, size_t room,
                                    size_t *len, sealane_error *error);

/*
 * Encrypts plaintext for the server and sets `taken` to the count of bytes taken, from the front.
 * Transmit, and call again with the rest. SEALANE_FULL: transmit first.
 */
sealane_status sealane_session_write(sealane_session *session, const uint8_t *plaintext,
                                     size_t len, size_t *taken, sealane_error *error);

/*
 * Moves ciphertext for the server to `ciphertext` and sets `len` to its length, 0 if none waits.
 * Each byte is handed out once: send all of them.
 */
sealane_status sealane_session_transmit(sealane_session *session, uint8_t *ciphertext,
                                        size_t room, size_t *len, sealane_error *error);

/* The sum of these; 0 for null. */
#define SEALANE_ESTABLISHED 1u      /* the handshake is complete */
#define SEALANE_PLAINTEXT_WAITS 2u  /* sealane_session_read has something */
#define SEALANE_CIPHERTEXT_WAITS 4u /* sealane_session_transmit has something */
#define SEALANE_PEER_CLOSED 8u      /* the server has sent close_notify: all its data is here */
#define SEALANE_LOCAL_CLOSED 16u    /* sealane_session_close was called */
#define SEALANE_FAILED 32u          /* over; each call returns the reason again */
uint32_t sealane_session_state(const sealane_session *session);

/* The protocol that was agreed on, without a zero behind it; 0 bytes if none was. */
sealane_status sealane_session_alpn(sealane_session *session, uint8_t *protocol, size_t room,
                                    size_t *len, sealane_error *error);

/*
 * Ends this direction: close_notify waits to be transmitted, and nothing can be written any more.
 * The server's direction goes on. Before the handshake is complete there is nothing to end:
 * SEALANE_NOT_ESTABLISHED.
 */
sealane_status sealane_session_close(sealane_session *session, sealane_error *error);

/*
 * Notes that the transport has ended: the socket was at its end, or had an error. SEALANE_OK if the
 * server had sent close_notify before. SEALANE_TRUNCATED if not: an attacker may have cut the data.
 */
sealane_status sealane_session_ended(sealane_session *session, sealane_error *error);

void sealane_session_free(sealane_session *session);

#ifdef __cplusplus
}
#endif

#endif
