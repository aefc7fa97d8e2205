// Carries bytes over TLS on real Asio, both ends in this process: the runtime `asio` of
// `sealane-lab bulk`, which compiles this file at first use and checks what it prints.
//
// Every connection has a client that writes `messages` times `size` bytes and a server that reads
// them. Both ends of connection i run on loop i modulo the number of loops; there is one loop for
// all threads (`shared`) or one per thread (`per-lane`). Handshakes come before the clock. No error
// code is dropped: the first one ends the process with status 1 and no result.
//
// The locks of OpenSSL 1.0, real and played, stand in asio-locks.h in front of this.
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

inline void lab_clear_error() {
  error_lock::take();
  ::ERR_clear_error();
}
inline unsigned long lab_next_error() {
  error_lock::take();
  return ::ERR_get_error();
}
// Asio's headers call these two by name, once each per operation of the engine.
#define ERR_clear_error lab_clear_error
#define ERR_get_error lab_next_error
#include <asio.hpp>
#include <asio/ssl.hpp>
#undef ERR_clear_error
#undef ERR_get_error

namespace {

using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string &why) {
  std::fprintf(stderr, "asio: %s\n", why.c_str());
  // Loops may still run, and must not see what a normal exit would take down.
  std::fflush(stderr);
  std::_Exit(1);
}

struct Options {
  std::map<std::string, std::string> given;

  Options(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
    if (argc % 2 == 0) die("options come in pairs");
  }
  const std::string &text(const char *name) const {
    auto found = given.find(name);
    if (found == given.end()) die(std::string("option is missing: ") + name);
    return found->second;
  }
  std::uint64_t number(const char *name) const {
    const std::string &word = text(name);
    char *end = nullptr;
    std::uint64_t value = std::strtoull(word.c_str(), &end, 10);
    if (word.empty() || *end) die(std::string("not a number: ") + name + " " + word);
    return value;
  }
};

enum class Fault { none, reset, plaintext, ciphertext };

struct Plan {
  std::size_t threads, connections, size;
  std::uint64_t messages;
  bool per_lane, hashes;
  Fault fault;
  std::size_t fault_connection;
  std::uint64_t fault_after;
  std::vector<int> processors;
};

Plan plan_of(const Options &options) {
  Plan plan{};
  plan.threads = options.number("--threads");
  plan.connections = options.number("--connections");
  plan.messages = options.number("--messages");
  plan.size = options.number("--size");
  plan.per_lane = options.text("--loops") == "per-lane";
  plan.hashes = options.text("--verify") == "sha256";
  const std::map<std::string, Fault> faults = {{"none", Fault::none},
                                               {"reset", Fault::reset},
                                               {"corrupt-plaintext", Fault::plaintext},
                                               {"corrupt", Fault::ciphertext}};
  auto fault = faults.find(options.text("--fault"));
  if (fault == faults.end()) die("unknown fault");
  plan.fault = fault->second;
  plan.fault_connection = options.number("--fault-connection");
  plan.fault_after = options.number("--fault-after");
  const std::string &list = options.text("--processors");
  for (std::size_t at = 0; at < list.size();) {
    plan.processors.push_back(std::atoi(list.c_str() + at));
    std::size_t comma = list.find(',', at);
    at = comma == std::string::npos ? list.size() : comma + 1;
  }
  if (!plan.threads || !plan.connections || !plan.messages || !plan.size) die("nothing to do");
  return plan;
}

