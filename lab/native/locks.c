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
#include <unistd.h>

enum {
  THREADS_MAX = 64,
  ROWS_MAX = 1 << 14, // per thread; a power of two
  FRAMES_MAX = 24,    // of one call path
  FRAMES_OWN = 2,     // count() and the function that replaces the C library's
  PATH_BYTES = 4096,
};

enum kind { MUTEX, READ, WRITE, SPIN, KINDS };
static const char *const KIND_NAMES[KINDS] = {"mutex", "read", "write", "spin"};

struct row {
  uintptr_t lock; // 0: free
  uint64_t calls;
  uint8_t kind, phase, frames;
  uintptr_t path[FRAMES_MAX];
};
// src/count/tables.rs reads them.
_Static_assert(sizeof(struct row) == 24 + 8 * FRAMES_MAX, "rows in files");

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
static int with_all, with_paths;
static const volatile uint8_t always = 1;

static _Thread_local const volatile uint8_t *phase;
static _Thread_local struct table *table;
static _Thread_local int inside;

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
  return a->frames == b->frames && memcmp(a->path, b->path, a->frames * sizeof *a->path) == 0;
}

static __attribute__((always_inline)) inline void note_path(struct row *row) {
  void *frames[FRAMES_MAX + FRAMES_OWN];
  int found = backtrace(frames, FRAMES_MAX + FRAMES_OWN);
  for (int i = FRAMES_OWN; i < found; i++) {
    row->path[row->frames++] = (uintptr_t)frames[i];
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
  if (now == 0 || table == NULL) {
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
    if (at->lock == 0) {
      *at = row;
    }
    if (same(at, &row)) {
      at->calls++;
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
  if (with_paths) {
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

static void write_row(FILE *out, unsigned thread, const struct row *row) {
  fprintf(out, "row %u %s %u %lx %lu", thread, KIND_NAMES[row->kind], row->phase,
          (unsigned long)row->lock, (unsigned long)row->calls);
  for (unsigned i = 0; i < row->frames; i++) {
    fprintf(out, " %lx", (unsigned long)row->path[i]);
  }
  fputc('\n', out);
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
