/// The checkpoint's tensors in their places: matrices in a dtype that the math takes, small vectors widened
/// to f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/math_mode.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/tensor_store.h"

namespace aima::model {

/// [rows, cols] row-major, y = x·Wᵀ; bf16 or f32; aligned to 64 bytes when read, to nothing when
/// mapped.
struct Matrix {
  DType dtype = DType::bf16;
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  std::int64_t row_bytes() const { return cols * (dtype == DType::f32 ? 4 : 2); }
  const std::byte* row(std::int64_t index) const { return data + index * row_bytes(); }
  /// Rows first..first+count-1 of the same matrix.
  Matrix slice(std::int64_t first, std::int64_t count) const { return {dtype, row(first), count, cols}; }
};

/// y = (silu(x·gateᵀ) ⊙ (x·upᵀ))·downᵀ
struct Expert {
  Matrix gate;
  Matrix up;
  Matrix down;
};

struct GdnWeights {
  Matrix qkv;  ///< rows q, k, v
  Matrix z;
  Matrix a;
  Matrix b;
  Matrix out;
  std::vector<float> conv;     ///< [tap][channel], tap 3 the newest token
  std::vector<float> decay;    ///< −exp(A_log) per value head
  std::vector<float> dt_bias;  ///< per value head
  std::vector<float> norm;     ///< plain, of one value head
};

struct AttentionWeights {
  Matrix q;  ///< per head: query rows, then gate rows
  Matrix k;
  Matrix v;
  Matrix out;
  std::vector<float> q_norm;  ///< 1 + w
  std::vector<float> k_norm;  ///< 1 + w
};

struct MoeWeights {
  Matrix router;
  std::vector<Expert> experts;
  Expert shared;
  Matrix shared_gate;  ///< one row
};

struct LayerWeights {
  std::vector<float> input_norm;  ///< 1 + w
  std::vector<float> post_norm;   ///< 1 + w
  std::optional<GdnWeights> gdn;
  std::optional<AttentionWeights> attention;
  MoeWeights moe;
};

/// The draft head (MTP, model.md 3.4); embedding and output head are the model's own.
struct DraftWeights {
  std::vector<float> embed_norm;   ///< 1 + w, of the next token's embedding
  std::vector<float> hidden_norm;  ///< 1 + w, of the hidden state after the final norm
  Matrix fc;                ///< [hidden, 2 · hidden]: columns of the embedding, then of the hidden state
  LayerWeights layer;       ///< full attention
  std::vector<float> norm;  ///< 1 + w, before the output head
};

struct Weights {
  Matrix embed;
  Matrix head;
  std::vector<float> final_norm;  ///< 1 + w
  std::vector<LayerWeights> layers;
  std::optional<DraftWeights> draft;  ///< where the checkpoint has `mtp.fc.weight`

  std::shared_ptr<const TensorStore> store;  ///< what the matrices point into
};

/// Every tensor that the text model needs, checked against the config, and as which dtype. Nothing is read.
struct WeightsPlan {
  std::vector<Wanted> wanted;

  StoreSize size(Method method) const { return store_size(wanted, method); }
};

/// Finds every tensor of the text model, under `model.language_model.` or `model.`, and checks its shape and
/// dtype. The 19 tensors of the draft head (`mtp.`) are bound where `mtp.fc.weight` is there. Vision tensors
/// (`model.visual.`) and other `mtp.` ones are left alone; any other unknown tensor is an error, since it
/// would change the result. Experts may be fused or split. Matrices keep their dtype where it
/// fits the math: bf16 always, f32 under Math::f32; others are converted while they are read. The result
/// points into `checkpoint`.
WeightsPlan plan_weights(const Checkpoint& checkpoint, const Config& config, Math math);

/// The weights of a plan that was loaded into `store`.
Weights bind_weights(const Checkpoint& checkpoint, const Config& config, Math math,
                     std::shared_ptr<TensorStore> store);

/// Plans, loads and binds.
Weights load_weights(const Checkpoint& checkpoint, const Config& config, Math math,
                     const LoadOptions& options = {});

}  // namespace aima::model