// What message `message` of connection `connection` holds: one pattern for all, and who it is in
// its first bytes, so that a message that is lost, doubled or crossed shows.
class Content {
 public:
  explicit Content(std::size_t size) : pattern_(size) {
    std::uint64_t state = 0x9e3779b97f4a7c15u;
    for (auto &byte : pattern_) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<unsigned char>(state >> 56);
    }
  }
  void stamp(std::vector<unsigned char> &message, std::uint64_t connection,
             std::uint64_t number) const {
    unsigned char mark[mark_bytes];
    make_mark(mark, connection, number);
    std::memcpy(message.data(), mark, std::min(message.size(), sizeof mark));
  }
  bool matches(const std::vector<unsigned char> &message, std::uint64_t connection,
               std::uint64_t number) const {
    unsigned char mark[mark_bytes];
    make_mark(mark, connection, number);
    std::size_t marked = std::min(message.size(), sizeof mark);
    return std::memcmp(message.data(), mark, marked) == 0 &&
           std::memcmp(message.data() + marked, pattern_.data() + marked,
                       message.size() - marked) == 0;
  }
  const std::vector<unsigned char> &pattern() const { return pattern_; }

 private:
  static constexpr std::size_t mark_bytes = 16;
  static void make_mark(unsigned char *mark, std::uint64_t connection, std::uint64_t number) {
    for (int i = 0; i < 8; ++i) {
      mark[i] = static_cast<unsigned char>(connection >> (8 * i));
      mark[8 + i] = static_cast<unsigned char>(number >> (8 * i));
    }
  }
  std::vector<unsigned char> pattern_;
};

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) != 1) die("no SHA-256");
  }
  ~Digest() { EVP_MD_CTX_free(context_); }
  Digest(const Digest &) = delete;
  Digest &operator=(const Digest &) = delete;
  void add(const std::vector<unsigned char> &bytes) {
    if (EVP_DigestUpdate(context_, bytes.data(), bytes.size()) != 1) die("SHA-256 failed");
  }
  std::string finish() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_DigestFinal_ex(context_, bytes, &length) != 1) die("SHA-256 failed");
    return std::string(reinterpret_cast<char *>(bytes), length);
  }

 private:
  EVP_MD_CTX *context_;
};

// A TCP socket that can flip one bit of what it sends.
class Wire {
 public:
  using executor_type = tcp::socket::executor_type;
  using lowest_layer_type = tcp::socket::lowest_layer_type;
  explicit Wire(tcp::socket socket) : socket_(std::move(socket)) {}
  executor_type get_executor() { return socket_.get_executor(); }
  lowest_layer_type &lowest_layer() { return socket_.lowest_layer(); }
  void corrupt_after(std::uint64_t bytes) { corrupt_at_ = sent_ + bytes, corrupts_ = true; }

  template <typename Buffers>
  std::size_t read_some(const Buffers &buffers, asio::error_code &error) {
    return socket_.read_some(buffers, error);
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers &buffers, asio::error_code &error) {
    return socket_.write_some(buffers, error);
  }
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers &buffers, Token &&token) {
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers &buffers, Token &&token) {
    for (auto it = asio::buffer_sequence_begin(buffers); corrupts_; ++it) {
      if (it == asio::buffer_sequence_end(buffers)) break;
      asio::const_buffer buffer(*it);
      if (sent_ + buffer.size() > corrupt_at_) {
        // The bytes are the TLS stream's own output, in memory that may be written.
        auto *bytes = static_cast<unsigned char *>(const_cast<void *>(buffer.data()));
        bytes[corrupt_at_ > sent_ ? corrupt_at_ - sent_ : 0] ^= 1;
        corrupts_ = false;
      }
      sent_ += buffer.size();
    }
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  tcp::socket socket_;
  bool corrupts_ = false;
  std::uint64_t corrupt_at_ = 0, sent_ = 0;
};

using Stream = asio::ssl::stream<Wire>;

struct Connection {
  Connection(std::size_t number, tcp::socket client, tcp::socket server,
             asio::ssl::context &client_context, asio::ssl::context &server_context,
             const Content &content)
      : number(number),
        client(Wire(std::move(client)), client_context),
        server(Wire(std::move(server)), server_context),
        outgoing(content.pattern()),
        incoming(content.pattern().size()) {}

  std::size_t number;
  Stream client, server;
  std::vector<unsigned char> outgoing, incoming;
  std::uint64_t written = 0, read = 0, sent_bytes = 0, received_bytes = 0, check_ns = 0;
  Digest digest;
  // Each end's own: in a shared loop both run at once.
  std::set<std::thread::id> client_threads, server_threads;
};

