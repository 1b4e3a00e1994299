// Plan: a stable radix sort of the assignments by expert (plan_layout.h). One kernel counts the bins of every tile,
// one kernel a digit places the items; a pass also counts the tiles of the next one, and the last one writes the plan.
#include <utility>

#include "cuda/device/plan_by_weight.cuh"
#include "cuda/device/plan_kernels.cuh"
#include "cuda/operations.h"
#include "cuda/plan_layout.h"

namespace binmoe::cuda {
namespace {

using namespace device;

static_assert(PlanLayout::kKeyBits == kKeyDigitBits);
static_assert(PlanLayout::kMaxBins == device::kMaxBins && PlanLayout::kMaxTiles == device::kMaxTiles);
static_assert(sizeof(TileStatus) == 8);

class Planner {
 public:
  Planner(const PlanJob& job, const Launcher& launcher)
      : job_(job),
        launcher_(launcher),
        layout_(job.out.sizes, job.policy, job.priority.type),
        parts_(layout_),
        base_(static_cast<char*>(launcher.workspace) +
              -reinterpret_cast<uintptr_t>(launcher.workspace) % PlanLayout::kAlignment) {}

  void run() const {
    if (!layout_.by_weight)
      layout_.way == PlanWay::one_launch ? count_and_place() : sort_ids();
    else
      layout_.key_bytes == 4 ? run_by_weight<uint32_t>() : run_by_weight<uint64_t>();
  }

