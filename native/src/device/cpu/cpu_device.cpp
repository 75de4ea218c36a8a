/// Construction, states, workspace, and both ends of a pass. The joints between lie in cpu_layers.cpp.
#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/cpu.h"
#include "base/error.h"
#include "device/cpu/ops/gemm.h"
#include "device/cpu/ops/norm.h"
#include "device/cpu/tables.h"

namespace aima::device::cpu {
namespace {

/// Experts run over at most this many tokens at a time: their workspace is eight times a pass's activations.
constexpr std::int64_t moe_tokens = 1024;

int thread_count(int asked) { return asked > 0 ? asked : base::usable_cores(); }

/// "2 threads on processors 0 and 1", "1 thread".
std::string threads_text(const base::ThreadPool& pool) {
  std::string text = std::to_string(pool.size()) + (pool.size() == 1 ? " thread" : " threads");
  const std::vector<int>& processors = pool.processors();
  if (pool.size() > 1) text += processors.empty() ? ", not pinned" : " on processors ";
  for (std::size_t i = 0; i < processors.size(); ++i) {
    if (i > 0) text += i + 1 < processors.size() ? ", " : " and ";
    text += std::to_string(processors[i]);
  }
  return text;
}

std::vector<std::int64_t> number_by_kind(const std::vector<model::LayerKind>& layers) {
  std::vector<std::int64_t> numbers;
  std::int64_t seen[2] = {};
  for (const model::LayerKind kind : layers) numbers.push_back(seen[static_cast<int>(kind)]++);
  return numbers;
}

}  // namespace

CpuDevice::CpuDevice(const model::Config& config, const model::Weights& weights, const CpuOptions& options)
    : config_(config),
      weights_(weights),
      isa_(options.isa != nullptr ? *options.isa : *usable_isas().front()),
      pool_(thread_count(options.threads), base::choose_processors(thread_count(options.threads))),
      scratch_(pool_.size()),
      context_{isa_, pool_, scratch_, options.math},
      layout_(config, options.math),
      moe_shape_{.width = config.hidden,
                 .experts = config.experts,
                 .k = config.experts_per_token,
                 .expert_width = config.expert_width,
                 .shared_width = config.shared_width},
      kind_index_(number_by_kind(config.layers)),
      vocab_limit_(config.vocab) {
  facts_ = {.name = "cpu",
            .detail = base::cpu_name() + ", " + context_.isa.name + ", " + threads_text(pool_),
            .math = options.math};
}

CpuDevice::Workspace CpuDevice::make_workspace(std::int64_t tokens) const {
  const model::Config& c = config_;
  return {.tokens = tokens,
          .ids = Buffer<std::int32_t>(tokens),
          .residual = Buffer<float>(tokens * c.hidden),
          .normed = Buffer<float>(tokens * c.hidden),
          .projected = Buffer<float>(tokens * std::max(c.conv_width(), 2 * c.query_width())),
          .second = Buffer<float>(tokens * std::max(c.gdn_value_width(), c.query_width())),
          .small = Buffer<float>(tokens * 2 * std::max(c.gdn_value_heads, c.kv_width())),
          .mixed = Buffer<float>(tokens * std::max(c.gdn_value_width(), c.query_width())),
          .cos = Buffer<float>(tokens * c.rotary_dim / 2),
          .sin = Buffer<float>(tokens * c.rotary_dim / 2),
          .router = Buffer<float>(tokens * c.experts),
          .slot_weights = Buffer<float>(tokens * c.experts_per_token),
          .slot_ids = Buffer<std::int32_t>(tokens * c.experts_per_token),
          .moe = make_moe_workspace(moe_shape_, std::min(tokens, moe_tokens))};
}

std::size_t CpuDevice::workspace_bytes(std::int64_t tokens) const {
  const model::Config& c = config_;
  const std::int64_t wide = std::max(c.gdn_value_width(), c.query_width());
  const std::int64_t per_token = 1 + 2 * c.hidden + std::max(c.conv_width(), 2 * c.query_width()) + 2 * wide +
                                 2 * std::max(c.gdn_value_heads, c.kv_width()) + c.rotary_dim + c.experts +
                                 2 * c.experts_per_token;
  const std::size_t worker = std::max(panel_worker_bytes(tokens), expert_worker_bytes(moe_shape_));
  return static_cast<std::size_t>(tokens * per_token + max_head_rows * c.vocab) * 4 +
         moe_workspace_bytes(moe_shape_, std::min(tokens, moe_tokens)) +
         panel_shared_bytes(tokens, std::max(c.hidden, wide)) +
         worker * static_cast<std::size_t>(pool_.size());
}

void CpuDevice::reserve(std::int64_t tokens) {
  if (tokens <= w_.tokens) return;
  w_ = {};  // first give back, then take: the two together might not fit
  w_ = make_workspace(tokens);
}

std::size_t CpuDevice::state_bytes(std::int64_t capacity) const {
  const std::int64_t blocks = (capacity + block_tokens - 1) / block_tokens;
  return static_cast<std::size_t>(layout_.recurrent_floats()) * sizeof(float) +
         static_cast<std::size_t>(blocks) * layout_.block_bytes();
}

std::unique_ptr<State> CpuDevice::create_state(std::int64_t capacity) {
  return std::make_unique<CpuState>(layout_, capacity);
}

std::unique_ptr<Snapshot> CpuDevice::snapshot(const State& state) {
  return std::make_unique<CpuSnapshot>(static_cast<const CpuState&>(state));
}

void CpuDevice::restore(State& state, const Snapshot& snapshot) {
  static_cast<const CpuSnapshot&>(snapshot).restore_into(static_cast<CpuState&>(state));
}

void CpuDevice::clear(State& state) { static_cast<CpuState&>(state).clear(); }

bool CpuDevice::begin(const Pass& pass) {
  state_ = static_cast<CpuState*>(pass.state);
  phase_ = pass.phase;
  tokens_ = static_cast<std::int64_t>(pass.ids.size());
  ended_ = nullptr;
  head_rows_ = 0;
  start_ = state_->position();
  if (phase_ == Phase::prefill && start_ % block_tokens != 0) {
    throw base::Error({.what = "a prefill pass must start on a multiple of 64 tokens"});
  }
  reserve(tokens_);
  state_->make_blocks(start_ + tokens_);
  pool_.hold();
  std::ranges::copy(pass.ids, w_.ids.data());
  const std::int64_t half = config_.rotary_dim / 2;
  rope_tables(context_, config_.rope_theta, config_.rotary_dim, start_, view(w_.cos, half),
              view(w_.sin, half));
  return true;
}

void CpuDevice::embed() {
  const Timer timer(*this, Embed);
  embed_rows(w_.ids.data(), view(w_.residual, config_.hidden));
}

void CpuDevice::embed_rows(const std::int32_t* ids, Mat out) {
  const model::Matrix& table = weights_.embed;
  for_ranges(context_, out.rows, 64, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t t = first; t < last; ++t) {
      const std::byte* row = table.row(ids[t]);
      if (table.dtype == model::DType::bf16) {
        context_.isa.widen_bf16(out.row(t), row, config_.hidden);
      } else {
        std::memcpy(out.row(t), row, static_cast<std::size_t>(table.row_bytes()));
      }
    }
  });
}