void note_thread(std::set<std::thread::id> &threads) {
  threads.insert(std::this_thread::get_id());
}

std::uint64_t cpu_ns(clockid_t whose = CLOCK_PROCESS_CPUTIME_ID) {
  timespec time{};
  clock_gettime(whose, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000000u + time.tv_nsec;
}

// Waits of the main thread for things that happen on the loops.
class Latch {
 public:
  explicit Latch(std::size_t wanted) : left_(wanted) {}
  void arrive() {
    std::lock_guard<std::mutex> guard(lock_);
    if (left_ && --left_ == 0) {
      time_ = Clock::now();
      cpu_ns_ = cpu_ns();
      done_.notify_all();
    }
  }
  void wait(std::chrono::seconds most, const char *what) {
    std::unique_lock<std::mutex> guard(lock_);
    if (!done_.wait_for(guard, most, [this] { return left_ == 0; }))
      die(std::string(what) + " took too long; " + std::to_string(left_) + " did not end");
  }
  Clock::time_point time() const { return time_; }
  std::uint64_t cpu() const { return cpu_ns_; }

 private:
  std::mutex lock_;
  std::condition_variable done_;
  std::size_t left_;
  Clock::time_point time_;
  std::uint64_t cpu_ns_ = 0;
};

void fail(const Connection &connection, const char *end, const asio::error_code &error) {
  die("connection " + std::to_string(connection.number) + ": " + end + ": " + error.message() +
      ", after " + std::to_string(connection.received_bytes) + " bytes received");
}

class Transfer {
 public:
  Transfer(const Plan &plan, const Content &content)
      : plan_(plan), content_(content), sent(plan.connections), received(plan.connections) {}

  void write(Connection &connection) {
    if (connection.written == plan_.messages) return sent.arrive();
    content_.stamp(connection.outgoing, connection.number, connection.written);
    std::size_t length = plan_.size;
    bool resets = false;
    if (plan_.fault != Fault::none && plan_.fault_connection == connection.number) {
      std::uint64_t start = connection.written * plan_.size;
      if (plan_.fault_after >= start && plan_.fault_after - start < plan_.size) {
        std::size_t offset = static_cast<std::size_t>(plan_.fault_after - start);
        if (plan_.fault == Fault::plaintext) connection.outgoing[offset] ^= 1;
        if (plan_.fault == Fault::ciphertext) connection.client.next_layer().corrupt_after(offset);
        if (plan_.fault == Fault::reset) length = offset, resets = true;
      }
    }
    auto note = [&connection](const asio::error_code &error, std::size_t) -> std::size_t {
      note_thread(connection.client_threads);
      return error ? 0 : asio::detail::default_max_transfer_size;
    };
    auto next = [this, &connection, resets](const asio::error_code &error, std::size_t bytes) {
      connection.sent_bytes += bytes;
      if (error) fail(connection, "client", error);
      if (resets) return reset(connection);
      ++connection.written;
      write(connection);
    };
    asio::async_write(connection.client, asio::buffer(connection.outgoing.data(), length), note,
                      next);
  }

  void read(Connection &connection) {
    auto note = [&connection](const asio::error_code &error, std::size_t) -> std::size_t {
      note_thread(connection.server_threads);
      return error ? 0 : asio::detail::default_max_transfer_size;
    };
    auto next = [this, &connection](const asio::error_code &error, std::size_t bytes) {
      connection.received_bytes += bytes;
      if (error) fail(connection, "server", error);
      check(connection);
      if (++connection.read == plan_.messages) return received.arrive();
      read(connection);
    };
    asio::async_read(connection.server, asio::buffer(connection.incoming), note, next);
  }

 private:
  void check(Connection &connection) {
    const std::uint64_t before = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    if (plan_.hashes)
      connection.digest.add(connection.incoming);
    else if (!content_.matches(connection.incoming, connection.number, connection.read))
      die("connection " + std::to_string(connection.number) + ": message " +
          std::to_string(connection.read) + " is not what was sent");
    connection.check_ns += cpu_ns(CLOCK_THREAD_CPUTIME_ID) - before;
  }

  static void reset(Connection &connection) {
    auto &socket = connection.client.lowest_layer();
    asio::error_code error;
    socket.set_option(asio::socket_base::linger(true, 0), error);
    if (error) fail(connection, "client", error);
    socket.close(error);
  }

  const Plan &plan_;
  const Content &content_;

 public:
  // The last byte may arrive before its sender has been told that it left.
  Latch sent, received;
};

void must(bool holds, const char *what) {
  if (holds) return;
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  die(std::string(what) + ": " + text);
}

void pin_down(SSL_CTX *context, const Options &options, const char *groups) {
  bool is_tls13 = options.text("--version") == "1.3";
#ifdef OLD_OPENSSL
  if (is_tls13) die(std::string(OPENSSL_VERSION_TEXT) + " has no TLS 1.3: give --tls 1.2");
  SSL_CTX_set_options(context, SSL_OP_NO_SSLv2 | SSL_OP_NO_SSLv3 | SSL_OP_NO_TLSv1 |
                                   SSL_OP_NO_TLSv1_1);
  must(SSL_CTX_set_cipher_list(context, options.text("--suite").c_str()) == 1, "cipher suite");
  const std::string &list = options.text(groups);
  if (list.find("X25519") != std::string::npos)
    die(std::string(OPENSSL_VERSION_TEXT) + " has no X25519: give --group p256");
  must(SSL_CTX_set1_curves_list(context, list.c_str()) == 1, "group");
  SSL_CTX_set_ecdh_auto(context, 1);
#else
  int version = is_tls13 ? TLS1_3_VERSION : TLS1_2_VERSION;
  must(SSL_CTX_set_min_proto_version(context, version) == 1, "protocol version");
  must(SSL_CTX_set_max_proto_version(context, version) == 1, "protocol version");
  const char *suite = options.text("--suite").c_str();
  if (!is_tls13) {
    must(SSL_CTX_set_cipher_list(context, suite) == 1, "cipher suite");
  } else {
#if !defined(OPENSSL_IS_BORINGSSL) || defined(OPENSSL_IS_AWSLC)
    must(SSL_CTX_set_ciphersuites(context, suite) == 1, "cipher suite");
#endif
  }
#ifdef OPENSSL_IS_BORINGSSL
  must(SSL_CTX_set1_curves_list(context, options.text(groups).c_str()) == 1, "group");
#else
  must(SSL_CTX_set1_groups_list(context, options.text(groups).c_str()) == 1, "group");
#endif
#endif
}

void prepare_server(asio::ssl::context &context, const Options &options) {
  pin_down(context.native_handle(), options, "--group");
  context.use_certificate_chain_file(options.text("--certificate"));
  context.use_private_key_file(options.text("--key"), asio::ssl::context::pem);
#ifndef OLD_OPENSSL
  must(SSL_CTX_set_num_tickets(context.native_handle(), options.number("--tickets")) == 1,
       "tickets");
#endif
}

void prepare_client(asio::ssl::context &context, const Options &options) {
  pin_down(context.native_handle(), options, "--client-groups");
  context.load_verify_file(options.text("--root"));
  context.set_verify_mode(asio::ssl::verify_peer);
}

// The IANA number of a group, or 0 where this library does not tell.
int group_of(SSL *ssl) {
#ifdef OPENSSL_IS_BORINGSSL
  return SSL_get_curve_id(ssl);
#elif OPENSSL_VERSION_NUMBER >= 0x30000000L
  int id = static_cast<int>(SSL_get_negotiated_group(ssl));
  if (id == NID_X25519) return 29;
  if (id == NID_X9_62_prime256v1) return 23;
  if (id == NID_secp384r1) return 24;
  // Groups without a number of OpenSSL's own carry the IANA number.
  return id & 0xffff;
#else
  EVP_PKEY *key = nullptr;
  if (SSL_is_server(ssl) || SSL_get_server_tmp_key(ssl, &key) != 1) return 0;
  int kind = EVP_PKEY_id(key);
  if (EC_KEY *curve = kind == EVP_PKEY_EC ? EVP_PKEY_get1_EC_KEY(key) : nullptr) {
    kind = EC_GROUP_get_curve_name(EC_KEY_get0_group(curve));
    EC_KEY_free(curve);
  }
  EVP_PKEY_free(key);
#ifdef EVP_PKEY_X25519
  if (kind == EVP_PKEY_X25519) return 29;
#endif
  return kind == NID_X9_62_prime256v1 ? 23 : kind == NID_secp384r1 ? 24 : 0;
#endif
}

// IANA's name of a suite.
const char *name_of(const SSL_CIPHER *suite) {
#if defined(OLD_OPENSSL) || defined(LIBRESSL_VERSION_NUMBER)
  switch (suite ? SSL_CIPHER_get_id(suite) & 0xffff : 0) {
    case 0x1301: return "TLS_AES_128_GCM_SHA256";
    case 0x1302: return "TLS_AES_256_GCM_SHA384";
    case 0x1303: return "TLS_CHACHA20_POLY1305_SHA256";
    case 0xc02b: return "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    case 0xc02c: return "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    case 0xc02f: return "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    case 0xc030: return "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
    case 0xcca8: return "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";
    case 0xcca9: return "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    default: return nullptr;
  }
#else
  return suite ? SSL_CIPHER_standard_name(suite) : nullptr;
#endif
}

std::string negotiated(Stream &stream) {
  SSL *ssl = stream.native_handle();
  const char *suite = name_of(SSL_get_current_cipher(ssl));
  X509 *peer = SSL_get_peer_certificate(ssl);
  bool verified = peer && SSL_get_verify_result(ssl) == X509_V_OK &&
                  SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE;
  X509_free(peer);
  return std::string("{\"version\":\"") + SSL_get_version(ssl) + "\",\"suite\":\"" +
         (suite ? suite : "") + "\",\"group\":" + std::to_string(group_of(ssl)) +
         ",\"resumed\":" + (SSL_session_reused(ssl) ? "true" : "false") +
         ",\"peer_certificate\":" + (verified ? "true" : "false") + "}";
}

// Tickets follow the handshake; a client that never reads would leave them in its socket, and a
// socket that is closed with unread bytes resets the connection.
void take_tickets(Connection &connection) {
  connection.client.lowest_layer().non_blocking(true);
  asio::error_code error;
  unsigned char byte;
  connection.client.read_some(asio::buffer(&byte, 1), error);
  if (error != asio::error::would_block && error != asio::error::try_again)
    die("connection " + std::to_string(connection.number) + ": the server said more than tickets");
}

std::string mapped_library(const char *name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::size_t slash = line.find('/');
    if (slash != std::string::npos && line.find(name, slash) != std::string::npos)
      return line.substr(slash);
  }
  return "";
}

