// SHA-256 with the SHA instructions. The state is held as the two words groups that sha256rnds2 works on,
// {F,E,B,A} and {H,G,D,C}, lowest element first; each of those instructions does two rounds.
#include <immintrin.h>

#include "base/sha256_blocks.h"

#define AIMA_SHA __attribute__((target("sha,sse4.1,ssse3")))

namespace aima::base {
namespace {

struct Pair {
  __m128i feba;
  __m128i hgdc;
};

/// Four rounds with the message words `w`, the first of them round `at`.
AIMA_SHA inline void four_rounds(Pair& s, __m128i w, int at) {
  const __m128i sum = _mm_add_epi32(w, _mm_loadu_si128((const __m128i*)(sha256_rounds + at)));
  s.hgdc = _mm_sha256rnds2_epu32(s.hgdc, s.feba, sum);
  s.feba = _mm_sha256rnds2_epu32(s.feba, s.hgdc, _mm_shuffle_epi32(sum, 0x0e));
}

/// Message words t..t+3 from the sixteen before them, four in each argument, oldest first.
AIMA_SHA inline __m128i next_words(__m128i a, __m128i b, __m128i c, __m128i d) {
  const __m128i seven_back = _mm_alignr_epi8(d, c, 4);
  return _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(a, b), seven_back), d);
}

AIMA_SHA Pair load_state(const uint32_t* state) {
  const __m128i dcba = _mm_loadu_si128((const __m128i*)state);
  const __m128i hgfe = _mm_loadu_si128((const __m128i*)(state + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  return {_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xf0)};
}

AIMA_SHA void store_state(uint32_t* state, Pair s) {
  const __m128i abef = _mm_shuffle_epi32(s.feba, 0x1b);
  const __m128i ghcd = _mm_shuffle_epi32(s.hgdc, 0xb1);
  _mm_storeu_si128((__m128i*)state, _mm_blend_epi16(abef, ghcd, 0xf0));
  _mm_storeu_si128((__m128i*)(state + 4), _mm_alignr_epi8(ghcd, abef, 8));
}

}  // namespace

AIMA_SHA void sha256_ni(uint32_t* state, const unsigned char* data, size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  Pair s = load_state(state);
  for (; blocks != 0; --blocks, data += 64) {
    const Pair before = s;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i*)(data + 16 * i)), swap);
      four_rounds(s, w[i], 4 * i);
    }
    for (int at = 16; at < 64; at += 16) {
      for (int i = 0; i < 4; ++i) {
        w[i] = next_words(w[i], w[(i + 1) % 4], w[(i + 2) % 4], w[(i + 3) % 4]);
        four_rounds(s, w[i], at + 4 * i);
      }
    }
    s.feba = _mm_add_epi32(s.feba, before.feba);
    s.hgdc = _mm_add_epi32(s.hgdc, before.hgdc);
  }
  store_state(state, s);
}

}  // namespace aima::base
