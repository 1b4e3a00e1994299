// What the tests of the tile plans share: requests, sizes, and what holds of every plan.
#pragma once

#include <gtest/gtest.h>

#include "ascend/tiling/buffers.h"
#include "mover_problem.h"

namespace test {

using ascend::Family;
using ascend::Op;
using ascend::Order;
using ascend::RowCopy;
using ascend::Soc;
using ascend::TileBuffer;
using ascend::TilePlan;
using ascend::TileRequest;

constexpr int64_t kKib = 1024;
constexpr int64_t kHidden[] = {1,     2,     3,     7,     15,    16,    17,    31,   33,   46,   63,
                               64,    65,    127,   128,   255,   256,   257,   511,  512,  513,  768,
                               1000,  1024,  2047,  2048,  2880,  4096,  5120,  7168, 7169, 8192, 9999,
                               12288, 16319, 16320, 16321, 20001, 32768, 32769, 40000};

inline std::string describe(const TileRequest& r) {
  return std::string(r.soc->name) + " " + name_of(r.family) + " " + name_of(r.op) +
         (r.order ? std::string(" ") + name_of(*r.order) : "") + " rows " + binmoe::name_of(r.rows) + " weights " +
         (r.weights ? binmoe::name_of(*r.weights) : "none") + " dw " + binmoe::name_of(r.dw) +
         " T=" + std::to_string(r.tokens) + " H=" + std::to_string(r.hidden_size) +
         " E=" + std::to_string(r.num_experts) + " K=" + std::to_string(r.top_k) +
         " C=" + std::to_string(r.expert_capacity);
}

inline TileRequest request_for(Mover mover) {
  TileRequest r;
  r.soc = &ascend::find_soc("910B3");
  r.op = op_of(mover);
  if (mover == Mover::gather_by_token) r.order = Order::token;
  if (mover == Mover::gather_by_expert) r.order = Order::expert;
  r.tokens = 1000;
  r.hidden_size = 4096;
  r.num_experts = 64;
  r.top_k = 4;
  r.expert_capacity = 100;
  return r;
}

inline int64_t sum_of(const std::vector<TileBuffer>& buffers) {
  int64_t sum = 0;
  for (const TileBuffer& buffer : buffers) sum += ascend::round_up(buffer.bytes, 32) * buffer.count;
  return sum;
}

inline void check_budget(const TilePlan& plan) {
  EXPECT_EQ(plan.ub_bytes, sum_of(plan.buffers));
  EXPECT_LE(plan.ub_bytes, plan.ub_limit_bytes);
  EXPECT_FALSE(plan.buffers.empty());
  int32_t count = 0;
  for (const TileBuffer& buffer : plan.buffers) {
    EXPECT_EQ(buffer.bytes % 32, 0) << buffer.name;
    EXPECT_GT(buffer.bytes, 0) << buffer.name;
    EXPECT_GE(buffer.count, 1) << buffer.name;
    EXPECT_FALSE(buffer.name.empty());
    count += buffer.count;
  }
  EXPECT_LE(count, 64);  // of a TPipe
}

/// "... wants at least 266240 bytes of UB, but 910B3 has 188160": the first number is above the second.
inline void check_refusal(const TileRequest& r, const Error& error, int64_t limit) {
  const std::string text = error.what(), wants = "wants at least ";
  const size_t at = text.find(wants);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_GT(std::stoll(text.substr(at + wants.size())), limit) << text;
  EXPECT_NE(text.find(std::string(r.soc->name) + " has " + std::to_string(limit)), std::string::npos) << text;
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
}

}  // namespace test
