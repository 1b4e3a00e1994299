/* The run-time of a lowered kernel on x86: every access to a tensor (GM) or to a UB buffer is checked, logged when it
 * is wrong, and then sent to poison, so that the run goes on. One run at a time. lowered_run.py is the other side. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { kMaxArguments = 64, kMaxFaults = 1024, kMaxBuffers = 1 << 22, kSinkBytes = 1 << 22 };
static const size_t kArenaBytes = (size_t)1 << 34, kArenaKept = (size_t)1 << 26;

enum Kind { kReadOutside, kWriteOutside, kWriteToInput, kReadOfOutput, kUbReadOutside, kUbWriteOutside, kUbExhausted };

/* [begin, end) is the tensor, [guard_begin, guard_end) what may be touched without a crash. times[i]: how often byte i
 * of an output was written, at most 255; null for an input. */
typedef struct {
  char *begin, *end, *guard_begin, *guard_end;
  uint8_t* times;
  int64_t read_bytes, written_bytes, rewritten_bytes;
} Argument;

/* argument -1: a UB buffer, offset from the nearest one's begin */
typedef struct {
  int64_t kind, argument, offset, size, program;
} Fault;

typedef struct {
  char *begin, *end;
} Buffer;

static Argument arguments[kMaxArguments];
static int num_arguments;
static Fault faults[kMaxFaults];
static int64_t num_faults;
static char* arena;
static size_t arena_used;
static Buffer buffers[kMaxBuffers];
static int num_buffers, last_buffer;
static int64_t program;
static char sink[kSinkBytes], poison[64];

static void fault(enum Kind kind, int64_t argument, int64_t offset, int64_t size) {
  if (num_faults < kMaxFaults) faults[num_faults] = (Fault){kind, argument, offset, size, program};
  ++num_faults;
}

/* ---- for lowered_run.py */

void run_begin(void) {
  num_arguments = 0;
  num_faults = 0;
  memset(poison, 0xFF, sizeof poison);
  if (arena == NULL) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    arena = mmap(NULL, kArenaBytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  }
}

int run_add_argument(char* begin, int64_t bytes, char* guard_begin, int64_t guard_bytes, uint8_t* times) {
  if (num_arguments == kMaxArguments || arena == MAP_FAILED) return -1;
  arguments[num_arguments++] = (Argument){begin, begin + bytes, guard_begin, guard_begin + guard_bytes, times, 0, 0, 0};
  return 0;
}

void run_program(int64_t id) {
  if (arena_used > kArenaKept) madvise(arena, arena_used, MADV_DONTNEED);
  program = id;
  arena_used = 0;
  num_buffers = last_buffer = 0;
}

int64_t run_faults(Fault* out, int64_t room) {
  const int64_t kept = num_faults < kMaxFaults ? num_faults : kMaxFaults;
  memcpy(out, faults, sizeof(Fault) * (size_t)(kept < room ? kept : room));
  return num_faults;
}

/* read, written, rewritten */
void run_bytes(int64_t argument, int64_t* out) {
  const Argument* a = &arguments[argument];
  out[0] = a->read_bytes;
  out[1] = a->written_bytes;
  out[2] = a->rewritten_bytes;
}

/* ---- for the kernel */

void* check_malloc(int64_t bytes) {
  const size_t begin = (arena_used + 63) / 64 * 64, end = begin + (size_t)bytes + 64; /* a gap of 64 bytes or more */
  if (end > kArenaBytes || num_buffers == kMaxBuffers) {
    fault(kUbExhausted, -1, 0, bytes);
    return sink;
  }
  arena_used = end;
  buffers[num_buffers++] = (Buffer){arena + begin, arena + begin + bytes};
  memset(arena + begin, 0xFF, (size_t)bytes); /* NaN, -1 */
  return arena + begin;
}

void check_free(void* pointer) { /* not reused before the program ends, so that a stale pointer shows */
  (void)pointer;
}

static int is_in_buffer(const char* p, int64_t bytes, int* nearest) {
  int low = 0, high = num_buffers - 1;
  if (num_buffers == 0) return 0;
  if (p >= buffers[last_buffer].begin && p + bytes <= buffers[last_buffer].end) return 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (buffers[middle].begin <= p)
      low = middle;
    else
      high = middle - 1;
  }
  *nearest = low;
  if (p < buffers[low].begin || p + bytes > buffers[low].end) return 0;
  last_buffer = low;
  return 1;
}

