/// The CPU device: complete, the oracle for every other device, and a way to run anywhere.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/ops/attention.h"
#include "device/cpu/ops/context.h"
#include "device/cpu/ops/moe.h"
#include "device/cpu/ops/panels.h"
#include "device/cpu/state.h"
#include "device/device.h"
#include "model/config.h"
#include "model/weights.h"

namespace aima::device::cpu {

struct CpuOptions {
  Math math = Math::bf16;
  int threads = 0;           ///< 0: one per usable core
  const Isa* isa = nullptr;  ///< null: the best that this processor has
};

class CpuDevice final : public Device {
 public:
  /// `config` and `weights` (bound for `options.math`) must outlive the device.
  CpuDevice(const model::Config& config, const model::Weights& weights, const CpuOptions& options);

  const Facts& facts() const override { return facts_; }
  std::vector<JointTime> joint_times() const override { return {times_.begin(), times_.end()}; }
  std::size_t workspace_bytes(std::int64_t tokens) const override;
  void reserve(std::int64_t tokens) override;
  std::size_t state_bytes(std::int64_t capacity) const override;
  std::unique_ptr<State> create_state(std::int64_t capacity) override;
  std::unique_ptr<Snapshot> snapshot(const State& state) override;
  void restore(State& state, const Snapshot& snapshot) override;
  void clear(State& state) override;
  void set_vocab_limit(std::int32_t limit) override { vocab_limit_ = limit; }
  void set_stop(const std::atomic<bool>* stop) override { pool_.set_stop(stop); }

  bool begin(const Pass& pass) override;
  void embed() override;
  void mixer_in(int index) override;
  void gdn_mix(int index) override;
  void attention_mix(int index) override;
  void mixer_out(int index) override;
  void route(int index) override;
  void experts(int index) override;
  void head(Rows rows) override;
  void end() override;
  void read_logits(std::span<float> out) override;
  std::int32_t read_argmax() override;
  bool has_draft_head() const override { return weights_.draft.has_value(); }
  void draft(State& state, std::span<const std::int32_t> next) override;
  void draft_head(Rows rows) override;
  std::size_t draft_state_bytes(std::int64_t capacity) const override;
  void read_routing(std::span<std::int32_t> ids, std::span<float> weights) override;
  void read_delta_state(const State& state, int layer, std::span<float> delta,
                        std::span<float> tail) override;

 private:
  /// Activations of a pass of up to `tokens` tokens. Names say what lies there in a GDN / an attention layer.
  struct Workspace {
    std::int64_t tokens = 0;
    Buffer<std::int32_t> ids;
    Buffer<float> residual;   ///< [T, hidden]
    Buffer<float> normed;     ///< [T, hidden]: input of mixer, router and experts
    Buffer<float> projected;  ///< u [T, conv width] / q and gate [T, 2 · query width]
    Buffer<float> second;     ///< z [T, value width] / q [T, query width]
    Buffer<float> small;      ///< a, b [T, value heads] each / k, v [T, kv width] each
    Buffer<float> mixed;      ///< o [T, value width or query width]
    Buffer<float> cos;        ///< [T, rotary / 2]
    Buffer<float> sin;
    Buffer<float> router;           ///< [T, experts]
    Buffer<float> slot_weights;     ///< [T, k]
    Buffer<std::int32_t> slot_ids;  ///< [T, k]
    MoeWorkspace moe;
  };

  /// Adds the time that it lives to a joint's.
  class Timer {
   public:
    Timer(CpuDevice& device, std::size_t joint)
        : seconds_(device.phase_ == Phase::prefill ? device.times_[joint].prefill
                                                   : device.times_[joint].decode) {}
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    ~Timer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

   private:
    double& seconds_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };
  enum Joint : std::size_t { Embed, MixerIn, GdnMix, AttentionMix, MixerOut, Route, Experts, Head, joints };

  Mat view(Buffer<float>& buffer, std::int64_t cols, std::int64_t offset = 0) const {
    return packed(buffer.data() + offset, tokens_, cols);
  }
  /// The draft head's layer goes through the same joints as the others, under the number after theirs.
  int draft_layer() const { return static_cast<int>(config_.layers.size()); }
  const model::LayerWeights& layer(int index) const {
    return index == draft_layer() ? weights_.draft->layer : weights_.layers[static_cast<std::size_t>(index)];
  }
  KvBlocks kv_of(int index) const;
  void embed_rows(const std::int32_t* ids, Mat out);
  void head_rows(Rows rows, const float* gain);
  Workspace make_workspace(std::int64_t tokens) const;
  /// All products of the same rows, in the way of the pass's phase.
  void multiply(ConstMat x, std::span<const Target> targets);

  const model::Config& config_;
  const model::Weights& weights_;
  const Isa& isa_;  ///< before the threads: finding it may ask the kernel for AMX
  base::ThreadPool pool_;
  Scratch scratch_;
  Context context_;
  StateLayout layout_;
  MoeShape moe_shape_;
  std::vector<std::int64_t> kind_index_;  ///< number of each layer among those of its kind
  Facts facts_;
  Workspace w_;
  Buffer<float> logits_;  ///< [max_head_rows, vocab]
  std::int64_t vocab_limit_;
  std::array<JointTime, joints> times_ = {{{.joint = "embed"},
                                           {.joint = "mixer_in"},
                                           {.joint = "gdn_mix"},
                                           {.joint = "attention_mix"},
                                           {.joint = "mixer_out"},
                                           {.joint = "route"},
                                           {.joint = "experts"},
                                           {.joint = "head"}}};

  CpuState* state_ = nullptr;  ///< of the pass
  Phase phase_ = Phase::prefill;
  std::int64_t start_ = 0;  ///< position of its first token
  std::int64_t tokens_ = 0;
  std::int64_t head_rows_ = 0;
  CpuState* ended_ = nullptr;  ///< state of the pass that ended last, until it is drafted
  Buffer<float> draft_input_;  ///< [T, 2 · hidden]
};

}  // namespace aima::device::cpu
