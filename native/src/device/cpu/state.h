/// Sequences and snapshots of the CPU device.
///
/// Keys and values lie in blocks of 64 tokens that states and snapshots share by reference. A block behind a
/// snapshot is never written again: a snapshot lies on a multiple of 64, and a state only writes from its
/// position on, into blocks that it has made itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/memory.h"
#include "device/device.h"
#include "model/config.h"

namespace aima::device::cpu {

/// Sizes of a state, from the model's.
struct StateLayout {
  StateLayout(const model::Config& config, Math math);

  std::int64_t delta_floats = 0;  ///< of one GDN layer: [value heads, key dim, value dim]
  std::int64_t tail_floats = 0;   ///< of one GDN layer: [3, conv channels]
  std::int64_t gdn_layers = 0;
  std::size_t kv_bytes = 0;  ///< keys (or values) of one attention layer in one block
  std::int64_t attention_layers = 0;

  std::size_t block_bytes() const { return 2 * kv_bytes * static_cast<std::size_t>(attention_layers); }
  std::int64_t recurrent_floats() const { return gdn_layers * (delta_floats + tail_floats); }
};

using KvBlock = Buffer<std::byte>;

class CpuState final : public State {
 public:
  CpuState(const StateLayout& layout, std::int64_t capacity);

  std::int64_t position() const override { return position_; }
  std::int64_t capacity() const override { return capacity_; }

  /// [value heads, key dim, value dim] of GDN layer number `gdn`, carried.
  float* delta(std::int64_t gdn);
  const float* delta(std::int64_t gdn) const { return const_cast<CpuState*>(this)->delta(gdn); }
  /// [3, conv channels]: the last inputs of the convolution, oldest first.
  float* tail(std::int64_t gdn);
  const float* tail(std::int64_t gdn) const { return const_cast<CpuState*>(this)->tail(gdn); }
  /// Pointers to the blocks, for attention.
  std::span<std::byte* const> blocks() const { return block_data_; }
  const StateLayout& layout() const { return *layout_; }

  /// Makes the blocks that tokens up to `end` need.
  void make_blocks(std::int64_t end);
  void advance(std::int64_t tokens) { position_ += tokens; }

  // The draft head's keys and values: of this state alone, since they depend on the token after the last one.
  std::int64_t draft_position() const override { return draft_position_; }
  std::span<std::byte* const> draft_blocks() const { return draft_data_; }
  void make_draft_blocks(std::int64_t end);
  void advance_draft(std::int64_t tokens) { draft_position_ += tokens; }

  void clear();

 private:
  friend class CpuSnapshot;

  const StateLayout* layout_;
  std::int64_t capacity_;
  std::int64_t position_ = 0;
  Buffer<float> recurrent_;  ///< all delta states, then all tails
  std::vector<std::shared_ptr<KvBlock>> blocks_;
  std::vector<std::byte*> block_data_;
  std::int64_t draft_position_ = 0;
  std::vector<KvBlock> draft_blocks_;
  std::vector<std::byte*> draft_data_;

  void forget_drafts();
};

class CpuSnapshot final : public Snapshot {
 public:
  explicit CpuSnapshot(const CpuState& state);

  std::int64_t position() const override { return position_; }
  std::size_t own_bytes() const override {
    return static_cast<std::size_t>(recurrent_.size()) * sizeof(float);
  }
  std::vector<SharedMemory> shared() const override;
  void restore_into(CpuState& state) const;

 private:
  const StateLayout* layout_;
  std::int64_t position_;
  Buffer<float> recurrent_;
  std::vector<std::shared_ptr<KvBlock>> blocks_;
};

}  // namespace aima::device::cpu
