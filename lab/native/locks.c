// Counts the calls of lock functions by lock, kind, phase and, if asked, call path.
//
// Loaded with LD_PRELOAD by `sealane-lab count`. Each thread counts in a table of its own, so that
// counting takes no lock and writes no line of another thread. At the end of the process all tables
// are written to the file that SEALANE_LAB_LOCKS names, or a line that says which limit was met.
//
// The phase of a thread is a byte of the program's: it announces the address by asking for the
// environment variable SEALANE_LAB_PHASE=ADDRESS on that thread. Threads that announce nothing are
// not counted, unless SEALANE_LAB_LOCKS_ALL is set: then they are in phase 1 from start to end, and
// each process writes to a file of its own, whose name ends with its number.
//
// With SEALANE_LAB_LOCKS_TABLES=FOLDER every call counts too, and the tables are files in that
// folder, PROCESS.TABLE, which may be read at any time: nothing is lost of a process that never
// ends, or that is ended by a signal. A thread that ends leaves its table to the next one. A table
// that could not be had leaves a file `lost`.
//
// With SEALANE_LAB_LOCKS_TIMES it also sums how long each lock was held, by the time stamp counter
// where there is one, and notes the call path of the first call only. A span is left out if this
// file did more in it than look away, or if it is so long that the thread had lost its processor;
// where most are that long, it is the lock that is held long, and they count. The longest hundredth
// of what is left was interrupted and is left out too. So that locks around other locks have a time
// as well, this file looks away in every second span, by chance: what is taken there is not noted,
// and counts twice in the others. A mutex that a condition variable gives back meanwhile counts as
// held.
//
// Not seen: locks that are atomics in the program's own code (Rust's standard library, Go), calls
// inside the C library, and the mutex that a condition variable takes again.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum {
  THREADS_MAX = 64,
  ROWS_MAX = 1 << 14,   // per thread; a power of two
  FRAMES_MAX = 24,      // of one call path
  FRAMES_OWN = 2,       // count() and the function that replaces the C library's
  HELD_MAX = 32,        // locks that one thread holds at once and that are timed
  AWAY_MAX = 100000,    // calls while a lock is timed alone: more, and it was never given back
  SPAN_NS_MAX = 200000, // of a lock that is held while its thread runs
  LENGTHS = 40,         // of spans; the last one is of all that are longer
  INTERRUPTED = 100,    // one span of so many, the longest
  CLOCK_READINGS = 1000,
  CALIBRATION_NS = 2000000,
  PATH_BYTES = 4096,
};

enum kind { MUTEX, READ, WRITE, SPIN, KINDS };
static const char *const KIND_NAMES[KINDS] = {"mutex", "read", "write", "spin"};

struct spans {
  uint64_t count, ticks;
};

struct row {
  uintptr_t lock; // 0: free
  uint64_t calls;
  uint8_t kind, phase, frames;
  uintptr_t path[FRAMES_MAX];
  struct spans spans[LENGTHS]; // timed ones, by the logarithm of their ticks
};

struct held {
  const void *lock;
  struct row *row;
  uint64_t begun;
  int disturbed; // something was noted meanwhile
};

struct table {
  uint64_t lost; // calls for which there was no row
  struct row rows[ROWS_MAX];
};

static struct table *tables[THREADS_MAX];
static atomic_uint tables_used;
static atomic_uint threads_lost;
static const char *folder; // of tables that are files; a copy, because servers that change their
                           // title write it over their environment
static atomic_bool taken[THREADS_MAX]; // by a thread that lives
static pthread_key_t place_key;        // a thread's place, and one
static int with_all, with_paths, with_times;
static const volatile uint8_t always = 1;
static uint64_t ticks_begin, ns_begin;
static unsigned length_max; // of a lock that is held while its thread runs

static _Thread_local const volatile uint8_t *phase;
static _Thread_local struct table *table;
static _Thread_local int inside;
static _Thread_local struct held held[HELD_MAX];
static _Thread_local unsigned holding;
// Of the lock that is timed while nothing else is looked at, NULL: none.
static _Thread_local const void *alone;
static _Thread_local unsigned again, looked_away; // how often it was taken again, and others were
static _Thread_local uint32_t chance = 1;

static void name_in_folder(char *name, size_t bytes, unsigned place) {
  snprintf(name, bytes, "%s/%ld.%u", folder, (long)getpid(), place);
}

static void lose_thread(void) {
  atomic_fetch_add(&threads_lost, 1);
  if (folder != NULL) {
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s/lost", folder);
    int file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (file >= 0) {
      close(file);
    }
  }
}