// Headers of one library and code of another go wrong in silence.
void check_library() {
#ifndef OPENSSL_IS_BORINGSSL
  // Up to 1.1 the second number tells as much as the first does since.
  const int told = (OPENSSL_VERSION_NUMBER >> 28) == 1 ? 20 : 28;
  if ((OpenSSL_version_num() >> told) != (OPENSSL_VERSION_NUMBER >> told))
    die(std::string("compiled for ") + OPENSSL_VERSION_TEXT + ", but the library is " +
        OpenSSL_version(OPENSSL_VERSION) + "; give the library's own headers with --include");
#endif
}

struct Loops {
  explicit Loops(const Plan &plan) {
    std::size_t count = plan.per_lane ? plan.threads : 1;
    for (std::size_t i = 0; i < count; ++i) {
      loops.emplace_back(new asio::io_context(plan.per_lane ? 1 : static_cast<int>(plan.threads)));
      guards.emplace_back(asio::make_work_guard(*loops.back()));
    }
    for (std::size_t i = 0; i < plan.threads; ++i) {
      threads.emplace_back([this, i, count] { loops[i % count]->run(); });
      if (!plan.processors.empty()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(plan.processors[i % plan.processors.size()], &set);
        if (pthread_setaffinity_np(threads.back().native_handle(), sizeof set, &set))
          die("a thread cannot be pinned to its processor");
      }
    }
  }
  asio::io_context &of(std::size_t connection) { return *loops[connection % loops.size()]; }
  void end() {
    guards.clear();
    for (auto &loop : loops) loop->stop();
    for (auto &thread : threads) thread.join();
  }
  std::vector<std::unique_ptr<asio::io_context>> loops;
  std::vector<asio::executor_work_guard<asio::io_context::executor_type>> guards;
  std::vector<std::thread> threads;
};

