// A heap that uses no memory twice: free() does nothing.
//
// Loaded with LD_PRELOAD by `sealane-lab count --record`. Memory that one thread freed and another
// got would be a cache line that both wrote, though they share nothing. Here an address belongs to
// one object for as long as the process lives: a line that two threads touch is shared, by one
// object or by two that lie beside each other.
//
// Each thread takes memory from a region of its own, in the order of its calls; objects lie as far
// apart as in the C library's heap. Their sizes stand in a table at the region's begin, not before
// each object: an object's line is written by who uses it, and by nobody else.

#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIT ((size_t)16)         // what the C library aligns to
#define UNITS_MIN ((size_t)2)     // of an object
#define OVERHEAD ((size_t)8)      // what the C library keeps beside an object
#define REGION ((size_t)64 << 20) // also its alignment; resident is what is used of it
#define TABLE (REGION / UNIT * sizeof(uint32_t)) // for each unit, those of the object there
#define LARGE (REGION / 4)        // an object of so many bytes has a region of its own
#define HEAP_MAX ((size_t)16 << 30) // all regions together

static atomic_size_t mapped;
static _Thread_local uintptr_t next, end;

static void *none(void) {
  static const char words[] =
      "the heap that uses no memory twice is full (native/heap.c): record fewer handshakes\n";
  ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
  (void)written;
  errno = ENOMEM;
  return NULL;
}

// Where objects begin in a new region with room for `bytes` of them; 0: there is no memory.
static uintptr_t new_region(size_t bytes) {
  size_t whole = TABLE + bytes;
  if (atomic_fetch_add(&mapped, whole) + whole > HEAP_MAX) {
    return 0;
  }
  void *memory = mmap(NULL, whole + REGION, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? 0 : (((uintptr_t)memory + REGION - 1) & ~(REGION - 1)) + TABLE;
}

static uint32_t *units_of(uintptr_t object) {
  uintptr_t start = object & ~(REGION - 1);
  return (uint32_t *)start + (object - start) / UNIT;
}

static size_t usable(void *object) {
  return *units_of((uintptr_t)object) * UNIT - OVERHEAD;
}

// Inlined, so that all that is written here is written by functions with the names of malloc's.
static inline __attribute__((always_inline)) void *take(size_t alignment, size_t bytes) {
  if (bytes > HEAP_MAX || alignment > LARGE) {
    return none();
  }
  size_t units = (bytes + OVERHEAD + UNIT - 1) / UNIT;
  units = units < UNITS_MIN ? UNITS_MIN : units;
  size_t room = units * UNIT + alignment;
  uintptr_t from = next;
  if (room >= LARGE) {
    from = new_region(room);
  } else if (next == 0 || room > end - next) {
    from = new_region(REGION - TABLE);
    end = from == 0 ? 0 : from + REGION - TABLE;
  }
  if (from == 0) {
    return none();
  }
  uintptr_t object = (from + alignment - 1) & ~(uintptr_t)(alignment - 1);
  if (room < LARGE) {
    next = object + units * UNIT;
  }
  *units_of(object) = (uint32_t)units;
  return (void *)object;
}

void *malloc(size_t bytes) {
  return take(UNIT, bytes);
}

void free(void *object) {
  (void)object;
}

// New memory is zero.
void *calloc(size_t count, size_t each) {
  size_t bytes;
  return __builtin_mul_overflow(count, each, &bytes) ? none() : take(UNIT, bytes);
}

void *realloc(void *object, size_t bytes) {
  if (object != NULL && bytes <= usable(object)) {
    return object;
  }
  void *larger = take(UNIT, bytes);
  if (larger != NULL && object != NULL) {
    memcpy(larger, object, usable(object));
  }
  return larger;
}

void *memalign(size_t alignment, size_t bytes) {
  return take(alignment < UNIT ? UNIT : alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return take(alignment < UNIT ? UNIT : alignment, bytes);
}

int posix_memalign(void **object, size_t alignment, size_t bytes) {
  *object = take(alignment < UNIT ? UNIT : alignment, bytes);
  return *object == NULL ? ENOMEM : 0;
}

void *valloc(size_t bytes) {
  return take((size_t)sysconf(_SC_PAGESIZE), bytes);
}

void *pvalloc(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return take(page, (bytes + page - 1) / page * page);
}

size_t malloc_usable_size(void *object) {
  return object == NULL ? 0 : usable(object);
}
