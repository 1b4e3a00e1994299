/* binmoe for C and ctypes: plain structs, integer codes, the last error's text. The operations, their arguments, errors
 * and costs are those of binmoe/operations.h. Strings belong to the library; arrays to the caller. Thread-safe. */
#ifndef BINMOE_BINMOE_C_H
#define BINMOE_BINMOE_C_H

#include <stddef.h>
#include <stdint.h>

#define BINMOE_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Codes. The text of the last error of this thread: binmoe_last_error(). */
enum {
  BINMOE_OK = 0,
  BINMOE_INVALID_ARGUMENT = 1, /* sizes, shapes, dtypes, overlap, null pointers */
  BINMOE_INVALID_DATA = 2,     /* what the arrays hold: binmoe_last_fault() */
  BINMOE_UNSUPPORTED = 3,      /* an unknown or unsupported backend or option */
  BINMOE_OUT_OF_MEMORY = 4,
  BINMOE_INTERNAL = 5, /* a bug of ours, e.g. a fault that a model found in its kernels */
  BINMOE_DEVICE = 6    /* a call of the device's driver failed */
};

/* dtype of rows and weights */
enum { BINMOE_F32 = 0, BINMOE_F64 = 1, BINMOE_BF16 = 2, BINMOE_F16 = 3, BINMOE_BYTES = 4 };
/* type of expert_ids */
enum { BINMOE_I8 = 0, BINMOE_U8 = 1, BINMOE_I16 = 2, BINMOE_U16 = 3, BINMOE_I32 = 4, BINMOE_I64 = 5 };
/* where arrays are */
enum { BINMOE_HOST = 0, BINMOE_CUDA = 1 };
/* drop policy */
enum { BINMOE_TOKEN_ORDER = 0, BINMOE_CHOICE_ORDER = 1, BINMOE_BY_WEIGHT = 2 };

/* rows x cols elements; stride in elements; element_bytes for BINMOE_BYTES only. Null pointer = absent. */
typedef struct {
  void* data;
  int64_t rows, cols, stride;
  int32_t dtype, element_bytes;
} binmoe_rows;

/* [tokens * top_k] weights, weight gradients or expert ids; type is a dtype or an id type. */
typedef struct {
  void* data;
  int64_t count;
  int32_t type;
} binmoe_array;

typedef struct {
  int64_t tokens;
  int32_t top_k, num_experts, expert_capacity;
} binmoe_sizes;

/* Six arrays of the caller: tokens * top_k entries in the first three, num_experts in the others. status: null, or
 * three values about ids out of range that a device backend took as masked: how many, the first one's position, its
 * value. */
typedef struct {
  binmoe_sizes sizes;
  int32_t *indices, *bin_ids, *row_of_assignment;
  int32_t *bins, *tokens_per_expert, *kept_per_expert;
  int64_t* status;
} binmoe_plan_arrays;

/* Sorted bins from elsewhere; bin_ids may be null. */
typedef struct {
  const int32_t *indices, *bin_ids;
  int64_t count;
  const int32_t* bins;
  int64_t num_experts;
} binmoe_bins;

/* check is null when there is no fault. */
typedef struct {
  const char* check;
  int64_t position, value, limit;
} binmoe_fault;

/* How a call runs. A null pointer, or nulls inside, take the defaults. parallel_for, when given, replaces the thread
 * pool: call body(argument, i) for every i in [0, chunks) and return when all are done; concurrency >= 1. memory and
 * stream: binmoe/context.h. */
typedef struct {
  const char* backend; /* by name */
  const char* options; /* "key=value,key=value" of the backend */
  void* workspace;
  size_t workspace_bytes;
  void (*parallel_for)(void* state, int64_t chunks, void (*body)(void* argument, int64_t chunk), void* argument);
  void* parallel_state;
  int32_t concurrency;
  int32_t memory; /* BINMOE_HOST: the arrays are on the host */
  void* stream;   /* a cudaStream_t of the current device, or null */
} binmoe_context;

/* Ascend tile plans, as binmoe/ascend.h has them. */
enum { BINMOE_ASCENDC = 0, BINMOE_TRITON = 1 }; /* family */
enum {
  BINMOE_INDEXED_LOAD = 0,
  BINMOE_ELEMENT_INSERT = 1,
  BINMOE_INDEX_SELECT = 2,
  BINMOE_ROW_COPY_BY_ESTIMATE = -1
}; /* row_copy: of a Triton gather in expert order, else not used */
enum { BINMOE_OP_PLAN = 0, BINMOE_OP_GATHER, BINMOE_OP_SCATTER, BINMOE_OP_WGRAD, BINMOE_OP_SCATTER_BACKWARD };
/* By the estimate: of Ascend C. The Triton family takes it for token order. */
enum { BINMOE_ORDER_BY_ESTIMATE = -1, BINMOE_ORDER_TOKEN = 0, BINMOE_ORDER_EXPERT = 1 }; /* of a gather */
enum { BINMOE_NO_WEIGHTS = -1, BINMOE_MAX_TILE_BUFFERS = 32 };

