/* binmoe_c.h from plain C11, over the shared library: every function once, every code, the texts and the faults. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "binmoe/binmoe_c.h"

static int failures = 0;

static void expect(int good, const char* what, int line) {
  if (good) return;
  ++failures;
  printf("c_api_test.c:%d: %s; last error: %s\n", line, what, binmoe_last_error());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

/* 3 tokens, 2 choices, 3 experts, capacity 2: the case uneven_drops of tests/data/vectors.json. */
enum { kTokens = 3, kTopK = 2, kExperts = 3, kCapacity = 2, kHidden = 2, kCount = 6, kRows = 6 };
static int64_t ids[kCount] = {2, 0, 0, 2, 2, 1};
static float weights[kCount] = {0.5f, 0.25f, 0.125f, 1.0f, 2.0f, 4.0f};
static float x[kTokens * kHidden] = {1, 10, 2, 20, 3, 30};
static float grad[kTokens * kHidden] = {1, 0, 0, 1, 1, 1};
static float gathered[kRows * kHidden] = {1, 10, 2, 20, 3, 30, 0, 0, 1, 10, 2, 20};

static int32_t indices[kCount], bin_ids[kCount], row_of_assignment[kCount];
static int32_t bins[kExperts], tokens_per_expert[kExperts], kept_per_expert[kExperts];
static const binmoe_sizes sizes = {kTokens, kTopK, kExperts, kCapacity};
static const binmoe_plan_arrays plan = {{kTokens, kTopK, kExperts, kCapacity},
                                        indices,
                                        bin_ids,
                                        row_of_assignment,
                                        bins,
                                        tokens_per_expert,
                                        kept_per_expert,
                                        NULL};

static binmoe_rows rows_of(float* data, int64_t rows) {
  const binmoe_rows out = {data, rows, kHidden, kHidden, BINMOE_F32, 0};
  return out;
}

static int same_floats(const float* got, const float* expected, size_t count) {
  return memcmp(got, expected, count * sizeof(float)) == 0;
}

static int same_ints(const int32_t* got, const int32_t* expected, size_t count) {
  return memcmp(got, expected, count * sizeof(int32_t)) == 0;
}

static void test_backends(void) {
  EXPECT(strcmp(binmoe_version(), BINMOE_TEST_VERSION) == 0);
  EXPECT(binmoe_backend_count() == 4);
  EXPECT(strcmp(binmoe_backend_name(0), "cuda") == 0);
  EXPECT(strcmp(binmoe_backend_name(1), "cpu") == 0);
  EXPECT(strcmp(binmoe_backend_name(2), "reference") == 0);
  EXPECT(binmoe_backend_unsupported(2) == NULL);
  EXPECT(strcmp(binmoe_backend_name(3), "ascend-model") == 0);
  EXPECT(binmoe_backend_name(4) == NULL && binmoe_backend_name(-1) == NULL);
  EXPECT(binmoe_backend_unsupported(4) != NULL);
}

static void test_plan(const binmoe_context* context) {
  const int32_t expected_indices[kCount] = {1, 2, 5, 0, 3, 4}, expected_rows[kCount] = {4, 0, 1, 5, -1, 2};
  const int32_t expected_bins[kExperts] = {2, 3, 6}, expected_kept[kExperts] = {2, 1, 2};
  const binmoe_array expert_ids = {ids, kCount, BINMOE_I64};
  const binmoe_array priority = {weights, kCount, BINMOE_F32};
  size_t bytes = 0;
  EXPECT(binmoe_plan(&expert_ids, BINMOE_BY_WEIGHT, &priority, &plan, context) == BINMOE_OK);
  EXPECT(row_of_assignment[4] == 4); /* the heaviest of expert 2 */
  EXPECT(binmoe_plan(&expert_ids, BINMOE_TOKEN_ORDER, NULL, &plan, context) == BINMOE_OK);
  EXPECT(same_ints(indices, expected_indices, kCount) && same_ints(row_of_assignment, expected_rows, kCount));
  EXPECT(same_ints(bins, expected_bins, kExperts) && same_ints(kept_per_expert, expected_kept, kExperts));
  EXPECT(binmoe_plan_workspace_bytes(&sizes, BINMOE_BY_WEIGHT, BINMOE_F32, context, &bytes) == BINMOE_OK);
  EXPECT(binmoe_check(&plan, NULL, NULL) == BINMOE_OK);

  int32_t given_indices[kCount] = {2, 1, 5, 4, 0, 3};
  const int32_t other_rows[kCount] = {5, 1, 0, -1, 4, 2};
  const binmoe_bins given = {given_indices, NULL, kCount, expected_bins, kExperts};
  EXPECT(binmoe_check_bins(&given, &sizes, NULL, NULL) == BINMOE_OK);
  EXPECT(binmoe_plan_from_bins(&given, &plan, context) == BINMOE_OK);
  EXPECT(same_ints(row_of_assignment, other_rows, kCount));
  EXPECT(binmoe_plan(&expert_ids, BINMOE_TOKEN_ORDER, NULL, &plan, context) == BINMOE_OK);
}