 private:
  template <class T>
  T* part(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  uint32_t* histograms(int pass) const {
    return part<uint32_t>(parts_.histograms + static_cast<size_t>(pass % 3) * parts_.histogram_bytes);
  }
  template <class Value>
  Value* values(int pass) const {
    return part<Value>(parts_.values + (pass % 2 == 0 ? 0 : parts_.value_bytes));
  }
  uint32_t* assignments(int pass) const { return part<uint32_t>(parts_.assignments) + pass % 2 * layout_.count; }

  const PlanDigit& plan_digit(int pass) const { return layout_.digits[static_cast<size_t>(pass)]; }
  Digit digit(int pass) const { return {plan_digit(pass).shift, plan_digit(pass).mask}; }

  ExpertIds ids() const { return {job_.ids.data, job_.ids.type, job_.out.sizes.num_experts}; }

  VisitOrder order() const {
    const Sizes& s = job_.out.sizes;
    const bool by_choice = job_.policy == DropPolicy::choice_order && s.top_k > 1 && s.tokens > 1;
    return {static_cast<uint32_t>(layout_.count), by_choice, static_cast<uint32_t>(s.top_k),
            Divisor(by_choice ? static_cast<uint32_t>(s.tokens) : 1)};
  }

  Tiles tiles(int pass) const {
    return {static_cast<uint32_t>(layout_.count), layout_.tiles, layout_.log2_tile, plan_digit(pass).bins,
            histograms(pass)};
  }

  Zeroed histograms_to_clear(int pass) const {
    if (pass >= layout_.num_digits) return {nullptr, 0};
    return {histograms(pass), int64_t{layout_.tiles} * row_words(plan_digit(pass).bins)};
  }

  ExpertCounts expert_counts(bool wanted) const {
    return {part<uint32_t>(parts_.expert_counts), wanted ? layout_.expert_levels() : 0, job_.out.sizes.num_experts};
  }

  PlanOut plan_out() const {
    const PlanView& out = job_.out;
    return {.indices = out.indices,
            .bin_ids = out.bin_ids,
            .row_of_assignment = out.row_of_assignment,
            .bins = out.bins,
            .tokens_per_expert = out.tokens_per_expert,
            .kept_per_expert = out.kept_per_expert,
            .status = out.status,
            .of_tiles = part<TileStatus>(parts_.tile_status),
            .tiles = layout_.tiles,
            .num_experts = out.sizes.num_experts,
            .expert_capacity = out.sizes.expert_capacity,
            .ids = ids()};
  }

  IdSource id_source() const { return {ids(), order(), digit(0)}; }

  template <class Value>
  PairSource<Value> pairs_before(int pass) const {
    return {values<Value>(pass - 1), assignments(pass - 1), static_cast<uint32_t>(layout_.count), digit(pass)};
  }

  template <class In, class Out, bool kToExperts>
  PairSink<In, Out, kToExperts> pairs_after(int pass) const {
    const PlanDigit& next = plan_digit(pass + 1);
    return {values<Out>(pass),
            assignments(pass),
            job_.out.row_of_assignment,
            {histograms(pass + 1), row_words(next.bins), layout_.log2_tile, digit(pass + 1)},
            expert_counts(pass + 2 == layout_.num_digits),
            ids()};
  }

  int64_t blocks_for(int64_t per_block) const {
    return std::max<int64_t>(1, (layout_.count + per_block - 1) / per_block);
  }

  template <class Key>
  void run_by_weight() const {
    if (layout_.way == PlanWay::one_launch)
      count_and_rank<Key>();
    else if (layout_.way == PlanWay::by_segments)
      sort_segments<Key>();
    else
      sort_keys<Key>();
  }

  void count_and_place() const {
    constexpr int kThreads = PlanLayout::kOneLaunchThreads;
    const int bins = plan_digit(0).bins;
    const Tiles all = {static_cast<uint32_t>(layout_.count), 0, 0, bins, nullptr};
    launcher_.launch("count_and_place_kernel", count_and_place_kernel, blocks_for(kThreads), kThreads,
                     partition_shared_bytes(bins, kThreads), id_source(), PlanSink{plan_out()}, all);
  }

  template <class Key>
  void count_and_rank() const {
    launcher_.launch("count_and_rank_kernel", count_and_rank_kernel<Key>, blocks_for(kRankedPerBlock),
                     PlanLayout::kOneLaunchThreads, count_and_rank_shared_bytes<Key>(layout_.count), id_source(),
                     job_.priority.data, job_.priority.type, plan_out());
  }

  template <class Source>
  void count(const Source& source) const {
    const auto kernel = layout_.counted_items == 1 ? count_kernel<1, Source> : count_kernel<4, Source>;
    const int threads = std::min(kMaxThreads, (1 << layout_.log2_tile) / layout_.counted_items);
    const Zeroed expert_counts = {part<uint32_t>(parts_.expert_counts), layout_.expert_counts()};
    launcher_.launch("count_kernel", kernel, layout_.tiles, threads,
                     static_cast<size_t>(row_words(plan_digit(0).bins)) * sizeof(uint32_t), source, tiles(0),
                     histograms(0), part<TileStatus>(parts_.tile_status), histograms_to_clear(1), expert_counts);
  }

  /// kMostItems: 2 where plans of that kind may take two items a thread (PlanLayout::items).
  template <int kMostItems, class Source, class Sink>
  void partition(int pass, const Source& source, const Sink& sink) const {
    const auto kernel =
        layout_.items == 1 ? partition_kernel<1, Source, Sink> : partition_kernel<kMostItems, Source, Sink>;
    launcher_.launch("partition_kernel", kernel, layout_.tiles, layout_.threads,
                     partition_shared_bytes(plan_digit(pass).bins, layout_.threads), source, sink, tiles(pass),
                     histograms_to_clear(pass + 2));
  }

  void sort_ids() const {
    const IdSource source = id_source();
    count(source);
    if (layout_.num_digits == 1) return partition<2>(0, source, PlanSink{plan_out()});
    partition<1>(0, source, pairs_after<uint32_t, uint32_t, false>(0));
    place_experts(1);
  }

  template <class Key>
  void sort_keys() const {
    const PrioritySource<Key> source = {ids(), order(), job_.priority.data, job_.priority.type, digit(0)};
    count(source);
    partition<1>(0, source, pairs_after<Key, Key, false>(0));
    int pass = 1;
    for (; pass + 1 < layout_.key_digits; ++pass)
      partition<1>(pass, pairs_before<Key>(pass), pairs_after<Key, Key, false>(pass));
    partition<1>(pass, pairs_before<Key>(pass), pairs_after<Key, uint32_t, true>(pass));
    place_experts(pass + 1);
  }

  template <class Key>
  void sort_segments() const {
    // Small blocks spread an expert of many entries over more multiprocessors (docs/cuda.md).
    const int merge_threads = layout_.count <= 32768 ? 512 : 128;
    const IdSource source = id_source();
    const SegmentSink<Key> sink = {plan_out(), values<Key>(0), assignments(0), job_.priority.data, job_.priority.type};
    count(source);
    partition<1>(0, source, sink);
    const Segments<Key> segments = {values<Key>(0),   assignments(0),          values<Key>(1),
                                    assignments(1),   job_.out.bin_ids,        static_cast<uint32_t>(layout_.count),
                                    layout_.key_bits, layout_.log2_sorted_tile};
    const int threads = 1 << layout_.log2_sorted_tile;
    launcher_.launch("sort_tiles_kernel", sort_tiles_kernel<Key>, blocks_for(threads), threads,
                     tile_sort_shared_bytes<Key>(job_.out.sizes.num_experts, threads), segments);
    launcher_.launch("merge_tiles_kernel", merge_tiles_kernel<Key>, blocks_for(merge_threads), merge_threads, 0,
                     segments, plan_out());
  }

  /// The passes over experts, from pairs.
  void place_experts(int pass) const {
    for (; pass + 1 < layout_.num_digits; ++pass)
      partition<1>(pass, pairs_before<uint32_t>(pass), pairs_after<uint32_t, uint32_t, false>(pass));
    if (layout_.is_wide())
      partition<1>(pass, pairs_before<uint32_t>(pass), WidePlanSink{plan_out(), expert_counts(true)});
    else
      partition<1>(pass, pairs_before<uint32_t>(pass), PlanSink{plan_out()});
  }

  const PlanJob& job_;
  const Launcher& launcher_;
  const PlanLayout layout_;
  const PlanWorkspace parts_;
  char* const base_;
};

}  // namespace

size_t plan_workspace_bytes(const Sizes& sizes, DropPolicy policy, DType priority_type) {
  return PlanWorkspace(PlanLayout(sizes, policy, priority_type)).bytes;
}

void plan(const PlanJob& job, const Launcher& launcher) {
  Planner(job, launcher).run();
}

}  // namespace binmoe::cuda
