// Mutations: one call site of the kernels, told to do less than it says.
#pragma once

#include <cstdint>
#include <string>

namespace binmoe::vector_core {

enum class Kind : uint8_t { set_flag, wait_flag, enque, deque, free_tensor, pipe_barrier, bound };

/// skip: the call does nothing. edge: the call and its balance stay, its ordering is dropped (a barrier has no balance:
/// the same as skip). unbound: BINMOE_BOUND yields its second argument.
enum class Mode : uint8_t { skip, edge, unbound };

/// Two calls of one kind on one line are one site.
struct Site {
  std::string file;
  int line = 0;
  bool operator==(const Site&) const = default;
};

struct Mutation {
  Kind kind = Kind::set_flag;
  Site site;
  Mode mode = Mode::skip;
};

struct SiteHits {
  Kind kind = Kind::set_flag;
  Site site;
  int64_t hits = 0;
};

}  // namespace binmoe::vector_core
