// The shadow of UB against a plain one that knows every byte.
#include <random>

#include "model_support.h"

namespace test {
namespace {

struct PlainByte {
  uint32_t write = 0;
  Pipe writer = Pipe::scalar;
  SiteId write_site = 0;
  std::array<uint32_t, kPipes> read = {};
  std::array<SiteId, kPipes> read_site = {};
};

TEST(ModelShadow, segments_say_what_single_bytes_say) {
  constexpr uint32_t kBegin = 96, kEnd = 96 + 160;
  std::mt19937 random(5);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  Segments shadow;
  int64_t conflicts = 0, passes = 0;
  for (int round = 0; round < 200; ++round) {
    shadow.reset(kBegin, kEnd);
    std::vector<PlainByte> plain(kEnd);
    for (uint32_t step = 0; step < 200; ++step) {
      const uint32_t begin = kBegin + below(kEnd - kBegin);
      const uint32_t end = begin + 1 + below(std::min(kEnd - begin, 1 + below(100)));
      const auto pipe = static_cast<Pipe>(below(kPipes));
      const bool write = below(2) == 0;
      const SiteId site = static_cast<SiteId>(1 + below(3));
      const uint32_t counter = 1 + step / 8;
      Clock clock;
      for (uint32_t& c : clock) c = counter - std::min(counter, below(below(4) == 0 ? 20 : 2));

      bool expected = false;
      uint32_t first = 0;
      for (uint32_t b = begin; b < end && !expected; ++b) {
        expected = plain[b].write > clock[index_of(plain[b].writer)];
        if (write)
          for (size_t p = 0; p < kPipes; ++p) expected |= plain[b].read[p] > clock[p];
        first = b;
      }
      Conflict found = {};
      ASSERT_EQ(shadow.conflicts(begin, end, write, clock, &found), expected);
      if (expected) {
        ++conflicts;
        EXPECT_EQ(found.bytes.begin, first);
        const PlainByte& byte = plain[first];
        EXPECT_EQ(found.site, found.write ? byte.write_site : byte.read_site[index_of(found.pipe)]);
        continue;
      }
      ++passes;
      if (write) {
        shadow.write(begin, end, pipe, counter, site);
      } else {
        shadow.read(begin, end, pipe, counter, site);
      }
      for (uint32_t b = begin; b < end; ++b) {
        if (write) plain[b] = {counter, pipe, site, {}, {}};
        if (!write) plain[b].read[index_of(pipe)] = counter;
        if (!write) plain[b].read_site[index_of(pipe)] = site;
      }
      size_t runs = 1;
      for (uint32_t b = kBegin + 1; b < kEnd; ++b)
        runs += std::memcmp(&plain[b - 1], &plain[b], sizeof(PlainByte)) != 0;
      ASSERT_EQ(shadow.num_segments(), runs);  // neighbours that are equal are one segment
    }
  }
  EXPECT_GT(conflicts, 1000);
  EXPECT_GT(passes, 1000);
}

TEST(ModelShadow, pages_of_a_buffer_are_one_range) {
  constexpr uint32_t kPage = Shadow::kPageBytes, kBegin = 64;
  Shadow shadow;
  shadow.reset(kBegin, kBegin + 3 * kPage + 32);
  const Clock none = {};
  Conflict found = {};
  shadow.write(kBegin + kPage - 4, kBegin + 2 * kPage + 4, Pipe::vector, 1, 7);
  EXPECT_FALSE(shadow.conflicts(kBegin, kBegin + kPage - 4, false, none, &found));
  EXPECT_FALSE(shadow.conflicts(kBegin + 2 * kPage + 4, kBegin + 3 * kPage + 32, false, none, &found));
  for (const uint32_t byte : {kPage - 4, kPage - 1, kPage, 2 * kPage - 1, 2 * kPage, 2 * kPage + 3})
    EXPECT_TRUE(shadow.conflicts(kBegin + byte, kBegin + byte + 1, false, none, &found)) << byte;
  EXPECT_TRUE(shadow.conflicts(kBegin, kBegin + 3 * kPage + 32, false, none, &found));
  EXPECT_EQ(found.bytes, (ByteRange{kBegin + kPage - 4, kBegin + kPage}));
  shadow.reset(kBegin, kBegin + 3 * kPage + 32);
  shadow.read(kBegin, kBegin + 3 * kPage + 32, Pipe::mte3, 1, 7);
  EXPECT_FALSE(shadow.conflicts(kBegin, kBegin + 3 * kPage + 32, false, none, &found));
  EXPECT_TRUE(shadow.conflicts(kBegin + 3 * kPage, kBegin + 3 * kPage + 1, true, none, &found));
}

TEST(ModelShadow, defined_bytes_are_exact) {
  std::mt19937 random(6);
  DefinedBytes defined(512);
  std::vector<bool> plain(512, false);
  for (int step = 0; step < 5000; ++step) {
    const auto begin = static_cast<int64_t>(random() % 512), end = begin + static_cast<int64_t>(random() % 200);
    if (end > 512) continue;
    int64_t first = -1;
    for (int64_t b = end - 1; b >= begin; --b)
      if (!plain[static_cast<size_t>(b)]) first = b;
    ASSERT_EQ(defined.first_undefined(begin, end), first);
    const bool value = random() % 2 == 0;
    if (value)
      defined.set(begin, end);
    else
      defined.clear(begin, end);
    for (int64_t b = begin; b < end; ++b) plain[static_cast<size_t>(b)] = value;
  }
}

}  // namespace
}  // namespace test
