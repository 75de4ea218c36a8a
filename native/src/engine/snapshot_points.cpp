#include "engine/snapshot_points.h"

#include <algorithm>

#include "device/device.h"

namespace aima::engine {

std::vector<std::int64_t> snapshot_points(const PromptShape& prompt) {
  const auto last_block = [](std::int64_t offset) {
    return offset / device::block_tokens * device::block_tokens;
  };
  const std::int64_t most = last_block(prompt.tokens - 1);
  std::vector<std::int64_t> points;
  const auto add = [&](std::int64_t offset) {
    const std::int64_t point = std::min(last_block(offset), most);
    if (point <= prompt.start || std::ranges::find(points, point) != points.end()) return false;
    points.push_back(point);
    return true;
  };
  add(prompt.generation.value_or(prompt.tokens));
  add(prompt.shared);
  std::size_t taken = 0;
  const auto first = std::ranges::find_if(prompt.boundaries, [](std::int64_t offset) { return offset > 0; });
  if (first != prompt.boundaries.end() && add(*first)) ++taken;
  std::int64_t next = prompt.generation.value_or(prompt.tokens);
  for (std::size_t i = prompt.boundaries.size(); i-- > 0 && taken < most_boundaries;) {
    if (prompt.boundaries[i] + boundary_spacing > next) continue;
    next = prompt.boundaries[i];
    if (add(next)) ++taken;
  }
  std::ranges::sort(points);
  return points;
}

}  // namespace aima::engine
