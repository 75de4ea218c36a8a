#include "device/cpu/state.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/numbers.h"

namespace aima::device::cpu {

using model::LayerKind;

StateLayout::StateLayout(const model::Config& config, Math math)
    : delta_floats(config.gdn_value_heads * config.gdn_key_dim * config.gdn_value_dim),
      tail_floats((model::conv_taps - 1) * config.conv_width()),
      gdn_layers(config.count(LayerKind::gdn)),
      kv_bytes(static_cast<std::size_t>(config.kv_width() * block_tokens) * (math == Math::bf16 ? 2 : 4)),
      attention_layers(config.count(LayerKind::attention)) {}

CpuState::CpuState(const StateLayout& layout, std::int64_t capacity)
    : layout_(&layout), capacity_(capacity), recurrent_(layout.recurrent_floats()) {
  clear();
}

void CpuState::clear() {
  position_ = 0;
  std::fill_n(recurrent_.data(), recurrent_.size(), 0.0F);
  blocks_.clear();
  block_data_.clear();
  forget_drafts();
}

void CpuState::forget_drafts() {
  draft_position_ = 0;
  draft_blocks_.clear();
  draft_data_.clear();
}

void CpuState::make_draft_blocks(std::int64_t end) {
  while (static_cast<std::int64_t>(draft_blocks_.size()) * block_tokens < end) {
    draft_blocks_.emplace_back(static_cast<std::int64_t>(2 * layout_->kv_bytes));
    draft_data_.push_back(draft_blocks_.back().data());
  }
}

float* CpuState::delta(std::int64_t gdn) { return recurrent_.data() + gdn * layout_->delta_floats; }

float* CpuState::tail(std::int64_t gdn) {
  return recurrent_.data() + layout_->gdn_layers * layout_->delta_floats + gdn * layout_->tail_floats;
}

void CpuState::make_blocks(std::int64_t end) {
  if (end > capacity_) {
    throw base::Error({.what = "the sequence is full",
                       .why = std::to_string(end) + " tokens do not fit into " + std::to_string(capacity_)});
  }
  while (static_cast<std::int64_t>(blocks_.size()) * block_tokens < end) {
    blocks_.push_back(std::make_shared<KvBlock>(static_cast<std::int64_t>(layout_->block_bytes())));
    block_data_.push_back(blocks_.back()->data());
  }
}

CpuSnapshot::CpuSnapshot(const CpuState& state)
    : layout_(state.layout_),
      position_(state.position_),
      recurrent_(state.recurrent_.size()),
      blocks_(state.blocks_) {
  if (position_ % block_tokens != 0)
    throw base::Error({.what = "a snapshot must lie on a multiple of 64 tokens"});
  blocks_.resize(static_cast<std::size_t>(position_ / block_tokens));
  std::copy_n(state.recurrent_.data(), recurrent_.size(), recurrent_.data());
}

std::vector<SharedMemory> CpuSnapshot::shared() const {
  std::vector<SharedMemory> pieces;
  pieces.reserve(blocks_.size());
  for (const auto& block : blocks_) pieces.push_back({.id = block.get(), .bytes = layout_->block_bytes()});
  return pieces;
}

void CpuSnapshot::restore_into(CpuState& state) const {
  if (position_ > state.capacity_)
    throw base::Error({.what = "the snapshot is longer than the sequence may be"});
  std::copy_n(recurrent_.data(), recurrent_.size(), state.recurrent_.data());
  state.blocks_ = blocks_;
  state.block_data_.clear();
  for (const auto& block : blocks_) state.block_data_.push_back(block->data());
  state.position_ = position_;
  state.forget_drafts();
}

}  // namespace aima::device::cpu
