// What one row needs, compiled once for each instruction set. No templates of the standard library here or in
// row_kernels.cc: the linker might keep the copy that needs AVX-512.
#pragma once

#include <stdint.h>

namespace binmoe::cpu {

/// Rows that are added up, and what to fetch meanwhile.
struct SumSources {
  const char* const* rows;  // [count]
  const void* weights;      // [count] float (f64 rows: double), or null
  int64_t count;
  const char* const* next;  // [next_count] rows that the next call will read
  int64_t next_count;
  // A sum over more rows than one call takes: where it stands before and after, as steps of the kernel. Null: from +0,
  // and to dst.
  const void* before;
  void* after;
};

/// One sum of rows: dst = sum of weights[i] * rows[i], i rising, from +0, rounded once.
/// stream: store around the cache where the address allows.
using SumRows = void (*)(char* dst, const SumSources& sources, int64_t cols, bool stream);

using CopyRow = void (*)(char* dst, const char* src, int64_t bytes, bool stream);

/// dst = weight * src, rounded once.
using ScaleRow = void (*)(char* dst, const char* src, int64_t cols, double weight, bool stream);

/// dot(y, grad) in f32 (f64 rows: f64). Column c is added to lane c % 32 (f64: 16) of the sum; the lanes are added
/// pairwise, lane i to lane i + n/2. bf16 rows: even columns are lanes 0..15, odd ones 16..31.
/// next: the row that the next call will read, fetched meanwhile; may be null.
using DotRows = double (*)(const char* y, const char* grad, int64_t cols, const char* next);

/// The same dot, and dst = weight * grad (or a copy of grad) in the same pass.
using DotAndScale = double (*)(char* dst, const char* y, const char* grad, int64_t cols, const double* weight,
                               const char* next, bool stream);

struct RowKernels {
  CopyRow copy;
  void (*zero)(char* dst, int64_t bytes, bool stream);
  void (*flush)();  // makes this thread's streaming stores visible to others
  // By DType: f32, f64, bf16, f16.
  ScaleRow scale[4];
  SumRows sum[4];
  DotRows dot[4];
  DotAndScale dot_and_scale[4];
};

/// One for each object that src/cpu/CMakeLists.txt builds.
extern const RowKernels kRowKernels_x86_64_v2;
extern const RowKernels kRowKernels_x86_64_v3;
extern const RowKernels kRowKernels_x86_64_v4;
extern const RowKernels kRowKernels_neon;

}  // namespace binmoe::cpu