using Connections = std::vector<std::unique_ptr<Connection>>;

Connections connect(const Plan &plan, const Options &options, Loops &loops,
                    asio::ssl::context &client_context, asio::ssl::context &server_context,
                    const Content &content) {
  asio::io_context of_listener;
  tcp::acceptor acceptor(of_listener, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  Connections connections;
  for (std::size_t i = 0; i < plan.connections; ++i) {
    tcp::socket client(loops.of(i)), server(loops.of(i));
    client.connect(acceptor.local_endpoint());
    acceptor.accept(server);
    if (server.remote_endpoint() != client.local_endpoint()) die("a stranger connected");
    client.set_option(tcp::no_delay(true));
    server.set_option(tcp::no_delay(true));
    connections.emplace_back(new Connection(i, std::move(client), std::move(server),
                                            client_context, server_context, content));
    SSL *ssl = connections.back()->client.native_handle();
    const char *name = options.text("--server-name").c_str();
    must(SSL_set_tlsext_host_name(ssl, name) == 1, "server name");
    must(X509_VERIFY_PARAM_set1_host(SSL_get0_param(ssl), name, std::strlen(name)) == 1,
         "server name");
  }
  return connections;
}

// What every connection negotiated, the same for all.
std::string shake_hands(Connections &connections, std::chrono::seconds time_max) {
  Latch done(2 * connections.size());
  for (auto &connection : connections) {
    auto start = [&done, &connection](Stream &stream, asio::ssl::stream_base::handshake_type type) {
      asio::post(stream.get_executor(), [&stream, &done, &connection, type] {
        stream.async_handshake(type, [&done, &connection, type](const asio::error_code &error) {
          bool is_client = type == asio::ssl::stream_base::client;
          if (error) fail(*connection, is_client ? "client's handshake" : "handshake", error);
          done.arrive();
        });
      });
    };
    start(connection->server, asio::ssl::stream_base::server);
    start(connection->client, asio::ssl::stream_base::client);
  }
  done.wait(time_max, "the handshakes");
  std::string first;
  for (auto &connection : connections) {
    std::string here = "\"server\":" + negotiated(connection->server) +
                       ",\"client\":" + negotiated(connection->client);
    if (first.empty()) first = here;
    if (here != first) die("connections negotiated different things: " + first + " and " + here);
    take_tickets(*connection);
  }
  return first;
}

std::vector<std::string> digests_wanted(const Plan &plan, const Content &content) {
  std::vector<std::string> wanted(plan.connections);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < plan.threads; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < plan.connections; i += plan.threads) {
        std::vector<unsigned char> message = content.pattern();
        Digest digest;
        for (std::uint64_t number = 0; number < plan.messages; ++number) {
          content.stamp(message, i, number);
          digest.add(message);
        }
        wanted[i] = digest.finish();
      }
    });
  for (auto &thread : threads) thread.join();
  return wanted;
}