static void test_movers(const binmoe_context* context) {
  const float expected_out[] = {0.75f, 7.5f, 2.25f, 22.5f, 12, 120}, expected_dw[] = {1, 1, 20, 20, 0, 33};
  const float expected_weighted[] = {0.25f, 2.5f, 0.25f, 2.5f, 12, 120, 0, 0, 0.5f, 5, 2, 20};
  float y[kRows * kHidden], out[kTokens * kHidden], dw[kCount];
  const binmoe_rows x_view = rows_of(x, kTokens), y_view = rows_of(y, kRows), grad_view = rows_of(grad, kTokens);
  const binmoe_rows given = rows_of(gathered, kRows), out_view = rows_of(out, kTokens);
  const binmoe_array w = {weights, kCount, BINMOE_F32}, dw_view = {dw, kCount, BINMOE_F32};
  EXPECT(binmoe_gather(&plan, &x_view, NULL, &y_view, context) == BINMOE_OK);
  EXPECT(same_floats(y, gathered, kRows * kHidden));
  EXPECT(binmoe_gather(&plan, &x_view, &w, &y_view, context) == BINMOE_OK);
  EXPECT(same_floats(y, expected_weighted, kRows * kHidden));
  EXPECT(binmoe_scatter(&plan, &given, &w, &out_view, context) == BINMOE_OK);
  EXPECT(same_floats(out, expected_out, kTokens * kHidden));
  EXPECT(binmoe_wgrad(&plan, &given, &grad_view, &dw_view, context) == BINMOE_OK);
  EXPECT(same_floats(dw, expected_dw, kCount));
  memset(dw, 255, sizeof dw);
  EXPECT(binmoe_scatter_backward(&plan, &given, &grad_view, &w, &y_view, &dw_view, context) == BINMOE_OK);
  EXPECT(same_floats(dw, expected_dw, kCount));
  EXPECT(y[0] == 0.25f && y[1] == 0.0f && y[6] == 0.0f);
  EXPECT(binmoe_scatter_backward(&plan, NULL, &grad_view, NULL, &y_view, NULL, context) == BINMOE_OK);
  EXPECT(y[0] == 1.0f && y[5] == 1.0f);
  memset(dw, 255, sizeof dw);
  EXPECT(binmoe_gather_backward(&plan, &given, &w, &grad_view, &out_view, &dw_view, context) == BINMOE_OK);
  EXPECT(same_floats(out, expected_out, kTokens * kHidden) && same_floats(dw, expected_dw, kCount));
}