// What a thread that has ended left.
static struct table *left_table(void) {
  unsigned used = atomic_load(&tables_used);
  for (unsigned place = 0; place < used && place < THREADS_MAX; place++) {
    if (tables[place] != NULL && !atomic_exchange(&taken[place], 1)) {
      pthread_setspecific(place_key, (void *)(uintptr_t)(place + 1));
      return tables[place];
    }
  }
  return NULL;
}

static struct table *new_table(void) {
  struct table *left = folder == NULL ? NULL : left_table();
  if (left != NULL) {
    return left;
  }
  unsigned place = atomic_fetch_add(&tables_used, 1);
  if (place >= THREADS_MAX) {
    lose_thread();
    return NULL;
  }
  int file = -1, sharing = MAP_PRIVATE | MAP_ANONYMOUS;
  if (folder != NULL) {
    char name[PATH_BYTES];
    name_in_folder(name, sizeof name, place);
    file = open(name, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
    sharing = MAP_SHARED;
    if (file < 0 || ftruncate(file, sizeof(struct table)) != 0) {
      lose_thread();
      return NULL;
    }
  }
  void *memory = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, sharing, file, 0);
  if (file >= 0) {
    close(file);
  }
  if (memory == MAP_FAILED) {
    lose_thread();
    return NULL;
  }
  if (folder != NULL) {
    atomic_store(&taken[place], 1);
    pthread_setspecific(place_key, (void *)(uintptr_t)(place + 1));
  }
  return tables[place] = memory;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t ticks(void) {
#if defined(__x86_64__)
  unsigned processor;
  return __rdtscp(&processor); // not before what comes before it
#else
  return now_ns();
#endif
}

static double ns_per_tick(void) {
  uint64_t passed = ticks() - ticks_begin;
  return passed == 0 ? 1 : (double)(now_ns() - ns_begin) / (double)passed;
}

// What two readings around nothing tell, at the least.
static uint64_t clock_ticks(void) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < CLOCK_READINGS; i++) {
    uint64_t begun = ticks(), passed = ticks() - begun;
    least = passed < least ? passed : least;
  }
  return least;
}

static uint64_t hash(const struct row *row) {
  uint64_t hash = (row->lock ^ ((uint64_t)row->kind << 60) ^ ((uint64_t)row->phase << 56)) *
                  0x9e3779b97f4a7c15u;
  for (unsigned i = 0; i < row->frames; i++) {
    hash = ((hash ^ row->path[i]) * 0x9e3779b97f4a7c15u) ^ (hash >> 29);
  }
  return hash ^ (hash >> 32);
}

static int same(const struct row *a, const struct row *b) {
  if (a->lock != b->lock || a->kind != b->kind || a->phase != b->phase) {
    return 0;
  }
  // With times, a row's path is a note only.
  return with_times || (a->frames == b->frames &&
                        memcmp(a->path, b->path, a->frames * sizeof *a->path) == 0);
}

static __attribute__((always_inline)) inline void note_path(struct row *row) {
  void *frames[FRAMES_MAX + FRAMES_OWN];
  int found = backtrace(frames, FRAMES_MAX + FRAMES_OWN);
  for (int i = FRAMES_OWN; i < found; i++) {
    row->path[row->frames++] = (uintptr_t)frames[i];
  }
}

static unsigned length(uint64_t ticks) {
  unsigned logarithm = 63 - (unsigned)__builtin_clzll(ticks | 1);
  return logarithm < LENGTHS ? logarithm : LENGTHS - 1;
}

static void hold(const void *lock, struct row *row, int disturbed) {
  for (unsigned i = 0; i < holding; i++) {
    held[i].disturbed = 1;
  }
  chance ^= chance << 13;
  chance ^= chance >> 17;
  chance ^= chance << 5;
  if (holding < HELD_MAX) {
    again = looked_away = 0;
    alone = chance & 1 ? lock : NULL;
    held[holding++] =
        (struct held){.lock = lock, .row = row, .begun = ticks(), .disturbed = disturbed};
  }
}

// Whether another lock is timed alone.
static inline int looks_away(const void *lock) {
  if (alone == NULL) {
    return 0;
  }
  again += lock == alone;
  if (looked_away++ == AWAY_MAX) {
    alone = NULL;
  }
  return 1;
}