void report(const Plan &plan, Connections &connections, const std::string &parameters,
            const std::vector<std::string> &wanted, std::uint64_t wall_ns, std::uint64_t cpu_ns,
            const Taken &locks) {
  std::uint64_t sent = 0, received = 0, check_ns = 0, migrated = 0;
  std::set<std::thread::id> threads;
  for (auto &connection : connections) {
    sent += connection->sent_bytes;
    received += connection->received_bytes;
    check_ns += connection->check_ns;
    if (plan.hashes && connection->digest.finish() != wanted[connection->number])
      die("connection " + std::to_string(connection->number) +
          ": the SHA-256 of what arrived is not that of what was sent");
    std::set<std::thread::id> here = connection->client_threads;
    here.insert(connection->server_threads.begin(), connection->server_threads.end());
    migrated += here.size() > 1;
    threads.insert(here.begin(), here.end());
  }
  std::uint64_t wanted_bytes = plan.connections * plan.messages * plan.size;
  if (sent != wanted_bytes || received != wanted_bytes)
    die("sent " + std::to_string(sent) + " and received " + std::to_string(received) +
        " bytes, wanted " + std::to_string(wanted_bytes));
  std::string locked;
  for (auto &entry : locks)
    if (const std::uint64_t count = entry.second)
      locked += (locked.empty() ? "\"" : ",\"") + entry.first + "\":" + std::to_string(count);
  std::printf("{\"bytes_sent\":%llu,\"bytes_received\":%llu,\"wall_ns\":%llu,\"cpu_ns\":%llu,"
              "\"check_ns\":%llu,\"migrated\":%llu,\"threads\":%zu,\"locks\":{%s},%s,"
              "\"library\":\"%s\",\"path\":\"%s\",\"asio\":%d}\n",
              static_cast<unsigned long long>(sent), static_cast<unsigned long long>(received),
              static_cast<unsigned long long>(wall_ns), static_cast<unsigned long long>(cpu_ns),
              static_cast<unsigned long long>(check_ns), static_cast<unsigned long long>(migrated),
              threads.size(), locked.c_str(), parameters.c_str(),
              OpenSSL_version(OPENSSL_VERSION), mapped_library("libssl").c_str(), ASIO_VERSION);
}

