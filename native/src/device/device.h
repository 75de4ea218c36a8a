/// The seam between the engine, which decides what to compute, and a device, which computes it.
///
/// The model is cut at its joints, not at its operations, so that a device may fuse what lies between two
/// joints. A forward pass is always this sequence (`engine::run_pass`):
///
///     begin
///       embed
///       per layer:  mixer_in, gdn_mix | attention_mix, mixer_out, route, experts
///       head (any number of times)
///     end
///     draft, draft_head (any number of times): only where drafts are asked for
///
/// Rules that let a GPU stand behind it:
/// - Every call up to `end`, and a draft, may only queue work. Nothing but `read_logits`, `read_argmax`,
///   `read_routing`, `read_delta_state`, `snapshot`, `restore` and destroying a state waits. Errors of queued
///   work may surface at the next waiting call.
/// - Activations, workspace, KV cache and states belong to the device; the engine sees handles and the final
/// rows.
/// - `begin` may answer that the whole step is already recorded (a graph): then the engine skips to `end`.
///
/// Batch invariance: a prefill pass starts at a multiple of 64 and is one function of the tokens. Each output
/// element has one reduction order, whatever the pass length, the split into passes or the number of threads;
/// attention blocks and delta-rule chunks lie at absolute multiples of 64. Decode steps use the recurrence
/// instead of the chunk form: equal within rounding, not in bits.
///
/// Where numbers are rounded (`Math::bf16`): the input rows of every matrix product (after norms, gates,
/// SiLU·up), queries, and attention probabilities before they multiply V; K and V as they enter the cache.
/// Everything else, the conv tail and the delta state included, is f32. `Math::f32` rounds nowhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/math_mode.h"

namespace aima::device {

/// Prefill passes start, and snapshots lie, at multiples of this many tokens.
inline constexpr std::int64_t block_tokens = 64;

/// Most rows that one call of `head` takes.
inline constexpr std::int64_t max_head_rows = 64;

enum class Phase { prefill, decode };

struct Facts {
  std::string name;    ///< "cpu"
  std::string detail;  ///< the processor, the instruction set, the threads
  Math math = Math::bf16;
};

/// Seconds spent in one joint since the device was made.
struct JointTime {
  const char* joint;
  double prefill = 0;
  double decode = 0;
};

/// One sequence: KV cache of the attention layers, delta state and conv tail of the others. Destroying the
/// handle releases the memory. Must not outlive its device.
class State {
 public:
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  virtual ~State() = default;

  virtual std::int64_t position() const = 0;  ///< tokens taken in so far
  virtual std::int64_t capacity() const = 0;  ///< tokens it can hold
  /// Tokens whose keys and values the draft head has: a prefix of the sequence.
  virtual std::int64_t draft_position() const { return 0; }
};

/// A piece of memory that several snapshots and states of a device hold together, a block of keys and values
/// say. The same `id` is the same memory.
struct SharedMemory {
  const void* id = nullptr;
  std::size_t bytes = 0;
};

/// A state as it was at `position()`, a multiple of 64. Immutable, may be restored any number of times and
/// into any state of the same device with enough capacity. Must not outlive its device.
class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  virtual ~Snapshot() = default;

  virtual std::int64_t position() const = 0;
  virtual std::size_t own_bytes() const = 0;             ///< held by this snapshot alone
  virtual std::vector<SharedMemory> shared() const = 0;  ///< held with others, each piece once
};

/// Tokens to run on top of a state. In prefill the state's position is a multiple of 64.
struct Pass {
  State* state = nullptr;
  Phase phase = Phase::prefill;
  std::span<const std::int32_t>
      ids;  ///< checked by the engine: non-empty, in the vocabulary; read before `begin` returns
};

/// Rows of the pass, relative to its start.
struct Rows {
  std::int64_t first = 0;
  std::int64_t count = 1;
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const Facts& facts() const = 0;
  /// In the order of a pass; empty where the device only queues work and cannot tell.
  virtual std::vector<JointTime> joint_times() const { return {}; }

