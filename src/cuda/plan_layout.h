// How a plan is sorted: the way, digits, tiles and the workspace, from sizes alone. The sort is a stable radix sort,
// least digit first. Up to kMaxBins experts are one digit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "binmoe/types.h"

namespace binmoe::cuda {

/// One pass of the sort.
struct PlanDigit {
  int shift;
  int bins;
  uint32_t mask;
};

enum class PlanWay : uint8_t {
  one_launch,  // few assignments: every block looks at all of them
  by_digits,   // by_weight: the digits of the sort key, then those of the expert
  by_segments  // by_weight: by expert, then every tile of that order by key, then a search in the expert's other tiles
};

struct PlanLayout {
  static constexpr int kMaxBins = 1024;
  static constexpr int kExpertBits = 10;  // of a digit, when there are more experts than kMaxBins
  static constexpr int kLevelBits = 5;    // experts counted together on the next level: ExpertCounts
  static constexpr int kKeyBits = 8;
  /// Every block sums the histograms of all tiles.
  static constexpr int kMaxTiles = 128;
  /// Up to here every block counts all ids itself, which saves a launch.
  static constexpr int64_t kOneLaunchCount = 2048;
  static constexpr int64_t kOneLaunchCountByWeight = 1024;
  static constexpr int kOneLaunchThreads = 256;
  /// Above this, digits: what the searches cost grows with the square of an expert's assignments.
  static constexpr int64_t kSegmentsCount = 131072;
  static constexpr size_t kAlignment = 256;

  int64_t count;  // T*K
  int64_t num_experts;
  bool by_weight;
  size_t key_bytes;  // in the workspace
  int key_bits;
  PlanWay way;
  int threads, items, log2_tile, tiles;
  int counted_items;     // of a thread that counts
  int log2_sorted_tile;  // by_segments
  int key_digits = 0, num_digits = 0;
  std::array<PlanDigit, 12> digits = {};

  PlanLayout(const Sizes& sizes, DropPolicy policy, DType priority)
      : count(sizes.assignments()),
        num_experts(sizes.num_experts),
        by_weight(policy == DropPolicy::by_weight),
        key_bytes(by_weight && priority == DType::f64 ? 8 : 4),
        key_bits(by_weight ? static_cast<int>(size_of(priority)) * 8 : 0) {
    const bool narrow = num_experts <= kMaxBins;
    way = narrow && count <= (by_weight ? kOneLaunchCountByWeight : kOneLaunchCount) ? PlanWay::one_launch
          : narrow && by_weight && count <= kSegmentsCount                           ? PlanWay::by_segments
                                                                                     : PlanWay::by_digits;
    if (way == PlanWay::by_digits)
      for (int shift = 0; shift < key_bits; shift += kKeyBits) add_digit(shift, 1 << kKeyBits);
    key_digits = num_digits;
    int shift = 0;
    for (; (num_experts - 1) >> shift >= kMaxBins; shift += kExpertBits) add_digit(shift, 1 << kExpertBits);
    digits[static_cast<size_t>(num_digits++)] = {shift, static_cast<int>(((num_experts - 1) >> shift) + 1), ~0u};

    threads = count <= 32768 ? 512 : 1024;
    items = count <= 131072 || by_weight || is_wide() ? 1 : 2;
    log2_tile = std::countr_zero(static_cast<unsigned>(threads * items));
    while ((count - 1) >> log2_tile >= kMaxTiles) ++log2_tile;
    tiles = static_cast<int>(std::max<int64_t>(1, tiles_of(log2_tile)));
    counted_items = count <= 65536 ? 1 : 4;
    log2_sorted_tile = count <= 32768 || key_bytes == 8 ? 9 : 10;
  }

  int64_t tiles_of(int log2_size) const { return (count + (int64_t{1} << log2_size) - 1) >> log2_size; }
  const PlanDigit& last_digit() const { return digits[static_cast<size_t>(num_digits - 1)]; }
  /// The last digit does not tell experts apart.
  bool is_wide() const { return last_digit().shift > 0; }
  int expert_levels() const { return last_digit().shift / kLevelBits; }
  int64_t expert_counts() const {
    int64_t counts = 0, size = num_experts;
    for (int level = 0; level < expert_levels(); ++level) counts += size, size = (size + 31) >> kLevelBits;
    return counts;
  }
  /// Words of a tile's histogram: the most of all passes.
  int64_t histogram_row() const {
    int bins = 0;
    for (int i = 0; i < num_digits; ++i) bins = std::max(bins, digits[static_cast<size_t>(i)].bins);
    return (bins + 3) / 4 * 4;
  }
  /// Passes read one, fill the next and clear the one after.
  int histograms() const { return std::min(num_digits, 3); }

 private:
  void add_digit(int shift, int bins) {
    digits[static_cast<size_t>(num_digits++)] = {shift, bins, static_cast<uint32_t>(bins - 1)};
  }
};

/// Where the workspace's parts begin: bytes from its first multiple of kAlignment.
struct PlanWorkspace {
  size_t tile_status;
  size_t histograms, histogram_bytes;  // PlanLayout::histograms() times
  size_t expert_counts;
  size_t values, value_bytes;  // twice
  size_t assignments;          // twice
  size_t bytes;

  explicit PlanWorkspace(const PlanLayout& layout) {
    size_t end = 0;
    const auto take = [&end](int64_t part_bytes) {
      const size_t begin = end;
      end += (static_cast<size_t>(part_bytes) + PlanLayout::kAlignment - 1) / PlanLayout::kAlignment *
             PlanLayout::kAlignment;
      return begin;
    };
    constexpr int64_t kWordBytes = 4, kStatusBytes = 8;
    const int64_t tiles = layout.way == PlanWay::one_launch ? 0 : layout.tiles;
    const int64_t pairs = layout.num_digits > 1 || layout.way == PlanWay::by_segments ? layout.count : 0;
    histogram_bytes = static_cast<size_t>(tiles * layout.histogram_row() * kWordBytes);
    value_bytes = static_cast<size_t>(pairs) * layout.key_bytes;
    tile_status = take(tiles * kStatusBytes);
    histograms = take(static_cast<int64_t>(histogram_bytes) * layout.histograms());
    expert_counts = take(layout.expert_counts() * kWordBytes);
    values = take(2 * static_cast<int64_t>(value_bytes));
    assignments = take(2 * pairs * kWordBytes);
    bytes = end == 0 ? 0 : end + PlanLayout::kAlignment - 1;  // the caller's workspace may start anywhere
  }
};

}  // namespace binmoe::cuda