void run(const Options &options) {
  check_library();
  const Plan plan = plan_of(options);
  const std::chrono::seconds time_max(options.number("--seconds-max"));
  const Content content(plan.size);
  std::vector<std::string> wanted;
  if (plan.hashes) wanted = digests_wanted(plan, content);
  asio::ssl::context server_context(asio::ssl::context::tls_server);
  asio::ssl::context client_context(asio::ssl::context::tls_client);
  const std::string &emulate = options.text("--emulate");
#ifdef OLD_OPENSSL
  if (emulate == "error-lock") die("this library has the lock: nothing is to be emulated");
  library_locks::bring(emulate == "fair-locks");
#else
  if (emulate == "fair-locks") die("this library brings its own locks: it takes OpenSSL 1.0.2");
#endif
  prepare_server(server_context, options);
  prepare_client(client_context, options);

  Loops loops(plan);
  auto connections = connect(plan, options, loops, client_context, server_context, content);
  const std::string parameters = shake_hands(connections, time_max);

  error_lock::on = emulate == "error-lock";
  const Taken locks_before = library_locks::taken();
  Transfer transfer(plan, content);
  for (auto &connection : connections)
    asio::post(connection->server.get_executor(), [&] { transfer.read(*connection); });
  const std::uint64_t cpu_before = cpu_ns();
  const auto before = Clock::now();
  for (auto &connection : connections)
    asio::post(connection->client.get_executor(), [&] { transfer.write(*connection); });
  transfer.received.wait(time_max, "the transfer");
  transfer.sent.wait(time_max, "the transfer");
  loops.end();
  const Latch &end = transfer.received;
  Taken locks = library_locks::taken();
  for (auto &entry : locks_before) locks[entry.first] -= entry.second;
  for (auto &entry : error_lock::table) locks["emulated"] += entry.second;
  report(plan, connections, parameters, wanted,
         std::chrono::nanoseconds(end.time() - before).count(), end.cpu() - cpu_before, locks);
  // The library's own clean-up of threads and contexts is not what is tested here.
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace

int main(int argc, char **argv) {
  // Whoever stops the trial stops its driver too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    run(Options(argc, argv));
  } catch (const std::exception &error) {
    die(error.what());
  }
}