  /// Bytes of workspace that passes of up to `tokens` need; `reserve` takes them (it never shrinks).
  virtual std::size_t workspace_bytes(std::int64_t tokens) const = 0;
  virtual void reserve(std::int64_t tokens) = 0;

  /// Bytes of a state that is filled to `capacity` tokens.
  virtual std::size_t state_bytes(std::int64_t capacity) const = 0;
  /// An empty state.
  virtual std::unique_ptr<State> create_state(std::int64_t capacity) = 0;
  /// Requires a position that is a multiple of 64.
  virtual std::unique_ptr<Snapshot> snapshot(const State& state) = 0;
  virtual void restore(State& state, const Snapshot& snapshot) = 0;
  /// Back to position 0.
  virtual void clear(State& state) = 0;

  /// Ids from this one on are padding rows of the vocabulary: never the argmax.
  virtual void set_vocab_limit(std::int32_t limit) = 0;
  /// A flag that is looked at between tiles of work; once true, the pass throws base::Cancelled and its state
  /// may only be cleared, restored or destroyed. May be null.
  virtual void set_stop(const std::atomic<bool>* stop) = 0;

  /// Takes the ids in and prepares the pass. True: call the joints; false: everything up to `head` of the
  /// last row is recorded and runs at `end`.
  virtual bool begin(const Pass& pass) = 0;
  /// Residual stream = embedding rows.
  virtual void embed() = 0;
  /// Input norm of `layer` and the projections of its mixer.
  virtual void mixer_in(int layer) = 0;
  /// Linear attention: conv, SiLU, L2 norms, gates, delta rule, gated norm.
  virtual void gdn_mix(int layer) = 0;
  /// Full attention: head norms, RoPE, KV write, causal softmax attention, output gate.
  virtual void attention_mix(int layer) = 0;
  /// Output projection, added to the residual stream.
  virtual void mixer_out(int layer) = 0;
  /// Post-attention norm, router, top-k.
  virtual void route(int layer) = 0;
  /// Routed and shared experts, added to the residual stream.
  virtual void experts(int layer) = 0;
  /// Final norm and output head of 1..max_head_rows rows of this pass.
  virtual void head(Rows rows) = 0;
  /// The state's position moves past the pass.
  virtual void end() = 0;

  /// True where the checkpoint has a draft head (MTP, model.md 3.4) and this device computes it.
  virtual bool has_draft_head() const { return false; }
  /// The draft head over the first `next.size()` rows of the pass on `state` that ended last; `next[t]` is
  /// the token that follows row t, so that a draft row scores the token after it. The last row's follower
  /// may be a token that was sampled from the pass's own logits, hence a step of its own after `end`: a
  /// device keeps the pass's residual rows until the next `begin`, and may record this step as it records a
  /// decode step. At most one draft for a pass.
  ///
  /// The draft head has its own keys and values in the state, made when it first runs; `state_bytes` leaves
  /// them out, `draft_state_bytes` states them. Passes are drafted from the first on: the draft position
  /// must be where the pass started. `clear` and `restore` forget them.
  virtual void draft(State& state, std::span<const std::int32_t> next);
  /// Output head of 1..max_head_rows rows of the latest draft, for `read_logits`.
  virtual void draft_head(Rows rows);
  virtual std::size_t draft_state_bytes(std::int64_t capacity) const;

  /// Logits of the latest `head`: [count, vocab] f32. Waits.
  virtual void read_logits(std::span<float> out) = 0;
  /// The greatest logit of the last row of the latest `head`, the lowest id on a tie. Waits.
  virtual std::int32_t read_argmax() = 0;

  /// For checks of one device against another, or against a reference. Both wait.
  /// What the latest `route` chose: experts in descending order of weight, and the weights, [tokens, k] each.
  virtual void read_routing(std::span<std::int32_t> ids, std::span<float> weights);
  /// Of the GDN layer `layer`: the delta state [value heads, key dim, value dim] and the conv tail [3, conv
  /// channels], oldest first.
  virtual void read_delta_state(const State& state, int layer, std::span<float> delta, std::span<float> tail);
};

}  // namespace aima::device
