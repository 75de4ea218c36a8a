/// The draft head (MTP, model.md 3.4), and what checks read out of the device.
#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/ops/norm.h"
#include "device/cpu/ops/panels.h"

namespace aima::device::cpu {

void CpuDevice::draft(State& state, std::span<const std::int32_t> next) {
  auto& sequence = static_cast<CpuState&>(state);
  const auto count = static_cast<std::int64_t>(next.size());
  if (!weights_.draft) throw base::Error({.what = "the checkpoint has no draft head"});
  if (ended_ != &sequence || count < 1 || count > tokens_) {
    throw base::Error({.what = "a draft follows its pass, once, with at most as many tokens"});
  }
  if (sequence.draft_position() != start_) {
    throw base::Error({.what = "the draft head has not seen the tokens before this pass",
                       .why = "the pass starts at token " + std::to_string(start_) + ", drafts end at " +
                              std::to_string(sequence.draft_position())});
  }
  pool_.hold();
  tokens_ = count;
  head_rows_ = 0;
  const model::DraftWeights& w = *weights_.draft;
  const std::int64_t width = config_.hidden;
  if (draft_input_.size() < count * 2 * width) draft_input_ = Buffer<float>(count * 2 * width);
  const Mat embedding{draft_input_.data(), count, width, 2 * width};
  const Mat hidden{draft_input_.data() + width, count, width, 2 * width};
  const Mat residual = view(w_.residual, width);
  std::ranges::copy(next, w_.ids.data());
  embed_rows(w_.ids.data(), embedding);
  rms_norm(context_, embedding, w.embed_norm.data(), config_.eps, embedding);
  rms_norm(context_, residual, weights_.final_norm.data(), config_.eps, hidden);
  rms_norm(context_, hidden, w.hidden_norm.data(), config_.eps, hidden);
  multiply(packed(draft_input_.data(), count, 2 * width), std::array{Target{.w = w.fc, .y = residual}});
  sequence.make_draft_blocks(start_ + count);
  mixer_in(draft_layer());
  attention_mix(draft_layer());
  mixer_out(draft_layer());
  route(draft_layer());
  experts(draft_layer());
  sequence.advance_draft(count);
  ended_ = nullptr;
  pool_.release();
}

void CpuDevice::draft_head(Rows rows) {
  if (!weights_.draft) throw base::Error({.what = "the checkpoint has no draft head"});
  head_rows(rows, weights_.draft->norm.data());
}

std::size_t CpuDevice::draft_state_bytes(std::int64_t capacity) const {
  const std::int64_t blocks = (capacity + block_tokens - 1) / block_tokens;
  return weights_.draft ? static_cast<std::size_t>(blocks) * 2 * layout_.kv_bytes : 0;
}

void CpuDevice::read_routing(std::span<std::int32_t> ids, std::span<float> weights) {
  const auto count = static_cast<std::size_t>(tokens_ * config_.experts_per_token);
  if (ids.size() != count || weights.size() != count) {
    throw base::Error({.what = "read_routing was given the wrong size"});
  }
  std::copy_n(w_.slot_ids.data(), count, ids.data());
  std::copy_n(w_.slot_weights.data(), count, weights.data());
}

void CpuDevice::read_delta_state(const State& state, int index, std::span<float> delta,
                                 std::span<float> tail) {
  if (!layer(index).gdn || static_cast<std::int64_t>(delta.size()) != layout_.delta_floats ||
      static_cast<std::int64_t>(tail.size()) != layout_.tail_floats) {
    throw base::Error({.what = "read_delta_state was given another layer's sizes"});
  }
  const auto& sequence = static_cast<const CpuState&>(state);
  const std::int64_t number = kind_index_[static_cast<std::size_t>(index)];
  std::copy_n(sequence.delta(number), delta.size(), delta.data());
  std::copy_n(sequence.tail(number), tail.size(), tail.data());
}

}  // namespace aima::device::cpu