static void let_go(const void *lock) {
  if (alone != NULL && (lock != alone || again-- > 0)) {
    return;
  }
  uint64_t ended = ticks();
  alone = NULL;
  for (unsigned i = holding; i-- > 0;) {
    if (held[i].lock == lock) {
      struct held one = held[i];
      held[i] = held[--holding];
      uint64_t passed = ended - one.begun;
      if (!one.disturbed) {
        struct spans *of = &one.row->spans[length(passed)];
        of->count++;
        of->ticks += passed;
      }
      return;
    }
  }
}

static __attribute__((noinline)) void count(const void *lock, enum kind kind) {
  if (inside || (phase == NULL && !with_all)) {
    return; // `inside`: backtrace() takes locks itself
  }
  if (phase == NULL) {
    inside = 1;
    phase = &always;
    table = new_table();
    inside = 0;
  }
  uint8_t now = *phase;
  if (now == 0 || table == NULL || looks_away(lock)) {
    return;
  }
  struct row row = {.lock = (uintptr_t)lock, .kind = (uint8_t)kind, .phase = now};
  inside = 1;
  if (with_paths) {
    note_path(&row);
  }
  uint64_t start = hash(&row);
  for (unsigned step = 0; step < ROWS_MAX; step++) {
    struct row *at = &table->rows[(start + step) % ROWS_MAX];
    int is_new = at->lock == 0;
    if (is_new) {
      *at = row;
    }
    if (same(at, &row)) {
      at->calls += (uint64_t)1 << holding; // nothing is held without times
      if (with_times) {
        if (is_new) {
          note_path(at);
        }
        hold(lock, at, is_new);
      }
      inside = 0;
      return;
    }
  }
  table->lost++;
  inside = 0;
}