static void count_write(Argument* a, const char* p, int64_t bytes) {
  uint8_t* times = a->times + (p - a->begin);
  int64_t again = 0;
  for (int64_t i = 0; i < bytes; ++i) {
    again += times[i] != 0;
    times[i] = (uint8_t)(times[i] + (times[i] != 255));
  }
  a->written_bytes += bytes;
  a->rewritten_bytes += again;
}

static void fault_outside(int is_write, const char* p, int64_t bytes) {
  int64_t nearest = -1, least = INT64_MAX;
  for (int i = 0; i < num_arguments; ++i) {
    const int64_t before = arguments[i].begin - p, after = p - arguments[i].end;
    const int64_t distance = before > 0 ? before : after > 0 ? after : 0;
    if (distance >= least) continue;
    least = distance;
    nearest = i;
  }
  fault(is_write ? kWriteOutside : kReadOutside, nearest, nearest < 0 ? 0 : p - arguments[nearest].begin, bytes);
}

enum Verdict { kGood, kBadButReadable, kBad };

static enum Verdict check(const char* p, int64_t bytes, int is_write) {
  if (bytes <= 0) return kGood;
  if (p >= arena && p < arena + kArenaBytes) {
    int nearest = 0;
    if (is_in_buffer(p, bytes, &nearest)) return kGood;
    fault(is_write ? kUbWriteOutside : kUbReadOutside, -1, num_buffers ? p - buffers[nearest].begin : 0, bytes);
    return kBad;
  }
  for (int i = 0; i < num_arguments; ++i) {
    Argument* a = &arguments[i];
    if (p < a->begin || p + bytes > a->end) continue;
    if (is_write && a->times == NULL) {
      fault(kWriteToInput, i, p - a->begin, bytes);
      return kBad;
    }
    if (is_write) {
      count_write(a, p, bytes);
    } else {
      if (a->times != NULL) fault(kReadOfOutput, i, p - a->begin, bytes);
      a->read_bytes += bytes;
    }
    return kGood;
  }
  fault_outside(is_write, p, bytes);
  for (int i = 0; i < num_arguments; ++i)
    if (p >= arguments[i].guard_begin && p + bytes <= arguments[i].guard_end) return kBadButReadable;
  return kBad;
}

void* check_load(char* p, int64_t bytes) {
  return check(p, bytes, 0) == kBad ? poison : p;
}

void* check_store(char* p, int64_t bytes) {
  return check(p, bytes, 1) == kGood ? p : sink;
}

void check_memcpy(char* to, const char* from, int64_t bytes, int is_volatile) {
  (void)is_volatile;
  const enum Verdict read = check(from, bytes, 0), written = check(to, bytes, 1);
  if (written != kGood || bytes <= 0) return;
  if (read == kBad)
    memset(to, 0xFF, (size_t)bytes);
  else
    memmove(to, from, (size_t)bytes);
}

/* MLIR's unranked memref: data[0..2] = allocated, aligned, offset; then the sizes, then the strides. */
typedef struct {
  int64_t rank;
  int64_t* data;
} Unranked;

static void copy(int64_t element, int64_t rank, const int64_t* sizes, const int64_t* from_strides,
                 const int64_t* to_strides, const char* from, char* to) {
  if (rank == 0) {
    check_memcpy(to, from, element, 0);
    return;
  }
  if (rank == 1 && from_strides[0] == 1 && to_strides[0] == 1) {
    check_memcpy(to, from, sizes[0] * element, 0);
    return;
  }
  for (int64_t i = 0; i < sizes[0]; ++i)
    copy(element, rank - 1, sizes + 1, from_strides + 1, to_strides + 1, from + i * from_strides[0] * element,
         to + i * to_strides[0] * element);
}

void memrefCopy(int64_t element, const Unranked* from, const Unranked* to) {
  const int64_t rank = from->rank, *a = from->data, *b = to->data;
  copy(element, rank, a + 3, a + 3 + rank, b + 3 + rank, (const char*)a[1] + a[2] * element,
       (char*)b[1] + b[2] * element);
}

/* fp32 to bf16, nearest even; LLVM calls it by this name and takes the result from a vector register. */
float __truncsfbf2(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const int is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  uint32_t rounded = is_nan ? (bits >> 16) | 0x40u : (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  rounded &= 0xFFFFu;
  float out;
  memcpy(&out, &rounded, sizeof out);
  return out;
}