static void test_errors(void) {
  binmoe_fault fault;
  int64_t bad_ids[kCount] = {0, 1, 2, 3, 0, 0};
  const binmoe_array bad = {bad_ids, kCount, BINMOE_I64}, good = {ids, kCount, BINMOE_I64};
  const binmoe_array strange = {ids, kCount, 17};
  EXPECT(binmoe_plan(&bad, BINMOE_TOKEN_ORDER, NULL, &plan, NULL) == BINMOE_INVALID_DATA);
  EXPECT(strstr(binmoe_last_error(), "[plan] expert_ids[3] is 3, but must be in [-1, 3)") != NULL);
  fault = binmoe_last_fault();
  EXPECT(fault.check != NULL && strcmp(fault.check, "expert_id_range") == 0);
  EXPECT(fault.position == 3 && fault.value == 3 && fault.limit == 3);

  EXPECT(binmoe_plan(NULL, BINMOE_TOKEN_ORDER, NULL, &plan, NULL) == BINMOE_INVALID_ARGUMENT);
  EXPECT(strstr(binmoe_last_error(), "expert_ids is null") != NULL);
  EXPECT(binmoe_last_fault().check == NULL);
  EXPECT(binmoe_plan(&good, 3, NULL, &plan, NULL) == BINMOE_INVALID_ARGUMENT);
  EXPECT(strstr(binmoe_last_error(), "3 is no drop policy") != NULL);
  EXPECT(binmoe_plan(&strange, 0, NULL, &plan, NULL) == BINMOE_INVALID_ARGUMENT);
  EXPECT(strstr(binmoe_last_error(), "17 is no id type") != NULL);
  EXPECT(binmoe_plan(&good, 0, NULL, NULL, NULL) == BINMOE_INVALID_ARGUMENT);
  EXPECT(strstr(binmoe_last_error(), "the plan is null") != NULL);
  binmoe_rows wrong = rows_of(x, kTokens);
  wrong.dtype = -1;
  EXPECT(binmoe_gather(&plan, &wrong, NULL, &wrong, NULL) == BINMOE_INVALID_ARGUMENT);
  EXPECT(strstr(binmoe_last_error(), "-1 is no dtype") != NULL);

  binmoe_context context = {0};
  context.backend = "nonsense";
  EXPECT(binmoe_plan(&good, 0, NULL, &plan, &context) == BINMOE_UNSUPPORTED);
  EXPECT(strstr(binmoe_last_error(), "'nonsense'; there are: cuda, cpu, reference") != NULL);

  EXPECT(binmoe_plan(&good, 0, NULL, &plan, NULL) == BINMOE_OK);
  row_of_assignment[4] = 0;
  EXPECT(binmoe_check(&plan, NULL, &fault) == BINMOE_INVALID_DATA);
  EXPECT(fault.check != NULL && strcmp(fault.check, "row_of_assignment") == 0 && fault.position == 4);
  row_of_assignment[4] = -1;
  EXPECT(binmoe_check(&plan, NULL, &fault) == BINMOE_OK && fault.check == NULL);
  const binmoe_bins given = {indices, bin_ids, kCount - 1, bins, kExperts};
  EXPECT(binmoe_check_bins(&given, &sizes, NULL, &fault) == BINMOE_INVALID_DATA);
  EXPECT(fault.check != NULL && strcmp(fault.check, "bins_end") == 0 && fault.value == 6 && fault.limit == 5);
}

static void test_capacity(void) {
  int32_t capacity = -1;
  EXPECT(binmoe_expert_capacity(1.1, 10, 1, 1, 1, &capacity) == BINMOE_OK && capacity == 11);
  EXPECT(binmoe_expert_capacity(NAN, 10, 1, 1, 1, &capacity) == BINMOE_INVALID_ARGUMENT && capacity == 11);
  EXPECT(binmoe_expert_capacity(1.1, 10, 1, 1, 1, NULL) == BINMOE_INVALID_ARGUMENT);
}

static int foreign_calls = 0;
static void run_backwards(void* state, int64_t chunks, void (*body)(void*, int64_t), void* argument) {
  ++*(int*)state;
  while (chunks-- > 0) body(argument, chunks);
}

int main(void) {
  EXPECT(strcmp(binmoe_last_error(), "") == 0);
  test_backends();
  for (int32_t i = 0; i < binmoe_backend_count(); ++i) {
    if (binmoe_backend_unsupported(i) != NULL) continue;
    binmoe_context context = {0};
    context.backend = binmoe_backend_name(i);
    context.parallel_for = run_backwards;
    context.parallel_state = &foreign_calls;
    context.concurrency = 3;
    test_plan(&context);
    test_movers(&context);
  }
  test_plan(NULL);
  test_movers(NULL);
  test_errors();
  test_capacity();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