// The C library's own function. Asked for on first use, which can be before any constructor.
#define REAL(name) \
  static __typeof__(&name) real; \
  if (real == NULL) { \
    *(void **)&real = dlsym(RTLD_NEXT, #name); \
  }

#define COUNTED(name, type, kind) \
  int name(type *lock) { \
    REAL(name) \
    int result = real(lock); \
    if (result == 0) { \
      count((const void *)lock, kind); \
    } \
    return result; \
  }

#define COUNTED_UNTIL(name, type, kind) \
  int name(type *lock, const struct timespec *until) { \
    REAL(name) \
    int result = real(lock, until); \
    if (result == 0) { \
      count((const void *)lock, kind); \
    } \
    return result; \
  }

#define GIVEN_BACK(name, type) \
  int name(type *lock) { \
    REAL(name) \
    if (holding > 0) { \
      let_go((const void *)lock); \
    } \
    return real(lock); \
  }

COUNTED(pthread_mutex_lock, pthread_mutex_t, MUTEX)
COUNTED(pthread_mutex_trylock, pthread_mutex_t, MUTEX)
COUNTED_UNTIL(pthread_mutex_timedlock, pthread_mutex_t, MUTEX)
COUNTED(pthread_rwlock_rdlock, pthread_rwlock_t, READ)
COUNTED(pthread_rwlock_tryrdlock, pthread_rwlock_t, READ)
COUNTED_UNTIL(pthread_rwlock_timedrdlock, pthread_rwlock_t, READ)
COUNTED(pthread_rwlock_wrlock, pthread_rwlock_t, WRITE)
COUNTED(pthread_rwlock_trywrlock, pthread_rwlock_t, WRITE)
COUNTED_UNTIL(pthread_rwlock_timedwrlock, pthread_rwlock_t, WRITE)
COUNTED(pthread_spin_lock, pthread_spinlock_t, SPIN)
COUNTED(pthread_spin_trylock, pthread_spinlock_t, SPIN)

GIVEN_BACK(pthread_mutex_unlock, pthread_mutex_t)
GIVEN_BACK(pthread_rwlock_unlock, pthread_rwlock_t)
GIVEN_BACK(pthread_spin_unlock, pthread_spinlock_t)

// A thread that asks for SEALANE_LAB_PHASE=ADDRESS says where its phase is.
char *getenv(const char *name) {
  static const char prefix[] = "SEALANE_LAB_PHASE=";
  REAL(getenv)
  if (strncmp(name, prefix, sizeof prefix - 1) == 0) {
    if (table == NULL) {
      table = new_table();
    }
    phase = (const volatile uint8_t *)(uintptr_t)strtoull(name + sizeof prefix - 1, NULL, 16);
    return NULL;
  }
  return real(name);
}

// Its table is free when a thread ends; if it takes locks later on, it gets one again.
static void leave(void *place) {
  table = NULL;
  phase = NULL;
  atomic_store(&taken[(uintptr_t)place - 1], 0);
}

// A process has its own tables, and one thread.
static void begin_child(void) {
  memset(tables, 0, sizeof tables);
  memset(taken, 0, sizeof taken);
  atomic_store(&tables_used, 0);
  table = NULL;
  phase = NULL;
  pthread_setspecific(place_key, NULL);
}

__attribute__((constructor)) static void begin(void) {
  with_paths = getenv("SEALANE_LAB_LOCKS_PATHS") != NULL;
  with_times = getenv("SEALANE_LAB_LOCKS_TIMES") != NULL;
  ticks_begin = ticks();
  ns_begin = now_ns();
  while (with_times && now_ns() - ns_begin < CALIBRATION_NS) {
  }
  length_max = length((uint64_t)(SPAN_NS_MAX / ns_per_tick()));
  if (with_paths || with_times) {
    void *frame;
    backtrace(&frame, 1); // loads libgcc now, not inside somebody's lock
  }
  const char *named = getenv("SEALANE_LAB_LOCKS_TABLES");
  if (named != NULL) {
    static char copy[PATH_BYTES];
    snprintf(copy, sizeof copy, "%s", named);
    folder = copy;
    pthread_key_create(&place_key, leave);
    pthread_atfork(NULL, NULL, begin_child);
  }
  with_all = folder != NULL || getenv("SEALANE_LAB_LOCKS_ALL") != NULL;
}

// Those that were not interrupted.
static struct spans undisturbed(const struct row *row) {
  uint64_t shorter = 0, all = 0;
  for (unsigned i = 0; i < LENGTHS; i++) {
    all += row->spans[i].count;
    shorter += i <= length_max ? row->spans[i].count : 0;
  }
  int are_long = 2 * shorter < all;
  uint64_t left_out = (are_long ? all : shorter) / INTERRUPTED;
  struct spans sum = {0, 0};
  for (unsigned i = are_long ? LENGTHS : length_max + 1; i-- > 0;) {
    struct spans of = row->spans[i];
    uint64_t longest = of.count < left_out ? of.count : left_out;
    left_out -= longest;
    sum.count += of.count - longest;
    sum.ticks += of.count == 0 ? 0 : of.ticks / of.count * (of.count - longest);
  }
  return sum;
}

static void write_row(FILE *out, unsigned thread, const struct row *row) {
  fprintf(out, "row %u %s %u %lx %lu", thread, KIND_NAMES[row->kind], row->phase,
          (unsigned long)row->lock, (unsigned long)row->calls);
  for (unsigned i = 0; i < row->frames; i++) {
    fprintf(out, " %lx", (unsigned long)row->path[i]);
  }
  fputc('\n', out);
  if (with_times) {
    struct spans held = undisturbed(row);
    fprintf(out, "held %.3f %lu\n", (double)held.ticks * ns_per_tick(),
            (unsigned long)held.count);
  }
}

static void write_maps(FILE *out) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096];
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    fprintf(out, "map %s", line);
  }
  if (maps != NULL) {
    fclose(maps);
  }
}

__attribute__((destructor)) static void end(void) {
  int all = with_all;
  phase = NULL;
  with_all = 0;
  if (folder != NULL) {
    return; // all is written already
  }
  const char *path = getenv("SEALANE_LAB_LOCKS");
  unsigned used = atomic_load(&tables_used);
  if (path == NULL || (used == 0 && !all)) {
    return; // a process that the program started, or one that never announced a phase
  }
  char own[PATH_BYTES];
  if (all) {
    snprintf(own, sizeof own, "%s.%ld", path, (long)getpid());
    path = own;
  }
  FILE *out = fopen(path, "w");
  if (out == NULL) {
    return; // the reader misses the last line and says so
  }
  if (with_times) {
    fprintf(out, "clock %.3f\n", (double)clock_ticks() * ns_per_tick());
  }
  uint64_t lost = 0;
  for (unsigned i = 0; i < used && i < THREADS_MAX; i++) {
    for (unsigned at = 0; tables[i] != NULL && at < ROWS_MAX; at++) {
      if (tables[i]->rows[at].lock != 0) {
        write_row(out, i, &tables[i]->rows[at]);
      }
    }
    lost += tables[i] == NULL ? 0 : tables[i]->lost;
  }
  write_maps(out);
  fprintf(out, "lost threads %u of %u calls %lu rows %u\n", atomic_load(&threads_lost),
          THREADS_MAX, (unsigned long)lost, ROWS_MAX);
  fputs("end\n", out);
  fclose(out);
}
