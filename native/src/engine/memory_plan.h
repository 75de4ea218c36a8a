/// What an engine will hold at its fullest, stated before it is taken, and whether it fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/memory.h"
#include "device/device.h"
#include "model/weights.h"

namespace aima::engine {

/// Bytes of the text model's tensors as the engine holds them, each once.
std::size_t weights_bytes(const model::Weights& weights);

/// Bytes. Peak RSS stays below `peak()`: experts that no token chose, and rows of the embedding that none
/// named, never come in from a mapped file.
struct MemoryPlan {
  std::int64_t capacity = 0;        ///< tokens
  std::int64_t context_tokens = 0;  ///< tokens
  std::size_t process = 0;          ///< held already: code, tokenizer, tables
  std::size_t weights = 0;
  std::size_t weights_mapped = 0;  ///< part of `weights` whose pages come in as they are used
  std::size_t state = 0;           ///< keys and values of `capacity` tokens, delta states, conv tails
  std::size_t workspace = 0;       ///< of passes of `context_tokens` tokens, logits and sampling included
  std::size_t cache = 0;           ///< the prefix cache's budget, and the snapshot that is being made

  std::size_t peak() const { return process + weights + state + workspace + cache; }
  /// What is still to be taken, under a limit that counts mapped files at once or not.
  std::size_t needed(bool mapped_is_taken) const {
    return (mapped_is_taken ? 0 : weights_mapped) + state + workspace + cache;
  }
};

struct MemoryRequest {
  std::size_t weights = 0;
  std::size_t weights_mapped = 0;
  std::int64_t vocab = 0;
  std::int64_t context_tokens = 0;
  std::size_t cache_bytes = 0;
  std::optional<std::int64_t> capacity;  ///< none: what fits
  std::int64_t most_capacity = 0;        ///< the model's positions
};

/// Chooses the capacity, if none is asked for: the largest multiple of 64 up to `most_capacity` that leaves a
/// tenth of each limit free. Throws base::Error with the figures, and what would fit, when the capacity asked
/// for exceeds a limit, or when not even 64 tokens fit.
MemoryPlan plan_memory(const device::Device& device, const MemoryRequest& request,
                       const base::ProcessMemory& process, std::span<const base::MemoryLimit> limits);

}  // namespace aima::engine
