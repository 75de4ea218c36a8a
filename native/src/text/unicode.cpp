#include "text/unicode.h"

#include <algorithm>
#include <map>

namespace aima::text {

const ClassTable& ClassTable::get() {
  static const ClassTable table;
  return table;
}

ClassTable::ClassTable() {
  std::map<Block, std::uint16_t> known;
  std::size_t range = 0;
  for (std::uint32_t number = 0; number < index_.size(); ++number) {
    const std::uint32_t start = number << 8, end = start + 255;
    Block block{};
    while (range < kClassRangeCount && kClassRanges[range].first <= end) {
      const ClassRange& r = kClassRanges[range];
      const std::uint32_t from = std::max(r.first, start), to = std::min(r.last, end);
      std::fill(block.begin() + (from - start), block.begin() + (to - start) + 1,
                static_cast<std::uint8_t>(r.classes));
      if (r.last > end) break;  // the range goes on in the next block
      ++range;
    }
    const auto [place, fresh] = known.try_emplace(block, static_cast<std::uint16_t>(blocks_.size()));
    if (fresh) blocks_.push_back(block);
    index_[number] = place->second;
  }
}

}  // namespace aima::text