void CpuDevice::head(Rows rows) { head_rows(rows, weights_.final_norm.data()); }

void CpuDevice::head_rows(Rows rows, const float* gain) {
  const Timer timer(*this, Head);
  if (rows.count < 1 || rows.count > max_head_rows || rows.first < 0 || rows.first + rows.count > tokens_) {
    throw base::Error({.what = "head was asked for rows outside the pass"});
  }
  if (logits_.size() == 0) logits_ = Buffer<float>(max_head_rows * config_.vocab);
  head_rows_ = rows.count;
  const Mat residual = view(w_.residual, config_.hidden);
  const Mat normed = view(w_.normed, config_.hidden);
  const Mat from = packed(residual.row(rows.first), rows.count, config_.hidden);
  const Mat to = packed(normed.row(0), rows.count, config_.hidden);
  rms_norm(context_, from, gain, config_.eps, to);
  gemm(context_, {.x = to, .w = weights_.head, .y = packed(logits_.data(), rows.count, config_.vocab)});
}

void CpuDevice::end() {
  state_->advance(tokens_);
  ended_ = state_;
  state_ = nullptr;
  pool_.release();
}

void CpuDevice::read_logits(std::span<float> out) {
  if (static_cast<std::int64_t>(out.size()) != head_rows_ * config_.vocab) {
    throw base::Error({.what = "read_logits was given the wrong size"});
  }
  std::copy_n(logits_.data(), out.size(), out.data());
}

std::int32_t CpuDevice::read_argmax() {
  const float* row = logits_.data() + (head_rows_ - 1) * config_.vocab;
  const std::int64_t limit = std::min<std::int64_t>(vocab_limit_, config_.vocab);
  const float* best = std::max_element(row, row + limit);  // the first of equals
  if (!std::all_of(row, row + limit, [](float logit) { return std::isfinite(logit); })) {
    throw base::Error({.what = "the logits are not finite",
                       .why = "the weights hold infinities or NaN, or a sum overflowed"});
  }
  return static_cast<std::int32_t>(best - row);
}

}  // namespace aima::device::cpu
