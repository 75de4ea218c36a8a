/// How matrix products treat their inputs; the whole rule stands in docs/architecture.md ("Numerics").
#pragma once

namespace aima {

enum class Math {
  bf16,  ///< inputs of matrix products are rounded to bf16, the KV cache is bf16; all the rest is f32
  f32,   ///< nothing is rounded: the oracle
};

constexpr const char* name_of(Math math) { return math == Math::bf16 ? "bf16" : "f32"; }

}  // namespace aima
