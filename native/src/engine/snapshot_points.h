/// Where a prompt's prefill stops to take a snapshot.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace aima::engine {

/// Boundaries closer than this to a later point get no snapshot of their own: a pass reads most of the
/// weights, however short it is.
inline constexpr std::int64_t boundary_spacing = 1024;

/// At most this many boundaries of one prompt get a snapshot.
inline constexpr std::size_t most_boundaries = 4;

struct PromptShape {
  std::int64_t tokens = 0;
  std::int64_t start = 0;                    ///< a multiple of 64: what the cache has given
  std::int64_t shared = 0;                   ///< a multiple of 64: tokens in common with some stored prompt
  std::span<const std::int64_t> boundaries;  ///< token offsets where messages begin, ascending
  std::optional<std::int64_t> generation;    ///< token offset of the generation prompt
};

/// Multiples of 64 above `start` and below `tokens`, ascending, each the last one before
/// - the generation prompt (or the prompt's last token, where there is none): the next turn's history goes on
///   from there, while the generation prompt itself may be written otherwise in history;
/// - the place where the prompt leaves a stored one: others may leave it there too;
/// - the first message boundary, behind the system prompt and the tools, and the latest others.
/// Ends of passes in between get snapshots too, since they cost no pass; they are not listed here.
std::vector<std::int64_t> snapshot_points(const PromptShape& prompt);

}  // namespace aima::engine