typedef struct {
  const char* soc; /* "910B3" or "Ascend910B3" */
  int32_t family, row_copy, op, order;
  int32_t rows, weights, dw, policy; /* dtypes (weights also BINMOE_NO_WEIGHTS); the drop policy of a plan */
  int64_t tokens, hidden_size, expert_capacity;
  int32_t num_experts, top_k;
} binmoe_tile_request;

/* count buffers of `bytes` bytes in the Unified Buffer (UB). */
typedef struct {
  char name[64];
  int64_t bytes;
  int32_t count;
} binmoe_tile_buffer;

typedef struct {
  int32_t order, row_copy, num_programs; /* row_copy: BINMOE_ROW_COPY_BY_ESTIMATE where there is none */
  int64_t items, items_per_block, sub_block_size, block_x;
  int64_t ub_bytes, ub_limit_bytes;
  double estimate_us; /* from bytes and published figures; not a measurement */
  int32_t num_buffers;
  binmoe_tile_buffer buffers[BINMOE_MAX_TILE_BUFFERS];
} binmoe_tile;

BINMOE_EXPORT const char* binmoe_version(void);
/* Of this thread's last call that failed; "" and a null check before the first. */
BINMOE_EXPORT const char* binmoe_last_error(void);
BINMOE_EXPORT binmoe_fault binmoe_last_fault(void);

/* The backend table. index in [0, count); unsupported is null when it runs here, else the reason. */
BINMOE_EXPORT int32_t binmoe_backend_count(void);
BINMOE_EXPORT const char* binmoe_backend_name(int32_t index);
BINMOE_EXPORT const char* binmoe_backend_unsupported(int32_t index);

BINMOE_EXPORT int32_t binmoe_plan(const binmoe_array* expert_ids, int32_t policy, const binmoe_array* priority,
                                  const binmoe_plan_arrays* out, const binmoe_context* context);
BINMOE_EXPORT int32_t binmoe_plan_from_bins(const binmoe_bins* bins, const binmoe_plan_arrays* out,
                                            const binmoe_context* context);
BINMOE_EXPORT int32_t binmoe_plan_workspace_bytes(const binmoe_sizes* sizes, int32_t policy, int32_t priority_dtype,
                                                  const binmoe_context* context, size_t* bytes);
/* BINMOE_OK: valid. BINMOE_INVALID_DATA: *fault (when not null) is the first fault. */
BINMOE_EXPORT int32_t binmoe_check(const binmoe_plan_arrays* plan, const binmoe_context* context, binmoe_fault* fault);
BINMOE_EXPORT int32_t binmoe_check_bins(const binmoe_bins* bins, const binmoe_sizes* sizes,
                                        const binmoe_context* context, binmoe_fault* fault);
BINMOE_EXPORT int32_t binmoe_gather(const binmoe_plan_arrays* plan, const binmoe_rows* x, const binmoe_array* weights,
                                    const binmoe_rows* y, const binmoe_context* context);
BINMOE_EXPORT int32_t binmoe_scatter(const binmoe_plan_arrays* plan, const binmoe_rows* y, const binmoe_array* weights,
                                     const binmoe_rows* out, const binmoe_context* context);
BINMOE_EXPORT int32_t binmoe_wgrad(const binmoe_plan_arrays* plan, const binmoe_rows* y, const binmoe_rows* grad,
                                   const binmoe_array* dw, const binmoe_context* context);
BINMOE_EXPORT int32_t binmoe_scatter_backward(const binmoe_plan_arrays* plan, const binmoe_rows* y,
                                              const binmoe_rows* grad, const binmoe_array* weights,
                                              const binmoe_rows* dy, const binmoe_array* dw,
                                              const binmoe_context* context);
BINMOE_EXPORT int32_t binmoe_gather_backward(const binmoe_plan_arrays* plan, const binmoe_rows* dy,
                                             const binmoe_array* weights, const binmoe_rows* x, const binmoe_rows* dx,
                                             const binmoe_array* dw, const binmoe_context* context);
BINMOE_EXPORT int32_t binmoe_expert_capacity(double factor, int64_t tokens, int32_t top_k, int32_t num_experts,
                                             int32_t multiple, int32_t* capacity);

/* The tile plan of a kernel, the numbers of `binmoe tile`. */
BINMOE_EXPORT int32_t binmoe_tile_plan(const binmoe_tile_request* request, binmoe_tile* out);

#ifdef __cplusplus
}
#endif

#endif
